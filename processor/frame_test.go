package processor_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
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
