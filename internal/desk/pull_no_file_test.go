package desk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// newUnfiledBilling returns a virtual host that dlxctl did not make, and a desk without a topology
// file: billing gets the orders of the exchange events, and dead-letters to billing.dead.
func newUnfiledBilling(t *testing.T, typ string) *shop {
	t.Helper()
	s := newShopOn(t, brokertest.VHost(t), "version: 1\nname: desk\n")
	brokertest.DeclareExchange(t, s.ch, "events", "topic", nil)
	for queue, args := range map[string]amqp091.Table{
		"billing":      {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead"},
		"billing.dead": {},
	} {
		args["x-queue-type"] = typ
		s.declare(t, queue, args)
	}
	brokertest.Bind(t, s.ch, "billing", "order.*", "events", nil)
	s.file, s.desk = "", unfiled(t, s.target)
	return s
}

// What was pulled without a topology file goes back to its queue as its publisher sent it, also one
// that had come back from the dead-letter queue by other means.
func TestAPulledMessageGoesBackWithoutAFile(t *testing.T) {
	t.Parallel()
	s := newUnfiledBilling(t, "quorum")
	died := amqp091.Table{
		"count": int32(5), "tenant": "a",
		"x-death": []any{amqp091.Table{
			"queue": "billing", "reason": "rejected", "exchange": "events", "routing-keys": []any{"order.first"},
			"count": int64(1),
		}},
	}
	brokertest.PublishConfirmed(t, s.ch, "events", "order.placed",
		amqp091.Publishing{MessageId: "new", Headers: amqp091.Table{"count": int32(5), "tenant": "a"}})
	brokertest.PublishConfirmed(t, s.ch, "", "billing", amqp091.Publishing{MessageId: "back", Headers: died})
	s.awaitReady(t, "billing", 2)
	if r := s.execute(t, desk.Request{Action: desk.Pull, Queue: "billing", Reason: "test"}); r.Moved != 2 || !r.Ended {
		t.Fatalf("%+v", r)
	}
	var told []string
	for _, d := range s.peeked(t, "billing.dead") {
		facts := deadletter.Read(d, "billing.dead", s.desk.Reader.Known)
		told = append(told, fmt.Sprintf("%s: %s, %s, %d attempts in %s, from %s %s", d.MessageId, facts.Cause, facts.Error,
			facts.Attempts, facts.WorkQueue, facts.Exchange, facts.Key))
	}
	if diff := cmp.Diff([]string{
		"new: pulled, pulled by tester@here; reason: test, 0 attempts in billing, from events order.placed",
		"back: pulled, pulled by tester@here; reason: test, 0 attempts in billing, from events order.first",
	}, told); diff != "" {
		t.Errorf("the dead letters (-want +got):\n%s", diff)
	}
	s.desk = unfiled(t, s.target)
	if r := s.execute(t, desk.Request{Action: desk.Replay, Queue: "billing.dead"}); r.Moved != 2 {
		t.Fatalf("%+v", r)
	}
	for i, d := range s.drained(t, "billing") {
		for name := range d.Headers {
			if strings.HasPrefix(name, "desk-") || strings.HasPrefix(name, "x-") {
				delete(d.Headers, name)
			}
		}
		if diff := cmp.Diff(amqp091.Table{"count": int32(5), "tenant": "a"}, d.Headers); diff != "" {
			t.Errorf("message %d (-want +got):\n%s", i, diff)
		}
	}
	s.tidyDesk(t)
}

// Without a topology file, a pull is refused where the broker does not tell one dead-letter queue.
func TestPullRefusalsWithoutAFile(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newUnfiledBilling(t, "quorum")
	for _, queue := range []string{"alone", "twice", "twice.dlq", "twice_error"} {
		brokertest.Declare(t, s.ch, queue, nil)
	}
	d := unfiled(t, s.target)
	for queue, want := range map[string]string{
		"billing.dead": "billing.dead is a dead-letter queue, and pull takes messages from work queues only; replay, park or discard its messages",
		"alone":        "no dead-letter queue of alone was found on the broker, and pull moves messages there; set a dead-letter exchange for alone by a policy, or name the topology file with -f",
		"twice":        "the dead letters of twice go to twice.dlq and twice_error, and pull moves messages to one queue; name the topology file with -f",
	} {
		_, err := d.Propose(t.Context(), desk.Request{Action: desk.Pull, Queue: queue})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", queue, err)
		}
	}
}
