package amqp_test

import (
	"slices"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A consumer that subscribes again delivers the rest in order, next to messages that it has from
// before: nothing twice, and no more than its prefetch.
func TestAConsumerSubscribesAgain(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			const n, prefetch = 50, 10
			target := brokertest.VHost(t)
			queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": typ})
			s, err := dial(t, target).Consume(queue, prefetch, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var ids []int
			var last uint64
			note := func(d amqp091.Delivery) { ids, last = append(ids, number(t, d.MessageId)), d.DeliveryTag }
			for range prefetch {
				note(<-s.Deliveries())
			}
			for range 2 { // the second time next to what the first has delivered
				readAgain(t, s, note)
			}
			for len(ids) < n {
				if err := s.Ack(last, true); err != nil {
					t.Fatal(err)
				}
				note(<-s.Deliveries())
			}
			if !slices.IsSorted(ids) || len(slices.Compact(ids)) != n {
				t.Errorf("got %v", ids)
			}
			if err := s.Ack(last, true); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if left := ready(t, ch, queue); left > 0 {
				t.Errorf("%d messages came back", left)
			}
		})
	}
}

// readAgain ends the subscription of a consumer, gets a message, and begins another.
func readAgain(t *testing.T, s *amqp.Consumer, note func(amqp091.Delivery)) {
	t.Helper()
	if err := s.Cancel(); err != nil {
		t.Fatal(err)
	}
	for d := range s.Deliveries() { // it is closed
		note(d)
	}
	d, found, err := s.Get()
	if err != nil || !found {
		t.Fatalf("get: %t, %v", found, err)
	}
	note(d)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	note(<-s.Deliveries())
}
