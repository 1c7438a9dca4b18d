package amqp

import (
	"context"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
)

const (
	// streamCredit is how many messages of a stream are delivered before one is acknowledged.
	streamCredit = 500
	// streamIdle is after how long without a message a stream is taken to be at its end: the broker
	// counts its messages by offsets, of which not each has one.
	streamIdle = 2 * time.Second
	// streamStart is how long the first message may take.
	streamStart = 20 * time.Second
)

// ReadStream reads up to n messages of a stream from its beginning, and calls visit with each. It
// changes nothing: a stream keeps its messages, and an acknowledgement only asks for more. It
// returns when it has n, when nothing more comes, or when visit fails or ctx ends, with that error.
func (c *Conn) ReadStream(ctx context.Context, queue string, n int, visit func(amqp091.Delivery) error) error {
	ch, err := c.conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	b := &block{ch: ch, closed: ch.NotifyClose(make(chan *amqp091.Error, 1))}
	defer func() { c.gate.Drop(); _ = ch.Close() }() // the stream has everything
	if err := ch.Qos(streamCredit, 0, false); err != nil {
		return explainChannel(err)
	}
	c.gate.Begin(unreadBytes)
	deliveries, err := ch.Consume(queue, consumerTag, false, false, false, false,
		amqp091.Table{"x-stream-offset": "first"})
	if err != nil {
		return explainChannel(err)
	}
	idle := time.NewTimer(streamStart)
	defer idle.Stop()
	for i := range n {
		if i > 0 {
			idle.Reset(streamIdle)
		}
		select {
		case d, open := <-deliveries:
			if !open {
				return b.err()
			}
			d.Headers = wire.Unwrap(d.Headers)
			if err := visit(d); err != nil {
				return err
			}
			c.gate.Release(d.DeliveryTag, false)
			if err := ch.Ack(d.DeliveryTag, false); err != nil { // it asks for the next one, and deletes nothing
				return b.err()
			}
		case <-idle.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
