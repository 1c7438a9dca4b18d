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
	gate       *gate
}

// Consume subscribes to a queue, the only one of the connection at a time. Up to
// prefetch messages are delivered and not yet acknowledged, and no more of them
// than have that many bytes together, but one; zero bytes are no limit. It fails
// with ErrNotFound if there is no such queue.
func (c *Conn) Consume(queue string, prefetch, bytes int) (*Consumer, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	s := &Consumer{ch: ch, queue: queue, gate: c.gate, closed: ch.NotifyClose(make(chan *amqp.Error, 1))}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("set the prefetch: %w", err)
	}
	c.gate.begin(bytes)
	if s.deliveries, err = ch.Consume(queue, consumerTag, false, false, false, false, nil); err != nil {
		return nil, explainChannel(err)
	}
	return s, nil
}

// Deliveries gives the messages. It is closed after Cancel, once those that had
// arrived are read, and when the broker ends the subscription.
func (s *Consumer) Deliveries() <-chan amqp.Delivery { return s.deliveries }

// Take gives a delivery with the headers that were published. Whoever reads a
// delivery from Deliveries must call it before anything else.
func (s *Consumer) Take(d amqp.Delivery) amqp.Delivery {
	d.Headers = unwrapped(d.Headers)
	return d
}

// Full reports whether deliveries had to wait, because those that are not
// acknowledged have as many bytes as they may have, and how many bytes the largest
// delivery has had. Whoever consumes should go on with a smaller prefetch: the
// broker ends a connection that is not read.
func (s *Consumer) Full() (full bool, largest int) { return s.gate.state() }

// Ack acknowledges a delivery, with multiple all before it too: the broker
// forgets them. The caller answers for what became of the messages.
func (s *Consumer) Ack(tag uint64, multiple bool) error {
	err := s.ch.Ack(tag, multiple)
	s.gate.release(tag, multiple)
	return err
}

// Forget says that a delivery takes no memory any more. It is not acknowledged.
func (s *Consumer) Forget(tag uint64) { s.gate.release(tag, false) }

// Cancel ends the subscription. What was delivered can still be acknowledged, and
// what Deliveries has not given yet comes out of it.
func (s *Consumer) Cancel() error {
	defer s.gate.lift()() // the answer may be behind deliveries
	return s.ch.Cancel(consumerTag, false)
}

// Stop ends the subscription too, and throws away what Deliveries has not given
// yet: the broker delivers it again.
func (s *Consumer) Stop() error {
	s.gate.drop()
	return s.ch.Cancel(consumerTag, false)
}

// Get takes one message that is ready, after the subscription.
// It reports false if the broker says that none is.
func (s *Consumer) Get() (amqp.Delivery, bool, error) {
	d, ok, err := s.ch.Get(s.queue, false)
	if err != nil {
		return amqp.Delivery{}, false, explainChannel(err)
	}
	return d, ok, nil
}

// Close ends the channel: what is not acknowledged, the broker delivers again.
func (s *Consumer) Close() error {
	s.gate.drop() // or the answer would wait behind deliveries that nobody takes
	return s.ch.Close()
}

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
