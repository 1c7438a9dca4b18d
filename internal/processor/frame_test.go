package processor_test

import (
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// Headers so large that the processor's own do not fit in the frame with them: the message
// goes to the unroutable queue with the reason, and holds up no other message.
func TestHeadersNearTheFrameMax(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	for _, size := range []int{130_000, 130_900} {
		big := strings.Repeat("x", size)
		s.publish(t, "shop.standard.failed", "@billing",
			amqp091.Publishing{MessageId: "big", Headers: amqp091.Table{"big": big}, Body: []byte("b")})
		s.publish(t, "shop.standard.failed", "@billing", amqp091.Publishing{MessageId: "small"})
		if m := s.bury(t, "billing"); size > 130_500 && m.MessageId != "small" {
			t.Errorf("billing got %q", m.MessageId)
		} else if m.MessageId == "big" {
			s.bury(t, "billing")
			continue
		}
		m := s.bury(t, "shop.unroutable")
		if m.MessageId != "big" || m.Headers["big"] != big || string(m.Body) != "b" {
			t.Errorf("shop.unroutable holds %q", m.MessageId)
		}
	}
	s.allEmpty(t)
}

// Headers that fill the frame, CC among them, which gets a longer name when its
// message is parked.
func TestAnAddressThatFillsTheFrame(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	// Larger than what the broker writes about the delivery to this test.
	full := amqp091.Publishing{
		MessageId: "full", DeliveryMode: amqp091.Persistent, Body: []byte("b"),
		Headers: amqp091.Table{"CC": []any{strings.Repeat("c", 100)}, "big": ""},
	}
	big := strings.Repeat("x", 131_072-8-relay.HeaderSize(full)) // what a frame of RabbitMQ holds
	full.Headers["big"] = big
	s.publish(t, "shop.standard.failed", "@billing", full)
	s.publish(t, "shop.standard.failed", "@billing", amqp091.Publishing{MessageId: "small"})
	if m := s.bury(t, "billing"); m.MessageId != "small" {
		t.Errorf("billing got %q", m.MessageId)
	}
	m := s.bury(t, "shop.unroutable")
	if m.MessageId != "full" || m.Headers["big"] != big || string(m.Body) != "b" {
		t.Errorf("shop.unroutable holds %q", m.MessageId)
	}
	s.allEmpty(t)
}

// A header that is too long to be the routing key for which it stands ends no
// connection: the message goes its way, and so does the one behind it.
func TestAHeaderTooLongForAKey(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	long := strings.Repeat("k", 256)
	for name, headers := range map[string]amqp091.Table{
		"in retry-routing-key": {
			"x-death": []any{
				brokersDeath("billing", "order.placed"),
				brokersDeath("shop.standard.retry.1s", "order.placed"),
			},
			s.topology.CountHeader: int64(1), "retry-queue": "billing", "retry-routing-key": long,
		},
		"in x-death": {"x-death": []any{brokersDeath("billing", long)}},
	} {
		s.publish(t, "shop.standard.failed", "@billing", amqp091.Publishing{MessageId: name, Headers: headers})
		s.publish(t, "shop.standard.failed", "@billing", amqp091.Publishing{MessageId: "behind"})
		got := map[string]bool{}
		for range 2 {
			got[s.bury(t, "billing").MessageId] = true
		}
		if !got[name] || !got["behind"] {
			t.Errorf("%s: billing got %v", name, got)
		}
	}
	s.allEmpty(t)
}

// brokersDeath is an entry of x-death.
func brokersDeath(queue, key string) amqp091.Table {
	return amqp091.Table{
		"queue": queue, "reason": "rejected", "exchange": "events", "routing-keys": []any{key},
		"count": int64(1),
	}
}

// The same by the whole way: the broker adds x-death to headers that just fitted.
func TestHeadersThatTheBrokerMakesTooLarge(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	big := strings.Repeat("x", 130_900)
	s.publish(t, "events", "order.placed",
		amqp091.Publishing{MessageId: "big", Headers: amqp091.Table{"big": big}, Body: []byte("b")})
	reject(t, s.take(t, "billing"))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "small"})
	reject(t, s.take(t, "billing"))
	if m := s.bury(t, "billing"); m.MessageId != "small" {
		t.Errorf("billing got %q", m.MessageId)
	}
	m := s.bury(t, "shop.unroutable")
	if m.MessageId != "big" || m.Headers["big"] != big || string(m.Body) != "b" {
		t.Errorf("shop.unroutable holds %q", m.MessageId)
	}
	s.allEmpty(t)
}

// On the return path the broker writes the names of queues, exchanges and keys several
// times. However long they are, a message with room for it comes back, and another
// goes to the unroutable queue: no message ends the connection of its consumer.
func TestHeadersThatGrowOnTheReturnPath(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	queue, key := strings.Repeat("q", 250), strings.Repeat("k", 255)
	s := newStage(t, `
version: 1
name: shop
defaults: {backoff: slow}
backoff:
  slow: {tiers: [0s]}
exchanges: [{name: events}]
queues:
  - {name: `+queue+`, dead: shared, bindings: [{exchange: events, key: "#"}]}
`)
	run(t, s.processor(t))
	parked := 0
	for size := 127_500; size < 130_800; size += 50 {
		s.publish(t, "events", key, amqp091.Publishing{Headers: amqp091.Table{"big": strings.Repeat("x", size)}})
		reject(t, s.take(t, queue))
		brokertest.Eventually(t, "the message to come back or to be parked", func() bool {
			_, back, err := s.eyes.Get(queue, true)
			if err != nil {
				t.Fatalf("headers of %d bytes, on the return path: %v", size, err)
			}
			_, out, err := s.eyes.Get("shop.unroutable", true)
			if err != nil {
				t.Fatal(err)
			}
			if out {
				parked++
			}
			return back || out
		})
	}
	if parked == 0 {
		t.Error("none was parked")
	}
}
