package processor_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// What a publisher set under names that we use changes nothing about the ladder,
// and is found again.
func TestAPublishersOwnHeaders(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sent amqp.Publishing
		kept amqp.Table
	}{
		"count of text":     {amqp.Publishing{Headers: amqp.Table{"count": "7"}}, amqp.Table{"retry-original-count": "7"}},
		"count":             {amqp.Publishing{Headers: amqp.Table{"count": int32(7)}}, amqp.Table{"retry-original-count": int32(7)}},
		"count of one":      {amqp.Publishing{Headers: amqp.Table{"count": int64(1)}}, amqp.Table{"retry-original-count": int64(1)}},
		"count with a part": {amqp.Publishing{Headers: amqp.Table{"count": 7.5}}, amqp.Table{"retry-original-count": 7.5}},
		"count below zero":  {amqp.Publishing{Headers: amqp.Table{"count": int64(-3)}}, amqp.Table{"retry-original-count": int64(-3)}},
		"count of a table":  {amqp.Publishing{Headers: amqp.Table{"count": amqp.Table{"a": "b"}}}, amqp.Table{"retry-original-count": amqp.Table{"a": "b"}}},
		"retry-queue":       {amqp.Publishing{Headers: amqp.Table{"retry-queue": "billing", "count": int64(2)}}, amqp.Table{"retry-original-count": int64(2)}},
		"CC":                {amqp.Publishing{Headers: amqp.Table{"CC": []any{"copy.one", "copy.two"}}}, amqp.Table{"retry-cc": []any{"copy.one", "copy.two"}}},
		"CC to another queue by its address": {
			amqp.Publishing{Headers: amqp.Table{"CC": []any{"@audit"}}}, amqp.Table{"retry-cc": []any{"@audit"}},
		},
		"user-id": {amqp.Publishing{UserId: "guest"}, amqp.Table{"retry-user-id": "guest"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, ladder("quorum"))
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
			want := amqp.Table{
				"count": int32(-1), "CC": []any{"@billing"}, "retry-queue": "billing", "retry-exchange": "events",
				"retry-routing-key": "order.placed", "retry-reason": "rejected", "retry-attempts": int64(4),
				"retry-first-failed-at": m.Headers["retry-first-failed-at"], "retry-last-failed-at": m.Headers["retry-last-failed-at"],
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
	s.publish(t, "events", "@audit", amqp.Publishing{MessageId: "m-1"})
	reject(t, s.take(t, "billing"))
	reject(t, s.take(t, "billing"))
	if m := s.bury(t, "billing.dead"); m.Headers["retry-routing-key"] != "@audit" {
		t.Errorf("the dead letter has the headers %v", m.Headers)
	}
	s.allEmpty(t)
}

// A message that somebody puts into the failed queue by hand is retried as a
// first failure; one that no rule fits is parked with the reason.
func TestMessagesPutThereByHand(t *testing.T) {
	t.Parallel()
	s := newStage(t, ladder("quorum"))
	run(t, s.processor(t))
	s.publish(t, "shop.standard.failed", "@billing", amqp.Publishing{MessageId: "by hand", Expiration: "60000", Body: []byte("b")})
	m := s.bury(t, "billing")
	if m.MessageId != "by hand" || m.Headers["retry-reason"] != "unknown" || m.Headers["count"] != int32(1) || m.Headers["retry-expiration"] != "60000" {
		t.Errorf("billing got %q with the headers %v", m.MessageId, m.Headers)
	}
	for key, why := range map[string]string{
		"order.placed": `the routing key "order.placed" names no work queue`,
		"@gone":        `the topology "shop" has no work queue "gone"`,
	} {
		s.publish(t, "shop.standard.failed", key, amqp.Publishing{MessageId: key, UserId: "guest", Headers: amqp.Table{"mine": "yes"}, Body: []byte("b")})
		m := s.bury(t, "shop.unroutable")
		if m.MessageId != key || m.Headers["retry-error"] != why || m.Headers["mine"] != "yes" || string(m.Body) != "b" {
			t.Errorf("shop.unroutable got %q with the headers %v", m.MessageId, m.Headers)
		}
	}
	s.allEmpty(t)
}
