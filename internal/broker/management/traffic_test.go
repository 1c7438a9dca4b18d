package management_test

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// answer starts a consumer with a prefetch of 10 that does the same with each message of a queue.
func answer(t *testing.T, target brokertest.Target, queue string, what func(amqp091.Delivery) error) {
	t.Helper()
	ch := target.Channel(t)
	deliveries := brokertest.Consume(t, ch, queue, 10)
	pace := time.Tick(time.Millisecond) // it leaves the processor to other tests
	go func() {
		for d := range deliveries {
			<-pace
			if what(d) != nil {
				return
			}
		}
	}()
}

// The statistics show a user with the tag management which queues loop and which stand still, on
// every line. A queue without statistics is not known.
func TestTraffic(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	m := manage(t, target.User(t, "management", "^$", "^$", "^$"))
	queues := []string{"loops", "stands", "works", "unused", "missing"}
	for _, queue := range queues[:4] {
		brokertest.Declare(t, ch, queue, nil)
	}
	for range 10 {
		for _, queue := range queues[:2] {
			brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{})
		}
	}
	defer brokertest.PublishEvery(t, target.Confirming(t), "", "works", 50*time.Millisecond)()
	answer(t, target, "loops", func(d amqp091.Delivery) error { return d.Nack(false, true) })
	answer(t, target, "stands", func(amqp091.Delivery) error { return nil })
	answer(t, target, "works", func(d amqp091.Delivery) error { return d.Ack(false) })
	var found map[string]topology.Traffic
	var report string
	brokertest.Eventually(t, "a loop, and a queue that stands still", func() bool {
		var err error
		if found, err = m.Traffic(t.Context(), queues, 15*time.Second, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		report = fmt.Sprintf("%+v", found)
		loops, stands, works := found["loops"], found["stands"], found["works"]
		return loops.Redelivering >= 2 && loops.Redelivered > 100 && loops.Acknowledged == 0 &&
			stands.Still() && stands.Within >= 10*time.Second && works.Acknowledged > 50 && works.Redelivered == 0
	}, &report)
	for _, queue := range []string{"unused", "missing"} {
		if n, known := found[queue]; known {
			t.Errorf("%s: %+v", queue, n)
		}
	}
}

// Messages that a quorum queue delays or cannot dead-letter are not unacknowledged: no consumer
// holds them.
func TestUnacknowledgedAreHeldByConsumers(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch, m := target.Confirming(t), manage(t, target)
	queues := map[string]amqp091.Table{"dies": {
		"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
		"x-dead-letter-exchange": "missing",
	}}
	if target.AtLeast("4.3") {
		queues["delays"] = amqp091.Table{
			"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 600_000,
		}
	}
	for queue, arguments := range queues {
		brokertest.Declare(t, ch, queue, arguments)
		for range 3 {
			brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{})
		}
		first := true
		answer(t, target, queue, func(d amqp091.Delivery) error {
			if first {
				first = false
				return nil // it holds this one
			}
			return d.Nack(false, queue == "delays")
		})
	}
	var state topology.State
	brokertest.Eventually(t, "one held message", func() bool {
		var err error
		if state, err = m.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		for queue := range queues {
			if u := state.Usage[queue]; u.Held() != 1 || u.Other != 2 || u.Unacknowledged != 3 {
				return false
			}
		}
		return true
	}, &state.Usage)
}
