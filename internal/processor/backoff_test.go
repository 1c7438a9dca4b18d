package processor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// backoffFile is a topology with one work queue and three waits, two of which share
// a queue.
func backoffFile(typ string) string {
	return fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s, backoff: standard}
backoff:
  standard: {tiers: [200ms, {delay: 500ms, attempts: 2}]}
exchanges:
  - {name: events, type: topic}
queues:
  - {name: billing, bindings: [{exchange: events, key: "order.*"}]}
  - {name: audit, dead: shared, bindings: [{exchange: events, key: "audit.*"}]}
`, typ)
}

// A poisoned message is delivered once and then after each wait, each time with
// the publisher's routing key, and ends in its dead-letter queue as it was, with
// its history.
func TestAPoisonedMessagePassesAllTiers(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, backoffFile(typ))
			run(t, s.processor(t))
			foreign := amqp091.Table{"tenant": "a", "n": int32(5), "deep": amqp091.Table{"list": []any{int64(1), "two", true}}}
			sent := amqp091.Publishing{
				MessageId: "m-1", CorrelationId: "c-1", ContentType: "application/json", Priority: 3, ReplyTo: "r", Type: "order",
				AppId:     "shop",
				Timestamp: time.Unix(1_700_000_000, 0), Headers: foreign, Body: []byte(`{"order": 1}`),
			}
			begin := time.Now()
			s.publish(t, "events", "order.placed", sent)

			var last time.Time
			for attempt, wait := range []time.Duration{
				0, 200 * time.Millisecond, 500 * time.Millisecond,
				500 * time.Millisecond,
			} {
				m := s.take(t, "billing")
				if waited := time.Since(last); waited < wait {
					t.Errorf("attempt %d came after %s, want %s at least", attempt+1, waited, wait)
				}
				if from := lastDeath(m); attempt > 0 && from != fmt.Sprintf("shop.standard.retry.%s", wait) {
					t.Errorf("attempt %d comes from the queue %q, after a wait of %s", attempt+1, from, wait)
				}
				if m.RoutingKey != "order.placed" {
					t.Errorf("attempt %d has the routing key %q", attempt+1, m.RoutingKey)
				}
				if count := m.Headers["count"]; attempt > 0 && count != int32(attempt) {
					t.Errorf("attempt %d has the count %v", attempt+1, count)
				}
				last = time.Now() // before the rejection: the wait begins later
				reject(t, m)
			}

			m := s.bury(t, "billing.dead")
			sameMessage(t, sent, m)
			first, err := time.Parse(time.RFC3339, fmt.Sprint(m.Headers["retry-first-failed-at"]))
			if err != nil || first.Before(begin.Truncate(time.Millisecond)) || first.After(last) {
				t.Errorf("retry-first-failed-at is %v (%v)", m.Headers["retry-first-failed-at"], err)
			}
			want := amqp091.Table{
				"tenant": "a", "n": int32(5), "deep": foreign["deep"],
				"count": int32(-1), "CC": []any{"@billing"},
				"retry-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
				"retry-reason": "rejected", "retry-attempts": int64(4),
				"retry-first-failed-at": m.Headers["retry-first-failed-at"],
				"retry-last-failed-at":  m.Headers["retry-last-failed-at"],
				"retry-history":         m.Headers["retry-history"],
			}
			if d := cmp.Diff(want, m.Headers); d != "" {
				t.Errorf("headers of the dead letter (-want +got):\n%s", d)
			}
			s.allEmpty(t)
		})
	}
}

// lastDeath returns the queue in which a message died last.
func lastDeath(m amqp091.Delivery) string {
	deaths, _ := m.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return ""
	}
	death, _ := deaths[0].(amqp091.Table)
	return fmt.Sprint(death["queue"])
}

// sameMessage compares body and properties.
func sameMessage(t *testing.T, sent amqp091.Publishing, got amqp091.Delivery) {
	t.Helper()
	sent.Headers, sent.DeliveryMode = nil, amqp091.Persistent
	back := amqp091.Publishing{
		ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode,
		Priority:      got.Priority,
		CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, Expiration: got.Expiration, MessageId: got.MessageId,
		Timestamp: got.Timestamp, Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
	}
	if d := cmp.Diff(sent, back); d != "" {
		t.Errorf("message (-sent +got):\n%s", d)
	}
}

// Each queue has its own dead letters, also where two share a backoff.
func TestEachDeadLetterFindsItsQueue(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "for billing"})
	s.publish(t, "events", "audit.login", amqp091.Publishing{MessageId: "for audit"})
	for range 4 {
		reject(t, s.take(t, "audit"))
		reject(t, s.take(t, "billing"))
	}
	if m := s.bury(t, "billing.dead"); m.MessageId != "for billing" {
		t.Errorf("billing.dead holds %q", m.MessageId)
	}
	if m := s.bury(t, "shop.dead"); m.MessageId != "for audit" {
		t.Errorf("shop.dead holds %q", m.MessageId)
	}
	s.allEmpty(t)
}

// A message that recovers is simply acknowledged; nothing of it stays.
func TestAMessageThatRecoversIsGone(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	reject(t, s.take(t, "billing"))
	s.bury(t, "billing") // acknowledged on its second attempt
	s.allEmpty(t)
}

// A backoff that shrank while a message was in it, and the processor still knows
// the old one: no binding fits its count any more, so it comes back, and the processor
// makes it a dead letter of its own queue.
func TestABackoffThatShrank(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "events", "order.placed", amqp091.Publishing{MessageId: "m-1"})
	reject(t, s.take(t, "billing"))
	for _, b := range s.topology.Bindings {
		if n, _ := b.Arguments["count"].(int64); n >= 2 {
			brokertest.Unbind(t, s.ch, b.Destination, b.Key, b.Source, amqp091.Table(b.Arguments))
		}
	}
	reject(t, s.take(t, "billing"))
	if m := s.bury(t, "billing.dead"); m.MessageId != "m-1" || m.Headers["count"] != int32(-1) {
		t.Errorf("billing.dead holds %q with count %v", m.MessageId, m.Headers["count"])
	}
	s.allEmpty(t)
}
