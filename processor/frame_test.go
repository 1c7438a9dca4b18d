package processor_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/relay"
)

// Headers so large that our own do not fit the frame beside them: the message is
// parked with the reason, and holds up nobody.
func TestHeadersNearTheFrameMax(t *testing.T) {
	t.Parallel()
	s := newStage(t, ladder("quorum"))
	run(t, s.processor(t))
	for _, size := range []int{130_000, 130_900} {
		big := strings.Repeat("x", size)
		s.publish(t, "shop.standard.failed", "@billing", amqp.Publishing{MessageId: "big", Headers: amqp.Table{"big": big}, Body: []byte("b")})
		s.publish(t, "shop.standard.failed", "@billing", amqp.Publishing{MessageId: "small"})
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
	s := newStage(t, ladder("quorum"))
	run(t, s.processor(t))
	// Larger than what the broker writes about the delivery to this test.
	full := amqp.Publishing{
		MessageId: "full", DeliveryMode: amqp.Persistent, Body: []byte("b"),
		Headers: amqp.Table{"CC": []any{strings.Repeat("c", 100)}, "big": ""},
	}
	big := strings.Repeat("x", 131_072-8-relay.HeaderSize(full)) // what a frame of RabbitMQ holds
	full.Headers["big"] = big
	s.publish(t, "shop.standard.failed", "@billing", full)
	s.publish(t, "shop.standard.failed", "@billing", amqp.Publishing{MessageId: "small"})
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
	s := newStage(t, ladder("quorum"))
	run(t, s.processor(t))
	long := strings.Repeat("k", 256)
	for name, headers := range map[string]amqp.Table{
		"in retry-routing-key": {
			"x-death":              []any{brokersDeath("billing", "order.placed"), brokersDeath("shop.standard.retry.1s", "order.placed")},
			s.topology.CountHeader: int64(1), "retry-queue": "billing", "retry-routing-key": long,
		},
		"in x-death": {"x-death": []any{brokersDeath("billing", long)}},
	} {
		s.publish(t, "shop.standard.failed", "@billing", amqp.Publishing{MessageId: name, Headers: headers})
		s.publish(t, "shop.standard.failed", "@billing", amqp.Publishing{MessageId: "behind"})
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
func brokersDeath(queue, key string) amqp.Table {
	return amqp.Table{"queue": queue, "reason": "rejected", "exchange": "events", "routing-keys": []any{key}, "count": int64(1)}
}

// The same by the whole way: the broker adds x-death to headers that just fitted.
func TestHeadersThatTheBrokerMakesTooLarge(t *testing.T) {
	t.Parallel()
	s := newStage(t, ladder("quorum"))
	run(t, s.processor(t))
	big := strings.Repeat("x", 130_900)
	s.publish(t, "events", "order.placed", amqp.Publishing{MessageId: "big", Headers: amqp.Table{"big": big}, Body: []byte("b")})
	reject(t, s.take(t, "billing"))
	s.publish(t, "events", "order.placed", amqp.Publishing{MessageId: "small"})
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

// On the way back the broker writes the names of queues, exchanges and keys several
// times. However long they are, a message with room for it comes back, and another
// is parked: none ends the connection of whoever consumes.
func TestHeadersThatGrowOnTheWayBack(t *testing.T) {
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
		s.publish(t, "events", key, amqp.Publishing{Headers: amqp.Table{"big": strings.Repeat("x", size)}})
		reject(t, s.take(t, queue))
		eventually(t, "the message to come back or to be parked", func() bool {
			_, back, err := s.eyes.Get(queue, true)
			if err != nil {
				t.Fatalf("headers of %d bytes, on the way back: %v", size, err)
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
