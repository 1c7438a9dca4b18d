package amqp_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A queue on which the broker refuses basic.get is seen to be empty or not, and keeps its messages.
func TestEmptyToConsumer(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"empty": 0, "one message": 1, "three messages": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
			conn := dial(t, target)
			for range 2 {
				empty, err := conn.EmptyToConsumer(queue)
				if err != nil || empty != (n == 0) {
					t.Errorf("empty: %t, %v", empty, err)
				}
			}
			brokertest.Eventually(t, "the messages to be back", func() bool { return ready(t, ch, queue) == n })
		})
	}
}
