package amqp

import (
	"context"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
)

// Answer is what a consumer does with a delivery.
type Answer string

// The answers.
const (
	// Acknowledge deletes the message.
	Acknowledge Answer = "acknowledge"
	// Reject dead-letters it: it is not requeued.
	Reject Answer = "reject"
	// Requeue rejects it with requeue, by basic.reject: a quorum queue counts that as one delivery.
	Requeue Answer = "requeue"
	// Nack requeues it by basic.nack: a quorum queue of RabbitMQ 4.3 does not count that.
	Nack Answer = "nack"
	// Crash closes the channel without an answer, as the death of a consumer does: the broker
	// delivers the message again, and counts that as one delivery (3.10.8 to 4.3.6).
	Crash Answer = "crash"
	// Keep returns no answer. The consumer gets nothing more, and the broker delivers the message
	// again once Serve ends.
	Keep Answer = "keep"
)

// Serve consumes a queue one message at a time, as a service does, until ctx ends or the channel
// does. handle says what becomes of each delivery: nothing is acknowledged or rejected that it did
// not say so of. Many queues may be served on one connection of DialToConsume.
func (c *Conn) Serve(ctx context.Context, queue string, handle func(amqp091.Delivery) Answer) error {
	for {
		crashed, err := c.serve(ctx, queue, handle)
		if err != nil || !crashed || ctx.Err() != nil {
			return err
		}
	}
}

// serve is Serve on one channel. It reports whether the consumer crashed.
func (c *Conn) serve(ctx context.Context, queue string, handle func(amqp091.Delivery) Answer) (bool, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	b := &block{ch: ch, closed: ch.NotifyClose(make(chan *amqp091.Error, 1))}
	if err := ch.Qos(1, 0, false); err != nil {
		return false, explainChannel(err)
	}
	deliveries, err := ch.Consume(queue, consumerTag, false, false, false, false, nil)
	if err != nil {
		return false, explainChannel(err)
	}
	for {
		select {
		case <-ctx.Done():
			return false, ch.Close() // the broker delivers what has no answer again
		case d, open := <-deliveries:
			if !open {
				return false, b.err()
			}
			d.Headers = wire.Unwrap(d.Headers)
			switch handle(d) {
			case Acknowledge:
				err = ch.Ack(d.DeliveryTag, false)
			case Reject:
				err = ch.Reject(d.DeliveryTag, false)
			case Requeue:
				err = ch.Reject(d.DeliveryTag, true)
			case Nack:
				err = ch.Nack(d.DeliveryTag, false, true)
			case Crash:
				return true, ch.Close()
			case Keep: // with a prefetch of 1 nothing more comes
			}
			if err != nil {
				return false, b.err()
			}
		}
	}
}
