package processor_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// What a publisher set under the processor's names changes nothing about the backoff,
// and is found again.
func TestAPublishersOwnHeaders(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		sent amqp091.Publishing
		kept amqp091.Table
	}{
		"count of text": {
			amqp091.Publishing{Headers: amqp091.Table{"count": "7"}},
			amqp091.Table{"retry-original-count": "7"},
		},
		"count": {
			amqp091.Publishing{Headers: amqp091.Table{"count": int32(7)}},
			amqp091.Table{"retry-original-count": int32(7)},
		},
		"count of one": {
			amqp091.Publishing{Headers: amqp091.Table{"count": int64(1)}},
			amqp091.Table{"retry-original-count": int64(1)},
		},
		"count with a part": {
			amqp091.Publishing{Headers: amqp091.Table{"count": 7.5}},
			amqp091.Table{"retry-original-count": 7.5},
		},
		"count below zero": {
			amqp091.Publishing{Headers: amqp091.Table{"count": int64(-3)}},
			amqp091.Table{"retry-original-count": int64(-3)},
		},
		"count of a table": {
			amqp091.Publishing{Headers: amqp091.Table{"count": amqp091.Table{"a": "b"}}},
			amqp091.Table{"retry-original-count": amqp091.Table{"a": "b"}},
		},
		"retry-queue": {
			amqp091.Publishing{Headers: amqp091.Table{"retry-queue": "billing", "count": int64(2)}},
			amqp091.Table{"retry-original-count": int64(2)},
		},
		"CC": {
			amqp091.Publishing{Headers: amqp091.Table{"CC": []any{"copy.one", "copy.two"}}},
			amqp091.Table{"retry-cc": []any{"copy.one", "copy.two"}},
		},
		"CC to another queue by its address": {
			amqp091.Publishing{Headers: amqp091.Table{"CC": []any{"@audit"}}}, amqp091.Table{"retry-cc": []any{"@audit"}},
		},
		"BCC, which the broker removes": {amqp091.Publishing{Headers: amqp091.Table{"BCC": []any{"copy.one"}}}, nil},
		"deaths": {
			amqp091.Publishing{Headers: amqp091.Table{
				"x-death": []any{amqp091.Table{
					"queue": "billing", "reason": "rejected", "count": int64(1), "exchange": "events",
					"routing-keys": []any{"order.placed"}, "time": time.Unix(1_700_000_000, 0),
				}},
				"x-first-death-queue": "billing", "x-last-death-queue": "billing", "x-delivery-count": int64(9),
			}},
			nil,
		},
		"user-id": {amqp091.Publishing{UserId: "guest"}, amqp091.Table{"retry-user-id": "guest"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, backoffFile("quorum"))
			// As another user than the publisher: the broker would refuse his user-id.
			p := s.processor(t)
			p.Endpoint = s.endpoint(t, s.target.User(t, "", ".*", ".*", ".*"))
			run(t, p)
			tc.sent.MessageId = "m-1"
			s.publish(t, "events", "order.placed", tc.sent)
			for range 4 {
				m := s.take(t, "billing")
				if m.RoutingKey != "order.placed" {
					t.Errorf("the consumer sees the routing key %q", m.RoutingKey)
				}
				reject(t, m)
			}
			m := s.bury(t, "billing.dead")
			want := amqp091.Table{
				"count": int32(-1), "CC": []any{"@billing"}, "retry-queue": "billing", "retry-exchange": "events",
				"retry-routing-key": "order.placed", "retry-reason": "rejected", "retry-attempts": int64(4),
				"retry-first-failed-at": m.Headers["retry-first-failed-at"],
				"retry-last-failed-at":  m.Headers["retry-last-failed-at"],
				"retry-history":         m.Headers["retry-history"],
			}
			maps.Copy(want, tc.kept)
			if d := cmp.Diff(want, m.Headers); d != "" {
				t.Errorf("headers of the dead letter (-want +got):\n%s", d)
			}
			if m.UserId != "" {
				t.Errorf("the dead letter has the user-id %q", m.UserId)
			}
			s.allEmpty(t)
		})
	}
}

// A publisher's routing key that looks like the address of another queue leads
// the retries to their own queue alone.
func TestAKeyThatLooksLikeAnAddress(t *testing.T) {
	t.Parallel()
	s := newStage(t, `
version: 1
name: shop
defaults: {backoff: quick}
backoff:
  quick: {tiers: [100ms]}
exchanges:
  - {name: events}
queues:
  - {name: billing, bindings: [{exchange: events, key: "#"}]}
  - {name: audit}
`)
	run(t, s.processor(t))
	s.publish(t, "events", "@audit", amqp091.Publishing{MessageId: "m-1"})
	reject(t, s.take(t, "billing"))
	reject(t, s.take(t, "billing"))
	if m := s.bury(t, "billing.dead"); m.Headers["retry-routing-key"] != "@audit" {
		t.Errorf("the dead letter has the headers %v", m.Headers)
	}
	s.allEmpty(t)
}

// A message that an operator puts into the failed queue by hand is retried as a
// first failure; one that no rule fits is parked with the reason.
func TestMessagesPutThereByHand(t *testing.T) {
	t.Parallel()
	s := newStage(t, backoffFile("quorum"))
	run(t, s.processor(t))
	s.publish(t, "shop.standard.failed", "@billing",
		amqp091.Publishing{MessageId: "by hand", Expiration: "60000", Body: []byte("b")})
	m := s.bury(t, "billing")
	if m.MessageId != "by hand" || m.Headers["retry-reason"] != "unknown" || m.Headers["count"] != int32(1) ||
		m.Headers["retry-expiration"] != "60000" {
		t.Errorf("billing got %q with the headers %v", m.MessageId, m.Headers)
	}
	for key, why := range map[string]string{
		"order.placed": `the routing key "order.placed" names no work queue`,
		"@gone":        `the topology "shop" has no work queue "gone"`,
	} {
		s.publish(t, "shop.standard.failed", key,
			amqp091.Publishing{MessageId: key, UserId: "guest", Headers: amqp091.Table{"mine": "yes"}, Body: []byte("b")})
		m := s.bury(t, "shop.unroutable")
		if m.MessageId != key || m.Headers["retry-error"] != why || m.Headers["mine"] != "yes" || string(m.Body) != "b" {
			t.Errorf("shop.unroutable got %q with the headers %v", m.MessageId, m.Headers)
		}
	}
	s.allEmpty(t)
}
