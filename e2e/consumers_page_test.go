package e2e_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// habit is what a consumer does with the two messages of its prefetch, and how many messages the
// work queue and the failed queue have then.
type habit struct {
	automatic    bool
	does         func(conn *amqp091.Connection, first, second amqp091.Delivery) error
	work, failed int
	// endless says that no delivery limit ends it.
	endless bool
}

// habits returns the first cells of the table in docs/consumers.md, with what a consumer does.
func habits(target brokertest.Target) map[string]habit {
	each := func(answer func(amqp091.Delivery) error) func(*amqp091.Connection, amqp091.Delivery, amqp091.Delivery) error {
		return func(_ *amqp091.Connection, first, second amqp091.Delivery) error {
			if err := answer(first); err != nil {
				return err
			}
			return answer(second)
		}
	}
	says := func(conn *amqp091.Connection, first, second amqp091.Delivery) error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		for _, d := range []amqp091.Delivery{first, second} {
			copied := amqp091.Publishing{MessageId: d.MessageId, Headers: amqp091.Table{"retry-error": "no answer"}}
			if err := brokertest.Publish(context.Background(), ch, "shop.failed", "@billing", copied); err != nil {
				return err
			}
			if err := d.Ack(false); err != nil {
				return err
			}
		}
		return nil
	}
	closes := func(conn *amqp091.Connection, _, _ amqp091.Delivery) error { return conn.Close() }
	return map[string]habit{
		"acknowledges":                      {does: each(func(d amqp091.Delivery) error { return d.Ack(false) })},
		"[says why](#saying-why) it failed": {does: says, failed: 2},
		"rejects without requeue": {
			does: each(func(d amqp091.Delivery) error { return d.Reject(false) }), failed: 2,
		},
		"requeues by `basic.reject`": {
			does: each(func(d amqp091.Delivery) error { return d.Reject(true) }), work: 2,
		},
		"requeues by `basic.nack`": {
			does: each(func(d amqp091.Delivery) error { return d.Nack(false, true) }), work: 2, endless: target.AtLeast("4.3"),
		},
		"dies, or loses its connection": {does: closes, work: 2},
		"acknowledges automatically":    {automatic: true, does: closes},
	}
}

// The table of docs/consumers.md says what RabbitMQ does.
func TestTheTableAboutConsumers(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	succeeds(t, target, "apply", "--yes", "-f", writeTopology(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1h]}}
queues: [{name: billing, deliveryLimit: 2}]
`))
	page := readFile(t, "../docs/consumers.md")
	known := habits(target)
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z[][^|]*) \| [^|]* \|$`).FindAllStringSubmatch(page, -1) {
		h, ok := known[row[1]]
		switch {
		case row[1] == "the consumer", row[1] == "header": // the heads
		case row[1] == "does not answer": // it would take half an hour
		case !ok:
			t.Errorf("no test does what the row %q says", row[1])
		default:
			delete(known, row[1])
			t.Logf("the consumer %s", row[1])
			h.check(t, target)
		}
	}
	for name := range known {
		t.Errorf("the page has no row %q", name)
	}
}

// check lets a consumer take two messages, and checks what the queues have then.
func (h habit) check(t *testing.T, target brokertest.Target) {
	t.Helper()
	admin := target.Confirming(t)
	for _, id := range []string{"m-1", "m-2"} {
		brokertest.PublishConfirmed(t, admin, "", "billing", amqp091.Publishing{MessageId: id})
	}
	h.once(t, target)
	awaitDepth(t, target, "billing", h.work)
	if h.work > 0 {
		// A message that comes back each time is a failed attempt once the limit is passed, and so is
		// the one next to it.
		h.once(t, target)
		awaitDepth(t, target, "billing", h.work)
		h.once(t, target)
		if h.endless {
			for range 3 {
				awaitDepth(t, target, "billing", h.work)
				h.once(t, target)
			}
			awaitDepth(t, target, "billing", h.work)
			if _, err := admin.QueuePurge("billing", false); err != nil { // for the next row
				t.Fatal(err)
			}
		} else {
			h.failed = 2
		}
	}
	awaitDepth(t, target, "shop.standard.failed", h.failed)
	awaitDepth(t, target, "billing", 0)
	if _, err := admin.QueuePurge("shop.standard.failed", false); err != nil { // for the next row
		t.Fatal(err)
	}
}

// once lets a consumer with a prefetch of 2 take two messages.
func (h habit) once(t *testing.T, target brokertest.Target) {
	t.Helper()
	conn, err := amqp091.Dial(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Qos(2, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("billing", "consumer", h.automatic, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := taken(t, deliveries), taken(t, deliveries)
	if err := ch.Cancel("consumer", false); err != nil { // so that it does not get them again
		t.Fatal(err)
	}
	if err := h.does(conn, first, second); err != nil {
		t.Fatal(err)
	}
}

// taken returns the next delivery.
func taken(t *testing.T, deliveries <-chan amqp091.Delivery) amqp091.Delivery {
	t.Helper()
	select {
	case d := <-deliveries:
		return d
	case <-time.After(30 * time.Second):
		t.Fatal("no message came to the consumer")
		return amqp091.Delivery{}
	}
}
