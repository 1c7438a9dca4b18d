package desk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// variedMessages are 40 messages with all types of headers and all properties, one of 80 kB.
func variedMessages(user string) []amqp091.Publishing {
	var out []amqp091.Publishing
	for i := range 40 {
		m := deadLetter("billing", "order.chosen", fmt.Sprintf("m-%d", i), i)
		for name, v := range map[string]any{
			"bool": i%2 == 0, "int8": int8(-8), "uint8": uint8(8), "int16": int16(-16), "uint16": uint16(16),
			"int32": int32(-32), "uint32": uint32(32), "int64": int64(-64), "float32": float32(1.5), "float64": 2.25,
			"decimal": amqp091.Decimal{Scale: 2, Value: 314}, "text": "ä", "bytes": []byte{0, 255}, "void": nil,
			"time":  time.Unix(1_700_000_000, 0).UTC(),
			"list":  []any{int32(1), "two", amqp091.Table{"three": int64(3)}},
			"table": amqp091.Table{"deep": amqp091.Table{"list": []any{true}}},
		} {
			m.Headers["h-"+name] = v
		}
		m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.AppId = "identity", "c", "replies", "app"
		m.Priority, m.Timestamp, m.UserId = uint8(i%10), time.Unix(1_700_000_000, 0), user
		if i%3 == 0 {
			m.DeliveryMode = amqp091.Transient
		}
		if i == 7 {
			m.Body = bytes.Repeat([]byte("x"), 80_000)
		}
		out = append(out, m)
	}
	return out
}

// A tool that replayed 40 messages lost 23 of them, cut bodies, and made texts of all headers. Here
// all arrive, with all properties and headers as they were.
func TestReplayKeepsAllOfAMessage(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, history := range []bool{false, true} {
		t.Run(fmt.Sprintf("history %t", history), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			list := variedMessages(s.target.Username)
			brokertest.PublishConfirmed(t, s.ch, "shop.dead", "order.chosen", list...)
			s.awaitReady(t, "billing.dead", len(list))
			q := desk.Request{Action: desk.Replay, Queue: "billing.dead", KeepHistory: history}
			if r := s.execute(t, q); r.Moved != len(list) {
				t.Fatalf("%+v", r)
			}
			got := s.drained(t, "billing")
			if len(got) != len(list) {
				t.Fatalf("%d of %d arrived", len(got), len(list))
			}
			want := map[string]amqp091.Publishing{} // a quorum queue has two priorities since 4.0
			for _, m := range list {
				want[m.MessageId] = m
			}
			for i, d := range got {
				want, is := want[d.MessageId], content(d)
				headers := amqp091.Table{"CC": []any{"@billing"}}
				for name, v := range want.Headers {
					published := name == "retry-exchange" || name == "retry-routing-key"
					if name != "count" && (history || published || !strings.HasPrefix(name, "retry-")) {
						headers[name] = v
					}
				}
				for name := range is.Headers {
					if strings.HasPrefix(name, "desk-") {
						delete(is.Headers, name)
					}
				}
				was := content(amqp091.Delivery{
					Headers: headers, ContentType: want.ContentType, ContentEncoding: want.ContentEncoding,
					DeliveryMode: want.DeliveryMode, Priority: want.Priority, CorrelationId: want.CorrelationId,
					ReplyTo: want.ReplyTo, MessageId: want.MessageId, Timestamp: want.Timestamp, Type: want.Type,
					UserId: want.UserId, AppId: want.AppId, RoutingKey: "order.chosen", Body: want.Body,
				})
				if diff := cmp.Diff(was, is); diff != "" {
					t.Fatalf("message %d (-want +got):\n%s", i, diff)
				}
			}
			s.tidy(t)
		})
	}
}

// The hold of a run is purged while the run sends, or a policy drops its oldest messages. The run
// does not say that messages are left.
func TestHoldIsPurged(t *testing.T) {
	t.Parallel()
	for name, purge := range map[string]func(*testing.T, *shop, string){
		"purged": func(t *testing.T, s *shop, hold string) {
			t.Helper()
			if _, err := s.ch.QueuePurge(hold, false); err != nil {
				t.Error(err)
			}
		},
		"the oldest are dropped": func(t *testing.T, s *shop, hold string) {
			t.Helper()
			s.policy(t, "policies", hold, map[string]any{"max-length": 1, "overflow": "drop-head"})
			s.awaitReady(t, hold, 1) // the record that all is taken
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); testHoldIsPurged(t, purge) })
	}
}

func testHoldIsPurged(t *testing.T, purge func(*testing.T, *shop, string)) {
	t.Helper()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 2000)
	q := request(t, desk.Replay)
	q.Send.Rate = 100
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	purged := false
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		if p.Phase == desk.Sending && p.Done >= 20 && !purged {
			purged = true
			purge(t, s, topology.HoldName("shop", p.Run))
		}
	})
	if err != nil || r.Moved < 20 || r.Moved == len(chosen) || r.Left != 0 || r.Gone != len(chosen)-r.Moved ||
		!strings.Contains(r.Stopped, "it was purged") {
		t.Fatalf("of %d: %+v, %v", len(chosen), r, err)
	}
	if r, err = s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil || !r.Ended || r.Moved != 0 {
		t.Errorf("resumed: %+v, %v", r, err)
	}
	s.tidy(t)
}

// The connections are cut while a run takes and while it sends. It says how to continue, and how
// many may be doubled, and nothing is lost.
func TestRunCut(t *testing.T) {
	t.Parallel()
	for _, phase := range []desk.Phase{desk.Taking, desk.Sending} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			const inFlight = 20
			s := newShop(t, "quorum")
			chosen, rest := s.bury(t, 2000)
			target, proxy := brokertest.NewProxy(t, s.target)
			d := s.deskOn(t, target)
			q := request(t, desk.Replay)
			q.Send.InFlight = inFlight
			p, err := d.Propose(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			cut := false
			r, err := d.Execute(t.Context(), p, func(p desk.Progress) {
				if p.Phase == phase && p.Done >= 100 && !cut {
					cut = true
					proxy.Cut()
				}
			})
			if err == nil || !strings.Contains(err.Error(), "dlxctl desk run resume "+r.Run) {
				t.Fatalf("%+v, %v", r, err)
			}
			if _, err := s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil {
				t.Fatal(err)
			}
			lost, doubled := compareCounts(chosen, identities(s.drained(t, "billing")))
			if lost > 0 || doubled > r.DoubledAtMost || (r.DoubledAtMost == inFlight) != (phase == desk.Sending) {
				t.Errorf("%d lost, %d doubled, at most %d reported", lost, doubled, r.DoubledAtMost)
			}
			if lost, doubled := compareCounts(rest, identities(s.drained(t, "billing.dead"))); lost+doubled > 0 {
				t.Errorf("of the rest %d lost, %d doubled", lost, doubled)
			}
			s.tidy(t)
		})
	}
}

// Two desks that take from one queue at once: one refuses, or both take and no message is taken
// twice.
func TestTwoDesks(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 2000)
	q := request(t, desk.Replay)
	var proposals []desk.Proposal
	for range 2 {
		p, err := s.desk.Propose(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		proposals = append(proposals, p)
	}
	results := make(chan desk.Result, 2)
	for _, p := range proposals {
		go func() {
			r, err := s.desk.Execute(t.Context(), p, nil)
			if err != nil && !errors.Is(err, desk.ErrRefused) {
				t.Errorf("%+v, %v", r, err)
			}
			results <- r
		}()
	}
	a, b := <-results, <-results
	if a.Moved+b.Moved != len(chosen) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if lost, doubled := compareCounts(chosen, identities(s.drained(t, "billing"))); lost+doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	if d := cmp.Diff(rest, identities(s.drained(t, "billing.dead"))); d != "" {
		t.Errorf("the rest (-want +got):\n%s", d)
	}
}

// All bindings of a run have the mark of the desk, so that no plan and no migration takes them for
// bindings of a work queue.
func TestRunMarksItsBindings(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 80)
	seen := map[string]bool{}
	look := func(p desk.Progress) {
		if p.Done != 1 {
			return
		}
		state, err := s.desk.Management.Inspect(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, b := range state.Have.Bindings {
			if b.Source == "" || !strings.Contains(b.Source+b.Destination, "shop.desk.") {
				continue
			}
			kind := b.Source + b.Destination[strings.LastIndex(b.Destination, ".")+1:]
			for _, part := range []string{".in.", ".to.", ".failedbrake"} {
				seen[part] = seen[part] || strings.Contains(kind, part)
			}
			if b.Arguments[topology.ArgManagedBy] != topology.DeskMark("shop") {
				t.Errorf("the binding %s -> %s has the arguments %v", b.Source, b.Destination, b.Arguments)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := request(t, desk.Replay)
	q.Send.Rate = 10
	p, err := s.desk.Propose(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.desk.Execute(ctx, p, func(p desk.Progress) { // the brake listens while it sends
		if look(p); p.Phase == desk.Sending && p.Done == 1 {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.desk.Return(t.Context(), r.Run, look); err != nil { // to one queue alone
		t.Fatal(err)
	}
	if !seen[".in."] || !seen[".to."] || !seen[".failedbrake"] {
		t.Errorf("saw the bindings %v", seen)
	}
}

// A message whose headers fit a frame, but not with those of a hold, stops the run by its name. The
// others are put back, and it never leaves the queue.
func TestHeadersThatDoNotFitAHold(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	large := deadLetter("billing", "order.chosen", "large", 2)
	large.Headers["large"] = ""
	const frame, rest = 131_072 - 8, 20
	large.Headers["large"] = strings.Repeat("x", frame-rest-relay.HeaderSize(large))
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", deadLetter("billing", "order.chosen", "a", 1), large)
	r := s.execute(t, request(t, desk.Park))
	if !strings.Contains(r.Stopped, "too large for a frame") || r.Left != 1 {
		t.Errorf("%+v", r)
	}
	if r, err := s.desk.Return(t.Context(), r.Run, nil); err != nil || r.Moved != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := readyIn(t, s.ch, "billing.dead"); n != 2 {
		t.Errorf("billing.dead has %d messages, want 2", n)
	}
	s.tidy(t)
}

// A run whose hold the broker does not create leaves nothing behind, and does not say that it can
// be continued.
func TestARunWithoutItsHoldHasNotBegun(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.bury(t, 40)
	p, err := s.desk.Holding().Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.desk.Management.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.target.Call(t, "PUT", "vhost-limits/"+url.PathEscape(s.target.VHost)+"/max-queues",
		map[string]any{"value": len(state.Have.Queues) + 2}) // room for the locks of the run
	r, err := s.desk.Execute(t.Context(), p, nil)
	if err == nil || !strings.Contains(err.Error(), "create the hold") || strings.Contains(err.Error(), "run resume") ||
		r.Run != "" {
		t.Errorf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing.dead", 40)
	s.tidy(t)
}

// A message that was published before the limit of the broker was lowered, as an upgrade to 4.0
// does, fits no hold. The run that chooses it names it, and it can be deleted.
func TestAMessageThatIsTooLargeForAHold(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	s := newShopOn(t, node.VHost(t), shopFile("quorum"))
	s.fill(t, 2)
	large := deadLetter("billing", "order.chosen", "large", 2)
	large.Body = make([]byte, 9<<20)
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", large)
	s.awaitReady(t, "billing.dead", 3)
	node.Eval(t, "persistent_term:put(max_message_size, 1048576), application:set_env(rabbit, max_message_size, 1048576).")
	r := s.execute(t, request(t, desk.Replay))
	const why = " is larger than the broker accepts (max_message_size 1048576); raise that limit, or put back what was taken, " +
		"and choose without it (--where 'size <= 1048576')"
	if !strings.HasPrefix(r.Stopped, "message ") || !strings.HasSuffix(r.Stopped, why) || r.Direct {
		t.Fatalf("%+v", r)
	}
	if r, err := s.desk.Return(t.Context(), r.Run, nil); err != nil || !r.Ended {
		t.Fatalf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing.dead", 3)
	filter, err := deadletter.NewFilter("size > 1048576")
	if err != nil {
		t.Fatal(err)
	}
	r = s.execute(t, desk.Request{Action: desk.Discard, Queue: "billing.dead", Filter: filter, Forever: true})
	if !r.Direct || r.Moved != 1 {
		t.Errorf("%+v", r)
	}
	s.awaitReady(t, "billing.dead", 2)
}
