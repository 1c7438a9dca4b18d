package processor_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const delayFile = `
version: 1
name: shop
exchanges: [{name: events}]
delays: [{name: shop.later, to: events, max: %s}]
queues: [{name: work, backoff: none, bindings: [{exchange: events, keys: [a, b]}]}]
`

// dueHeader is where the tests keep when a message is due, in milliseconds since 1970.
const dueHeader = "test-due"

// publishDelayed publishes messages with random delays until the function that it returns is called,
// which returns how many.
func (s *stage) publishDelayed(tb testing.TB, n int, longest time.Duration) {
	tb.Helper()
	for i := range n {
		delay := time.Duration(rand.Int64N(int64(longest/time.Millisecond))) * time.Millisecond
		due := time.Now().Add(delay)
		headers := amqp091.Table{"x-delay": delay.Milliseconds(), dueHeader: due.UnixMilli()}
		if i%3 == 0 {
			headers = amqp091.Table{"x-delay-until": due.UnixMilli(), dueHeader: due.UnixMilli()}
		}
		s.publish(tb, "shop.later", "a", amqp091.Publishing{
			MessageId: strconv.Itoa(i), Headers: headers, DeliveryMode: amqp091.Persistent,
		})
	}
}

// arrivals takes n messages from a queue, and fails if one is early. It returns how often each came.
func (s *stage) arrivals(tb testing.TB, queue string, n int) map[string]int {
	tb.Helper()
	seen := map[string]int{}
	var late time.Duration
	brokertest.Eventually(tb, fmt.Sprintf("all %d messages in %s", n, queue), func() bool {
		for {
			m, ok, err := s.eyes.Get(queue, true)
			if err != nil {
				tb.Fatal(err)
			}
			if !ok {
				return len(seen) == n
			}
			seen[m.MessageId]++
			due, _ := m.Headers[dueHeader].(int64)
			by := time.Since(time.UnixMilli(due))
			late = max(late, by)
			if by < 0 {
				tb.Errorf("message %s is %s early", m.MessageId, -by)
			}
			for name := range m.Headers {
				if name != dueHeader && name != "x-delay" && name != "x-delay-until" && name != "x-delivery-count" {
					tb.Errorf("message %s has the header %s", m.MessageId, name)
				}
			}
		}
	})
	tb.Logf("the latest of %d is %s late", n, late)
	return seen
}

// Each message of a delay comes once, with its key, and never early, while two processors share the
// work.
func TestDelays(t *testing.T) {
	t.Parallel()
	s := newStage(t, fmt.Sprintf(delayFile, "24h"))
	run(t, s.processor(t))
	run(t, s.processor(t))
	const n = 300
	s.publishDelayed(t, n, 9*time.Second)
	for id, copies := range s.arrivals(t, "work", n) {
		if copies != 1 {
			t.Errorf("message %s came %d times", id, copies)
		}
	}
	s.allEmpty(t)
}
