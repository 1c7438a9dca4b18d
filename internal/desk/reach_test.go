package desk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// TestProposeNamesTheQueues has what a proposal says about messages that would be published to an
// exchange: which queues get them by the bindings, headers and alternates of the broker.
func TestProposeNamesTheQueues(t *testing.T) {
	t.Parallel()
	s := newShop(t, topology.Classic)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.ch.ExchangeDeclare("rest", topology.Fanout, true, false, false, false, nil))
	must(s.ch.ExchangeDeclare("kinds", topology.Headers, true, false, false, false,
		amqp091.Table{topology.ArgAlternateExchange: "rest"}))
	for _, name := range []string{"dead", "others", "odd"} {
		_, err := s.ch.QueueDeclare(name, true, false, false, false, nil)
		must(err)
	}
	must(s.ch.QueueBind("billing", "", "kinds", false, amqp091.Table{"kind": "invoice"}))
	must(s.ch.QueueBind("odd", "", "kinds", false, amqp091.Table{"list": []any{int32(1)}}))
	must(s.ch.QueueBind("others", "", "rest", false, nil))
	origin := func(key string, cc ...any) amqp091.Table {
		return amqp091.Table{
			"retry-queue": "billing", "retry-attempts": int64(2),
			"retry-exchange": "events", "retry-routing-key": key, "retry-cc": cc,
		}
	}
	for kind, headers := range map[string]amqp091.Table{
		"invoice": origin("order.a"), "note": origin("nope", "order.b"), "list": origin("nope"),
	} {
		headers["kind"] = kind
		if kind == "list" {
			headers["list"] = []any{int32(1)}
		}
		brokertest.PublishConfirmed(t, s.ch, "", "dead", amqp091.Publishing{MessageId: kind, Headers: headers})
	}
	//nolint:paralleltest // the queue is looked at by one proposal at a time
	for name, tc := range map[string]struct {
		target  desk.Target
		reaches []string
		refused string
		unsure  int
	}{
		"by their headers": {
			target: desk.Target{Exchange: "kinds", Key: "k"}, reaches: []string{"billing 1", "others 1"}, unsure: 2,
		},
		"to where they were published, with CC": {
			target: desk.Target{Original: true}, reaches: []string{"audit 1", "audit 1", "billing 1", "billing 1"},
			refused: `1 message: exchange events with key "nope" leads to no queue, as exchange events has no binding`,
		},
		"to no exchange": {
			target: desk.Target{Exchange: "gone", Key: "k"}, refused: `leads to no queue, as exchange gone does not exist`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "dead", Target: tc.target})
			must(err)
			var got []string
			for _, r := range p.Reaches {
				got = append(got, fmt.Sprint(r.Queue, " ", r.Messages))
			}
			if d := cmp.Diff(tc.reaches, got); d != "" {
				t.Errorf("reaches (-want +got):\n%s\n%v", d, p.Refusals)
			}
			if text := strings.Join(p.Refusals, "\n"); !strings.Contains(text, tc.refused) || tc.refused == "" && text != "" {
				t.Errorf("refusals %q, want %q", text, tc.refused)
			}
			unsure := slices.DeleteFunc(p.Notes, func(s string) bool { return !strings.Contains(s, "is not certain") })
			if len(unsure) != tc.unsure {
				t.Errorf("notes %q, want %d", p.Notes, tc.unsure)
			}
		})
	}
}

// A message whose queue is gone is refused with what its command can do: restore has no --to.
func TestProposeNamesWhatRestoreCanDo(t *testing.T) {
	t.Parallel()
	s := newShop(t, topology.Quorum)
	s.declare(t, "shop.parked", amqp091.Table{"x-queue-type": "quorum", topology.ArgManagedBy: topology.DeskMark("shop")})
	brokertest.PublishConfirmed(t, s.ch, "", "shop.parked",
		amqp091.Publishing{Headers: amqp091.Table{"desk-parked-from": "old.dlq"}})
	s.awaitReady(t, "shop.parked", 1)
	p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Restore, Queue: "shop.parked"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "the queue old.dlq does not exist; run dlxctl apply, or replay them with --to"
	if !slices.Contains(p.Refusals, want) {
		t.Errorf("refusals %q, want %q", p.Refusals, want)
	}
}

// Messages of a queue that a migration has replaced are refused with its successor as the target.
func TestProposeNamesTheSuccessor(t *testing.T) {
	t.Parallel()
	s := newShop(t, topology.Quorum)
	s.desk.Topology.WorkQueues = slices.Clone(s.desk.Topology.WorkQueues)
	for i, w := range s.desk.Topology.WorkQueues {
		if w.Name == "billing" {
			s.desk.Topology.WorkQueues[i].Replaces = "invoices"
		}
	}
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", deadLetter("invoices", "order", "old", 1))
	s.awaitReady(t, "billing.dead", 1)
	propose := func(to desk.Target) desk.Proposal {
		t.Helper()
		p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "billing.dead", Target: to})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const want = "the queue invoices does not exist: billing replaces it; pass --to queue:billing"
	if p := propose(desk.Target{}); !slices.Contains(p.Refusals, want) {
		t.Errorf("refusals %q, want %q", p.Refusals, want)
	}
	if p := propose(desk.Target{Queue: "billing"}); len(p.Refusals) > 0 || p.Reaches[0].Queue != "billing" {
		t.Errorf("%+v", p)
	}
}

// A message that does not tell in which queue it failed is refused, with a target to paste: the
// only work queue whose dead letters the queue keeps.
func TestProposeNamesATargetToPaste(t *testing.T) {
	t.Parallel()
	s := newShop(t, topology.Quorum)
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", amqp091.Publishing{MessageId: "bare"})
	p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "billing.dead"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "; name a target with --to, for example --to queue:billing"
	if text := strings.Join(p.Refusals, "\n"); !strings.HasSuffix(text, want) {
		t.Errorf("refusals %q, want %q at the end", text, want)
	}
}

// A framework that names an exchange and a key names a queue, if the bindings lead to one alone.
// Otherwise the origin stays in doubt.
func TestProposeFollowsTheExchangeOfAFramework(t *testing.T) {
	t.Parallel()
	s := newShop(t, topology.Classic)
	s.desk.Reader.Known.Route = s.desk.Route
	declare := func(name, kind string) {
		t.Helper()
		brokertest.DeclareExchange(t, s.ch, name, kind, nil)
	}
	declare("one", topology.Topic)
	declare("many", topology.Fanout)
	declare("kinds", topology.Headers)
	for _, b := range [][2]string{
		{"one", "billing"}, {"many", "billing"}, {"many", "billing.dead"}, {"kinds", "billing"},
	} {
		brokertest.Bind(t, s.ch, b[1], "order.#", b[0], nil)
	}
	brokertest.Declare(t, s.ch, "spring.dlq", nil)
	for exchange, want := range map[string]string{
		"one":   "1 message would go to billing",
		"many":  `which lead to 2 queues: "billing", "billing.dead"; name a target with --to`,
		"kinds": "and no queue; name a target with --to",
		"none":  "and no queue; name a target with --to",
	} {
		brokertest.PublishConfirmed(t, s.ch, "", "spring.dlq", amqp091.Publishing{Headers: amqp091.Table{
			"x-exception-message": "no such customer", "x-original-exchange": exchange, "x-original-routingKey": "order.a",
		}})
		p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "spring.dlq"})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := desk.WriteProposal(&b, p, ""); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("a message of the exchange %s: want %q, but (%v)\n%s", exchange, want, err, b.String())
		}
		if _, err := s.ch.QueuePurge("spring.dlq", false); err != nil { // the test has seen it
			t.Fatal(err)
		}
	}
}

// The binding changes that leads a message of a framework to its work queue, while its run waits to
// be resumed. The run sends nothing to a queue that no person has confirmed.
func TestAResumeSendsToNoOtherQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, topology.Quorum)
	s.declare(t, "spring.dlq", nil)
	brokertest.PublishConfirmed(t, s.ch, "", "spring.dlq", amqp091.Publishing{Headers: amqp091.Table{
		"x-exception-message": "no such customer", "x-original-exchange": "amq.topic", "x-original-routingKey": "order.a",
	}})
	s.awaitReady(t, "spring.dlq", 1)
	bind := func(queue string) {
		t.Helper()
		brokertest.Bind(t, s.ch, queue, "order.*", "amq.topic", nil)
	}
	bind("billing")
	d := s.deskOn(t, s.target).Holding()
	d.Reader.Known.Route = d.Route
	run := takenBy(t, d, desk.Request{Action: desk.Replay, Queue: "spring.dlq"}, 1)
	brokertest.Unbind(t, s.ch, "billing", "order.*", "amq.topic", nil)
	bind("audit")
	r, err := d.Resume(t.Context(), run, nil, nil)
	const want = "a message leads to audit now, and the run was begun to send to billing; give the messages back"
	if err != nil || !strings.HasPrefix(r.Stopped, want) || r.Left != 1 {
		t.Fatalf("%d messages in audit: %+v, %v", readyIn(t, s.ch, "audit"), r, err)
	}
	if r, err := d.Return(t.Context(), run, nil); err != nil || r.Moved != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	s.awaitReady(t, "spring.dlq", 1)
}

// A queue is bound to the exchange to which a run publishes, while the run waits to be resumed. The
// run sends nothing there.
func TestAResumeSendsToNoQueueThatWasBoundLater(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, target := range map[string]desk.Target{
		"original": {Original: true}, "exchange": {Exchange: "events", Key: "order.chosen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, topology.Quorum)
			s.fill(t, 1)
			q := request(t, desk.Replay)
			q.Target = target
			run := takenBy(t, s.deskOn(t, s.target).Holding(), q, 1)
			s.declare(t, "late", nil)
			brokertest.Bind(t, s.ch, "late", "#", "events", nil)
			r, err := s.desk.Resume(t.Context(), run, nil, nil)
			const want = "a message leads to late now, and the run was begun to send to audit and billing; give the messages back"
			if err != nil || !strings.HasPrefix(r.Stopped, want) || r.Left != 1 || readyIn(t, s.ch, "late") > 0 {
				t.Fatalf("%d messages in late: %+v, %v", readyIn(t, s.ch, "late"), r, err)
			}
			brokertest.Unbind(t, s.ch, "late", "#", "events", nil)
			if r, err := s.desk.Resume(t.Context(), run, nil, nil); err != nil || r.Moved != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
