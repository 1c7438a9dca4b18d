package processor_test

import (
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// Every reason for dead-lettering goes through the whole loop if retryOn names
// it, and is a dead letter at once if it does not. Nothing vanishes as a cycle.
func TestEveryDeath(t *testing.T) {
	t.Parallel()
	// kill lets the message die once more in the work queue; nil leaves that to
	// the queue.
	crash := func(t *testing.T, s *stage) {
		t.Helper()
		for range 2 { // the delivery limit is 1
			if err := s.take(t, "work").Reject(true); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		reason, typ, queue string
		kill               func(*testing.T, *stage)
	}{
		{"rejected", "quorum", "", func(t *testing.T, s *stage) { t.Helper(); reject(t, s.take(t, "work")) }},
		{"rejected", "classic", "", func(t *testing.T, s *stage) { t.Helper(); reject(t, s.take(t, "work")) }},
		{"delivery_limit", "quorum", "deliveryLimit: 1", crash},
		{"expired", "quorum", "arguments: {x-message-ttl: 50}", nil},
		{"expired", "classic", "arguments: {x-message-ttl: 50}", nil},
		{"maxlen", "classic", "arguments: {x-max-length: 0}", nil},
	} {
		for _, named := range []bool{true, false} {
			name := fmt.Sprintf("%s/%s/named=%t", tc.reason, tc.typ, named)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				retryOn, deliveries := tc.reason, 3
				if !named {
					retryOn = strings.NewReplacer(tc.reason+", ", "", ", "+tc.reason,
						"").Replace("rejected, delivery_limit, expired, maxlen")
					deliveries = 1
				}
				s := newStage(t, fmt.Sprintf(`
version: 1
name: shop
defaults: {type: %s}
backoff:
  quick: {tiers: [100ms, 200ms], retryOn: [%s]}
exchanges:
  - {name: events}
queues:
  - {name: work, backoff: quick, %s, bindings: [{exchange: events, key: a}]}
`, tc.typ, retryOn, orSeverity(tc.queue)))
				run(t, s.processor(t))
				s.publish(t, "events", "a", amqp091.Publishing{MessageId: "m-1", Body: []byte("b")})
				if tc.kill != nil {
					for range deliveries {
						tc.kill(t, s)
					}
				}
				m := s.bury(t, "work.dead")
				if m.MessageId != "m-1" || string(m.Body) != "b" {
					t.Errorf("work.dead holds %q with body %q", m.MessageId, m.Body)
				}
				for header, want := range map[string]any{
					"retry-reason": tc.reason, "retry-attempts": int64(deliveries),
					"count": int32(-1), "retry-routing-key": "a",
				} {
					if got := m.Headers[header]; got != want {
						t.Errorf("header %s is %v, want %v", header, got, want)
					}
				}
				s.allEmpty(t)
			})
		}
	}
}

// orSeverity returns a key that changes nothing where there is none.
func orSeverity(key string) string {
	if key == "" {
		return "severity: info"
	}
	return key
}

// A consumer that crashes, its connection cut without an acknowledgement, is a
// failure too once the delivery limit is reached.
func TestACrashingConsumer(t *testing.T) {
	t.Parallel()
	s := newStage(t, `
version: 1
name: shop
backoff:
  quick: {tiers: [100ms]}
queues:
  - {name: work, backoff: quick, deliveryLimit: 1}
`)
	run(t, s.processor(t))
	s.publish(t, "", "work", amqp091.Publishing{MessageId: "m-1"})
	for range 4 { // two crashes for each of two attempts
		conn := s.target.Dial(t)
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		deliveries := brokertest.Consume(t, ch, "work", 0)
		<-deliveries
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if m := s.bury(t, "work.dead"); m.Headers["retry-reason"] != "delivery_limit" ||
		m.Headers["retry-attempts"] != int64(2) {
		t.Errorf("the dead letter has the headers %v", m.Headers)
	}
	s.allEmpty(t)
}
