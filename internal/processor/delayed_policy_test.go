package processor_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// underPolicy returns a stage with a delay, over whose queues another team has set a policy. No
// processor runs.
func underPolicy(t *testing.T, pattern string, definition map[string]any) *stage {
	t.Helper()
	s := newStage(t, delayFileOf("24h"))
	s.policy(t, "foreign", pattern, definition)
	return s
}

// policy sets a policy, and waits until it is in effect on each queue whose name begins so.
func (s *stage) policy(t *testing.T, name, queue string, definition map[string]any) {
	t.Helper()
	s.target.Call(t, "PUT", "policies/"+url.PathEscape(s.target.VHost)+"/"+name, map[string]any{
		"pattern": "^" + queue, "apply-to": "queues", "definition": definition,
	})
	for _, q := range s.topology.Queues {
		if strings.HasPrefix(q.Name, queue) {
			brokertest.Eventually(t, "the policy on "+q.Name, func() bool { return s.target.Queue(t, q.Name)["policy"] == name })
		}
	}
}

// later publishes messages that are due after a second, with the key a.
func (s *stage) later(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.publish(t, "shop.later", "a", waiting(id))
	}
}

func waiting(id string) amqp091.Publishing {
	return amqp091.Publishing{
		MessageId: id, DeliveryMode: amqp091.Persistent,
		Headers: amqp091.Table{"x-delay": int32(1000), dueHeader: time.Now().Add(time.Second).UnixMilli()},
	}
}

// A policy of another team that takes messages out of the intake queue loses none and makes none
// early: they come to the due queue, and wait from there on. So does one that ends the waits in the
// levels too soon.
func TestPoliciesThatDelayNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queue      string
		definition map[string]any
		returns    int // how often each message of the intake queue is returned to it
	}{
		"a TTL on the intake queue": {queue: intake, definition: map[string]any{"message-ttl": 100}},
		"a TTL that moves elsewhere": {
			queue: intake, definition: map[string]any{"message-ttl": 0, "dead-letter-exchange": "amq.fanout"},
		},
		"a delivery limit on the intake queue": {queue: intake, definition: map[string]any{"delivery-limit": 1}, returns: 2},
		"a limit on the levels":                {queue: "shop.delay.level.", definition: map[string]any{"max-length": 2}},
		"a TTL on the levels":                  {queue: "shop.delay.level.", definition: map[string]any{"message-ttl": 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := underPolicy(t, tc.queue, tc.definition)
			const n = 40
			s.publishDelayed(t, n, 5*time.Second)
			for range tc.returns {
				var taken []amqp091.Delivery
				for range n {
					taken = append(taken, s.take(t, intake))
				}
				for _, m := range taken {
					if err := m.Reject(true); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.queue == intake {
				s.untilNothingIn(t, intake)
			}
			run(t, s.processor(t))
			for id, copies := range s.arrivals(t, n) {
				if copies != 1 {
					t.Errorf("message %s came %d times", id, copies)
				}
			}
			s.allEmpty(t)
		})
	}
}

const (
	intake = "shop.delay.in.shop.later"
	due    = "shop.delay.due.shop.later"
)

// What policy.Table says of other keys on these queues: messages get another key, are refused, or
// are lost.
func TestPoliciesThatHarmADelay(t *testing.T) {
	t.Parallel()
	t.Run("a key on the intake queue", func(t *testing.T) {
		t.Parallel()
		s := underPolicy(t, intake, map[string]any{"message-ttl": 0, "dead-letter-routing-key": "b"})
		s.later(t, "m")
		s.untilNothingIn(t, intake)
		run(t, s.processor(t))
		if m := s.bury(t, "work"); m.RoutingKey != "b" {
			t.Errorf("it has the key %q", m.RoutingKey)
		}
	})
	t.Run("a key on the levels", func(t *testing.T) {
		t.Parallel()
		s := underPolicy(t, "shop.delay.level.", map[string]any{"dead-letter-routing-key": "b"})
		run(t, s.processor(t))
		s.later(t, "m")
		if m := s.bury(t, "work"); m.RoutingKey != "b" {
			t.Errorf("it has the key %q", m.RoutingKey)
		}
	})
	t.Run("a limit on the intake queue", func(t *testing.T) {
		t.Parallel()
		s := underPolicy(t, intake, map[string]any{"max-length": 2})
		brokertest.Eventually(t, "the intake queue to refuse a message", func() bool {
			err := brokertest.Publish(t.Context(), s.ch, "shop.later", "a", waiting("m"))
			if err != nil && !errors.Is(err, brokertest.ErrRefused) {
				t.Fatal(err)
			}
			return err != nil
		})
	})
	for name, definition := range map[string]map[string]any{
		"a TTL on the due queue": {"message-ttl": 0}, "a limit of the due queue": {"max-length": 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition["dead-letter-exchange"], definition["dead-letter-routing-key"] = "", "shop.unroutable"
			s := underPolicy(t, due, definition)
			s.policy(t, "empty", intake, map[string]any{"message-ttl": 0})
			s.later(t, "m")
			if m := s.bury(t, "shop.unroutable"); m.MessageId != "m" { // without these keys it is gone
				t.Errorf("shop.unroutable has %s", m.MessageId)
			}
		})
	}
	// What expires while the due queue cannot take it waits, unless the policy turns off
	// at-least-once dead-lettering.
	for name, tc := range map[string]struct {
		overflow string
		held     float64
	}{"the overflow of the intake queue": {"drop-head", 0}, "its own overflow": {"reject-publish", 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := underPolicy(t, intake, map[string]any{"overflow": tc.overflow})
			if err := s.eyes.ExchangeDelete(due, false, false); err != nil {
				t.Fatal(err)
			}
			m := waiting("m")
			m.Expiration = "0"
			s.publish(t, "shop.later", "a", m)
			brokertest.Eventually(t, "it to expire", func() bool { return brokertest.Ready(t, s.eyes, intake) == 0 })
			s.later(t, "1", "2") // counts that show them are not from before
			brokertest.Eventually(t, "the intake queue to show what it holds", func() bool {
				q := s.target.Queue(t, intake)
				return q["messages_ready"] == 2.0 && q["messages_dlx"] == tc.held
			})
		})
	}
}
