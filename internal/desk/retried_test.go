package desk_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// easyNetQ returns a message that EasyNetQ has given up, in its envelope.
func easyNetQ(message string) amqp091.Publishing {
	return amqp091.Publishing{
		Type: "EasyNetQ.SystemMessages.Error, EasyNetQ", DeliveryMode: amqp091.Persistent,
		Body: fmt.Appendf(nil, `{"RoutingKey":"order.chosen","Exchange":"events","Queue":"billing","Exception":"boom",`+
			`"Message":%q,"DateTime":"2026-11-22T09:00:00Z","BasicProperties":{"MessageId":"net","Type":"Shop.Order",`+
			`"DeliveryMode":2,"Priority":4,"Headers":{"tenant":{"Type":14,"Value":"YWNtZQ=="}}}}`, message),
	}
}

// Only a new try changes a message: it loses the headers in which a framework describes the last
// failure, and EasyNetQ's envelope. A return, a restore and an import bring it back as it was.
func TestOnlyANewTryLosesTheFailure(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	mass := deadLetter("billing", "order.chosen", "mass", 0)
	maps.Copy(mass.Headers, amqp091.Table{
		"MT-Reason": "fault", "MT-Fault-Message": "boom", "MT-Redelivery-Count": int32(3), "MT-Fault-Address": "queue:faults",
	})
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", mass, easyNetQ(`{"n":1}`))
	s.awaitReady(t, "billing.dead", 2)
	want := s.peeked(t, "billing.dead")
	for _, name := range []string{"park and restore", "return", "export and import"} {
		s.movedBy(t, name, 2)
		s.awaitReady(t, "billing.dead", 2)
		for i, d := range s.peeked(t, "billing.dead") {
			was, is := content(want[i]), content(d)
			if name == "export and import" { // CC would send it elsewhere
				was.Headers = deadletter.Unaddressed(was.Headers)
			}
			if diff := cmp.Diff(was, is); diff != "" {
				t.Errorf("%s (-was +is):\n%s", name, diff)
			}
		}
	}
	p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "billing.dead"})
	if notes := strings.Join(p.Notes, "\n"); err != nil || !strings.Contains(notes,
		"1 message is taken out of the envelope of EasyNetQ, with its own body, properties and headers") ||
		!strings.Contains(notes, "1 message loses the headers of the failure: MT-Fault-Message, MT-Reason, MT-Redelivery-Count (") {
		t.Errorf("notes %s, %v", notes, err)
	}
	s.movedBy(t, "replay", 2)
	s.awaitReady(t, "billing", 2)
	got := s.drained(t, "billing")
	h := ownHeaders(got[0].Headers)
	if !slices.Equal(slices.Sorted(maps.Keys(h)), []string{"MT-Fault-Address", "desk-cc", "mine"}) {
		t.Errorf("MassTransit: headers %v", h)
	}
	checkOrder(t, got[1], `{"n":1}`, 1)

	// An edit changes the message in the envelope, and parks the error as it was.
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", easyNetQ(`{"n":1}`))
	s.awaitReady(t, "billing.dead", 1)
	s.execute(t, desk.Request{
		Action: desk.Edit, Queue: "billing.dead", Edited: &deadletter.Edited{Body: []byte(`{"n":2}`), MessageID: "net"},
	})
	s.awaitReady(t, "billing", 1)
	checkOrder(t, s.drained(t, "billing")[0], `{"n":2}`, 1)
	s.execute(t, desk.Request{Action: desk.Restore, Queue: "shop.parked"})
	s.awaitReady(t, "billing.dead", 1)
	if diff := cmp.Diff(content(want[1]), content(s.drained(t, "billing.dead")[0])); diff != "" {
		t.Errorf("the original (-was +is):\n%s", diff)
	}

	// A body that EasyNetQ has damaged is not sent.
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", easyNetQ("\uFFFD"))
	s.awaitReady(t, "billing.dead", 1)
	p, err = s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "billing.dead"})
	if err != nil || len(p.Refusals) != 1 || !strings.Contains(p.Refusals[0], "Base64ErrorMessageSerializer") {
		t.Errorf("refusals %v, %v", p.Refusals, err)
	}
}

// checkOrder checks a message that EasyNetQ had put into an envelope.
func checkOrder(t *testing.T, d amqp091.Delivery, body string, replays int64) {
	t.Helper()
	if string(d.Body) != body || d.MessageId != "net" || d.Type != "Shop.Order" || d.Priority != 4 ||
		d.RoutingKey != "order.chosen" || d.Headers["tenant"] != "acme" || d.Headers["desk-replays"] != replays {
		t.Errorf("%s, id %s, type %s, priority %d, key %s, headers %v",
			d.Body, d.MessageId, d.Type, d.Priority, d.RoutingKey, d.Headers)
	}
}

// A message whose headers left no room for the error in the unroutable queue loses the other
// headers of the processor too, also after it was parked.
func TestAReplayOfAMessageWithoutRoomForTheError(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	brokertest.PublishConfirmed(t, s.ch, "", "shop.unroutable", amqp091.Publishing{
		MessageId: "large", Headers: amqp091.Table{
			"retry-reason": "rejected", "retry-last-failed-at": "2026-11-21T08:30:00.000Z", "mine": "stays",
		},
	})
	s.awaitReady(t, "shop.unroutable", 1)
	s.execute(t, desk.Request{Action: desk.Park, Queue: "shop.unroutable"})
	s.awaitReady(t, "shop.parked", 1)
	s.execute(t, desk.Request{Action: desk.Replay, Queue: "shop.parked", Target: desk.Target{Queue: "billing"}})
	s.awaitReady(t, "billing", 1)
	got := s.drained(t, "billing")[0]
	for name := range got.Headers {
		if strings.HasPrefix(name, "retry-") {
			t.Errorf("the header %s stays", name)
		}
	}
	if got.Headers["mine"] != "stays" {
		t.Errorf("headers %v", got.Headers)
	}
}
