package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// confirmTimeout is how long the broker may take to confirm a message on a busy machine.
const confirmTimeout = time.Minute

// ErrRefused is the error of [Publish] for a message that the broker refused (basic.nack).
var ErrRefused = errors.New("the broker refused the message")

// Confirming opens a channel with publisher confirms on a connection of its own, which is
// closed when the test ends.
func (x Target) Confirming(tb testing.TB) *amqp091.Channel {
	tb.Helper()
	ch := x.Channel(tb)
	if err := ch.Confirm(false); err != nil {
		tb.Fatalf("enable publisher confirms in %s: %v", x.VHost, err)
	}
	return ch
}

// Publish publishes messages, all before it waits for the first confirm, and returns an error
// unless the broker confirms each. Messages without a delivery mode are persistent. It enables
// publisher confirms on the channel. Confirming says nothing about routing: the broker confirms
// a message that it cannot route.
func Publish(ctx context.Context, ch *amqp091.Channel, exchange, key string, messages ...amqp091.Publishing) error {
	if err := ch.Confirm(false); err != nil {
		return fmt.Errorf("enable publisher confirms: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	confirms := make([]*amqp091.DeferredConfirmation, len(messages))
	for i, m := range messages {
		if m.DeliveryMode == 0 {
			m.DeliveryMode = amqp091.Persistent
		}
		c, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, m)
		if err != nil {
			return fmt.Errorf("publish message %q to exchange %q with key %q: %w", m.MessageId, exchange, key, err)
		}
		confirms[i] = c
	}
	for i, c := range confirms {
		ok, err := c.WaitContext(ctx)
		if err == nil && !ok {
			err = ErrRefused
		}
		if err != nil {
			return fmt.Errorf("wait for the confirm of message %q, published to exchange %q with key %q: %w",
				messages[i].MessageId, exchange, key, err)
		}
	}
	return nil
}

// PublishConfirmed publishes as [Publish] does and fails the test if a message is not confirmed.
func PublishConfirmed(tb testing.TB, ch *amqp091.Channel, exchange, key string, messages ...amqp091.Publishing) {
	tb.Helper()
	if err := Publish(tb.Context(), ch, exchange, key, messages...); err != nil {
		tb.Fatal(err)
	}
}

// PublishEvery publishes a persistent message per interval, each after the confirm of the one
// before, until stop is called, which returns how many there were. Their message-ids count from
// 0. The channel must have publisher confirms enabled and be used for nothing else meanwhile.
func PublishEvery(tb testing.TB, ch *amqp091.Channel, exchange, key string, interval time.Duration) (stop func() int) {
	tb.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			confirm, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp091.Publishing{
				MessageId: fmt.Sprint(n), DeliveryMode: amqp091.Persistent, Body: []byte("b"),
			})
			if err != nil || !confirm.Wait() {
				tb.Errorf("message %d was not confirmed: %v", n, err)
				return
			}
			n++
		}
	})
	return sync.OnceValue(func() int { close(done); wg.Wait(); return n })
}

// silence is less than what the broker waits for the leader of a quorum queue before it answers a
// passive declare with 0.
const silence = 200 * time.Millisecond

// Ready returns how many messages are ready in a queue. The broker answers 0 when the leader of a
// quorum queue is silent for 250 ms, so a 0 that took that long is asked for again.
func Ready(tb testing.TB, ch *amqp091.Channel, queue string) int {
	tb.Helper()
	n := 0
	Eventually(tb, "the leader of "+queue, func() bool {
		asked := time.Now()
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			tb.Fatalf("look at %s: %v", queue, err)
		}
		n = q.Messages
		return n > 0 || time.Since(asked) < silence
	})
	return n
}

// Take waits for a message in a queue and returns it unacknowledged.
func Take(tb testing.TB, ch *amqp091.Channel, queue string) amqp091.Delivery {
	tb.Helper()
	var d amqp091.Delivery
	Eventually(tb, "a message in "+queue, func() (ok bool) {
		var err error
		if d, ok, err = ch.Get(queue, false); err != nil {
			tb.Fatalf("get from %s: %v", queue, err)
		}
		return ok
	})
	return d
}

// Consume starts a consumer that acknowledges by hand, and fails the test if the broker refuses it.
// A prefetch of 0 leaves the limit of the channel as it is.
func Consume(tb testing.TB, ch *amqp091.Channel, queue string, prefetch int) <-chan amqp091.Delivery {
	tb.Helper()
	if prefetch > 0 {
		if err := ch.Qos(prefetch, 0, false); err != nil {
			tb.Fatalf("limit the messages in flight of %s to %d: %v", queue, prefetch, err)
		}
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		tb.Fatalf("consume from %s: %v", queue, err)
	}
	return deliveries
}

// Drain removes what is ready in a queue and returns how many messages there were of each
// message-id.
func Drain(tb testing.TB, ch *amqp091.Channel, queue string) map[string]int {
	tb.Helper()
	counts := map[string]int{}
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			tb.Fatalf("get from %s: %v", queue, err)
		}
		if !ok {
			return counts
		}
		counts[d.MessageId]++
	}
}
