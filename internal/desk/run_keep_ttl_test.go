package desk_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// With --keep-ttl a replayed message has the expiration of its publisher again, where the
// processor, a delay or RabbitMQ has kept it. Without, it has none.
func TestAReplayKeepsTheExpiration(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	const level = "shop.delay.level.8s.shop.later"
	s.declare(t, level, amqp091.Table{"x-queue-type": "quorum"})
	s.declare(t, "mail.dlq", nil)
	s.declare(t, "mail", amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mail.dlq"})
	for queue, m := range map[string]amqp091.Publishing{
		"billing.dead": {Headers: amqp091.Table{"retry-queue": "billing", "retry-expiration": "3600000"}},
		level:          {Headers: amqp091.Table{"dlxctl-delay-expiration": "3600000"}},
		"mail.dlq":     {Expiration: "3600000"},
	} {
		for _, keep := range []bool{true, false} {
			to, want := queue, ""
			if queue == "mail.dlq" {
				to = "mail"
			}
			if keep {
				want = "3600000"
			}
			brokertest.PublishConfirmed(t, s.ch, "", to, m)
			brokertest.Eventually(t, to+" delivers", func() bool {
				d, ok, err := s.ch.Get("mail", false)
				return to != "mail" || err == nil && ok && d.Reject(false) == nil
			})
			s.awaitReady(t, queue, 1)
			r := s.execute(t, desk.Request{
				Action: desk.Replay, Queue: queue, Target: desk.Target{Queue: "billing"}, KeepTTL: keep,
			})
			if r.Moved != 1 {
				t.Fatalf("%+v", r)
			}
			s.awaitReady(t, "billing", 1)
			if got := s.drained(t, "billing")[0].Expiration; got != want {
				t.Errorf("from %s it comes with the expiration %q, want %q", queue, got, want)
			}
		}
	}
	s.tidy(t)
}
