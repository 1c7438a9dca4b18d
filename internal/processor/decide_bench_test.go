package processor

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/retry"
)

// BenchmarkDecide measures what thinking about one message costs, for a message
// as the broker delivers it on its second failure.
func BenchmarkDecide(b *testing.B) {
	r := retry.NewRules(shop(), shop().Backoffs[0], 131_064)
	now := time.Now()
	death := amqp091.Table{
		"count": int64(1), "reason": "rejected", "queue": "billing", "time": now, "exchange": "shop.return",
		"routing-keys": []any{"order.placed", "@billing"},
	}
	d := amqp091.Delivery{
		RoutingKey: "@billing", MessageId: "m-1", Body: make([]byte, 1024), DeliveryMode: 2,
		Headers: amqp091.Table{
			"count": int64(1), "CC": []any{"@billing"}, "retry-queue": "billing", "retry-exchange": "events",
			"retry-routing-key":     "order.placed",
			"retry-first-failed-at": "2026-01-02T03:04:05.000Z", "retry-last-failed-at": "2026-01-02T03:04:05.000Z",
			"retry-reason": "rejected",
			"retry-history": []any{amqp091.Table{
				"at": "2026-01-02T03:04:05.000Z", "attempt": int64(1), "reason": "rejected", "tier": "10s",
			}},
			"retry-attempts": int64(1), "x-first-death-queue": "billing", "x-first-death-reason": "rejected",
			"x-first-death-exchange": "events",
			"x-death": []any{
				death,
				amqp091.Table{
					"count": int64(1), "reason": "expired", "queue": "shop.standard.retry.10s", "time": now,
					"exchange": "shop.standard.dlx", "routing-keys": []any{"order.placed", "@billing"},
				},
			},
		},
	}
	b.ReportAllocs()
	for b.Loop() {
		if d := decide(r, d, now); d.Outcome != retry.Retried || d.Attempts != 2 {
			b.Fatalf("decided %s, attempt %d", d.Outcome, d.Attempts)
		}
	}
}
