package desk_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// A replay reaches the queue that failed and no other, with the publisher's key, and the rest of
// the dead-letter queue keeps its order.
func TestReplay(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, typ)
			chosen, rest := s.bury(t, 400)
			r := s.execute(t, request(t, desk.Replay))
			want := desk.Result{
				Run: r.Run, Action: desk.Replay, Queue: "billing.dead", Chosen: len(chosen), To: []string{"billing"},
				Begun: r.Begun, By: "tester@here", Reason: "test", Ended: true, Moved: len(chosen), Took: r.Took,
				Direct: true, SoFar: true, Unheard: []string{"billing (it has no consumer)"},
			}
			if d := cmp.Diff(want, r); d != "" {
				t.Errorf("result (-want +got):\n%s", d)
			}
			got := s.drained(t, "billing")
			if d := cmp.Diff(chosen, identities(got)); d != "" {
				t.Errorf("billing (-want +got):\n%s", d)
			}
			for _, d := range got {
				if d.RoutingKey != "order.chosen" || d.Headers["desk-run"] != r.Run || d.Headers["desk-replays"] != int64(1) ||
					d.Headers["count"] != nil || d.Headers["retry-queue"] != nil {
					t.Fatalf("key %s, headers %v", d.RoutingKey, d.Headers)
				}
			}
			if n := readyIn(t, s.ch, "audit"); n > 0 {
				t.Errorf("audit has %d", n)
			}
			has := identities(s.drained(t, "billing.dead"))
			if d := cmp.Diff(rest, has); d != "" {
				lost, doubled := compareCounts(rest, has)
				t.Errorf("of the rest %d are lost, %d doubled (-want +got):\n%s", lost, doubled, d)
			}
			s.tidy(t)
		})
	}
}

// A run that begins, and one that is resumed, is never shown as sending before it has taken all.
func TestRunsShowThePhase(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, _ := s.bury(t, 1600) // more than are on their way into a hold at once
	p, err := s.desk.Propose(t.Context(), request(t, desk.Replay))
	if err != nil {
		t.Fatal(err)
	}
	run := s.watchPhase(t, "begins", 50, func(ctx context.Context, progress func(desk.Progress)) (desk.Result, error) {
		return s.desk.Execute(ctx, p, progress)
	})
	resume := func(ctx context.Context, progress func(desk.Progress)) (desk.Result, error) {
		return s.desk.Resume(ctx, run, nil, progress)
	}
	s.watchPhase(t, "is resumed", len(chosen), resume)
}

// A hold is listed while the broker still creates it, on a busy machine for longer than SafeAge,
// and has no take exchange yet: a run has taken all once its hold has all records, the last of
// which says so.
func TestAHoldWithoutItsRecordsIsNotFull(t *testing.T) {
	t.Parallel()
	name := topology.HoldName("shop", "20261123-160000-abcdef")
	began := time.Date(2026, 11, 23, 16, 0, 0, 0, time.UTC)
	state := topology.State{Have: topology.Topology{Queues: []topology.Queue{
		{Name: name, Arguments: topology.Arguments{
			topology.ArgManagedBy: topology.DeskMark("shop"),
			"x-desk-run":          `{"Action":"replay","Records":1,"Started":"2026-11-23T16:00:00Z"}`,
		}},
		{Name: topology.DeskWorkerName("shop", "20261123-160000-abcdef"), Exclusive: true},
	}}}
	for messages, want := range map[int64]desk.Phase{0: desk.Taking, 1: desk.Taking, 2: desk.Sending, 3: desk.Sending} {
		state.Usage = map[string]topology.Usage{name: {Ready: messages}}
		runs := desk.RunsOf("shop", state, began.Add(time.Minute))
		if len(runs) != 1 || runs[0].Phase != want {
			t.Errorf("with %d messages: %+v, want %s", messages, runs, want)
		}
	}
}

// An edit that was killed after it had noted that the edited message is sent holds one message, its
// original, and not the note.
func TestAnEditHoldsOneMessage(t *testing.T) {
	t.Parallel()
	name := topology.HoldName("shop", "20261123-160000-abcdef")
	state := topology.State{
		Have: topology.Topology{Queues: []topology.Queue{{Name: name, Arguments: topology.Arguments{
			topology.ArgManagedBy: topology.DeskMark("shop"),
			"x-desk-run":          `{"Action":"edit","Records":2,"Chosen":1,"Started":"2026-11-23T16:00:00Z"}`,
		}}}},
	}
	// The list, the edited message, the record that all is taken; then the original, and the note.
	for messages, want := range map[int64]int{3: 0, 4: 1, 5: 1} {
		state.Usage = map[string]topology.Usage{name: {Ready: messages}}
		runs := desk.RunsOf("shop", state, time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC))
		if len(runs) != 1 || runs[0].Holds != want {
			t.Errorf("with %d messages: %+v, want %d", messages, runs, want)
		}
	}
}

// watchPhase lists the runs over and over while work works on one, and stops the work at so many
// messages. It returns the name of the run.
func (s *shop) watchPhase(
	t *testing.T, when string, at int, work func(context.Context, func(desk.Progress)) (desk.Result, error),
) (run string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err := work(ctx, func(p desk.Progress) {
			if p.Phase == desk.Sending || p.Done >= at {
				cancel()
			}
		})
		if run = r.Run; err != nil || r.Left == 0 {
			t.Errorf("a run that %s: %+v, %v", when, r, err)
		}
		cancel()
	}()
	seen, tick := 0, time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for watch := s.deskOn(t, s.target); ; <-tick.C {
		runs, err := watch.Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ctx.Err() != nil { // it may have sent some when the runs were listed
			break
		}
		for _, r := range runs {
			if seen++; r.Active && r.Phase != desk.Taking {
				t.Errorf("a run that %s is shown as %s", when, r.Phase)
			}
		}
	}
	if <-ended; seen == 0 {
		t.Errorf("a run that %s was never listed", when)
	}
	return run
}

// What a run has in its hold comes back as it was, before anything was sent and after a part was.
func TestReturn(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		for _, sent := range []int{0, 10} {
			t.Run(fmt.Sprintf("%s, %d sent", typ, sent), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, typ)
				s.desk = s.desk.Holding()
				chosen, rest := s.bury(t, 200)
				before := map[string]amqp091.Delivery{}
				for _, d := range s.peeked(t, "billing.dead") {
					before[identity(d.MessageId, d.Body)] = d
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q := request(t, desk.Replay)
				q.Send.Rate = 1000
				p, err := s.desk.Propose(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
					if p.Phase == desk.Taking && sent == 0 && p.Done == len(chosen) ||
						p.Phase == desk.Sending && p.Done >= sent && sent > 0 {
						cancel()
					}
				})
				if err != nil || r.Stopped != "interrupted" || r.Moved+r.Left != len(chosen) {
					t.Fatalf("%+v, %v", r, err)
				}
				back, err := s.desk.Return(t.Context(), r.Run, nil)
				if err != nil || back.Moved != r.Left || back.Left != 0 {
					t.Fatalf("%+v, %v", back, err)
				}
				s.tidy(t)
				if n := readyIn(t, s.ch, "billing"); n != r.Moved {
					t.Errorf("billing has %d, want %d", n, r.Moved)
				}
				got := s.drained(t, "billing.dead")
				want, has := append(rest, chosen[r.Moved:]...), identities(got)
				if sent > 0 { // a send that stops changes the order of the last messages in the hold
					want, has = sorted(want), sorted(has)
				}
				if d := cmp.Diff(want, has); d != "" {
					t.Errorf("billing.dead (-want +got):\n%s", d)
				}
				for _, d := range got {
					was := before[identity(d.MessageId, d.Body)]
					if diff := cmp.Diff(content(was), content(d)); diff != "" {
						t.Fatalf("a message changed (-was +is):\n%s", diff)
					}
				}
			})
		}
	}
}

// content returns all of a message that a publisher sets, and its key.
func content(d amqp091.Delivery) amqp091.Delivery {
	h := amqp091.Table{}
	for name, v := range d.Headers {
		if name != "x-delivery-count" && name != "x-acquired-count" {
			h[name] = v
		}
	}
	return amqp091.Delivery{
		Headers: h, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId,
		RoutingKey: d.RoutingKey, Body: d.Body,
	}
}

// A run on which the work could not begin has an empty result: nothing was moved.
func TestAResumeWithoutABrokerMovesNothing(t *testing.T) {
	t.Parallel()
	d := &desk.Desk{Endpoint: broker.Endpoint{AMQP: broker.Address{Scheme: "amqp", Host: "127.0.0.1:1"}}}
	if r, err := d.Resume(t.Context(), "r1", nil, nil); err == nil || r.Run != "" {
		t.Errorf("%+v, %v", r, err)
	}
}
