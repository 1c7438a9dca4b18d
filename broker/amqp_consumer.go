package broker

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// consumerTag is the only consumer on its channel.
const consumerTag = "dlxctl"

// Consumer takes messages from one queue, on a channel of its own.
type Consumer struct {
	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
	closed     chan *amqp.Error
	queue      string
}

// Consume subscribes to a queue. Up to prefetch messages are delivered and not
// yet acknowledged. It fails with ErrNotFound if there is no such queue.
func (c *Conn) Consume(queue string, prefetch int) (*Consumer, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	s := &Consumer{ch: ch, queue: queue, closed: ch.NotifyClose(make(chan *amqp.Error, 1))}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("set the prefetch: %w", err)
	}
	if s.deliveries, err = ch.Consume(queue, consumerTag, false, false, false, false, nil); err != nil {
		return nil, explainChannel(err)
	}
	return s, nil
}

// Deliveries gives the messages. It is closed after Cancel, once those that had
// arrived are read, and when the broker ends the subscription.
func (s *Consumer) Deliveries() <-chan amqp.Delivery { return s.deliveries }

// Ack acknowledges a delivery, with multiple all before it too: the broker
// forgets them. The caller answers for what became of the messages.
func (s *Consumer) Ack(tag uint64, multiple bool) error { return s.ch.Ack(tag, multiple) }

// Cancel ends the subscription. What was delivered can still be acknowledged.
func (s *Consumer) Cancel() error { return s.ch.Cancel(consumerTag, false) }

// Get takes one message that is ready, beside the subscription or after it.
// It reports false if the broker says that none is.
func (s *Consumer) Get() (amqp.Delivery, bool, error) {
	d, ok, err := s.ch.Get(s.queue, false)
	if err != nil {
		return amqp.Delivery{}, false, explainChannel(err)
	}
	return d, ok, nil
}

// Close ends the channel: what is not acknowledged, the broker delivers again.
func (s *Consumer) Close() error { return s.ch.Close() }

// Err says why the subscription ended.
func (s *Consumer) Err() error {
	select {
	case e := <-s.closed:
		if e != nil {
			return explainChannel(e)
		}
		return amqp.ErrClosed
	default:
		return errors.New("the broker cancelled the consumer: the queue was deleted, or its leader is gone")
	}
}
