package amqp

import (
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
)

// consumerTag names the only consumer on its channel, or is the beginning of its name.
const consumerTag = "dlxctl"

// Consumer receives messages from one queue, on a channel of its own.
type Consumer struct {
	ch         *amqp091.Channel
	deliveries <-chan amqp091.Delivery
	closed     chan *amqp091.Error
	canceled   chan string // by the broker
	lost       bool        // it has canceled one
	queue      string
	tag        string
	renewed    int // how often it has subscribed again
	gate       *wire.Gate
	conn       *Conn
	acks       int // how many were sent
}

// Consume subscribes to a queue, one at a time on each connection. At most prefetch messages are
// delivered and not yet acknowledged, and together they have at most that many bytes, unless it is
// a single message; zero bytes means no limit. It fails with ErrNotFound if the queue does not
// exist.
func (c *Conn) Consume(queue string, prefetch, bytes int) (*Consumer, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	s := &Consumer{
		ch: ch, queue: queue, gate: c.gate, conn: c, closed: ch.NotifyClose(make(chan *amqp091.Error, 1)),
		canceled: ch.NotifyCancel(make(chan string, 4)), // room for this subscription and that of Settle
	}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("set the prefetch: %w", err)
	}
	c.gate.Begin(bytes)
	if err := s.subscribe(consumerTag); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Consumer) subscribe(tag string) (err error) {
	s.tag = tag
	if s.deliveries, err = s.ch.Consume(s.queue, tag, false, false, false, false, nil); err != nil {
		return explainChannel(err)
	}
	return nil
}

// Resume subscribes again after Cancel, with the same limits. What was delivered before can still
// be acknowledged. The messages come from another channel, which Deliveries returns.
func (s *Consumer) Resume() error {
	s.renewed++
	return s.subscribe(fmt.Sprintf("%s-%d", consumerTag, s.renewed))
}

// Deliveries returns the messages. It is closed after Cancel, once the messages that had arrived
// are read, and when the broker ends the subscription.
func (s *Consumer) Deliveries() <-chan amqp091.Delivery { return s.deliveries }

// Canceled reports whether the broker has ended the subscription. It may have taken back what was
// delivered then: a quorum queue of RabbitMQ 4.3 does at the consumer_timeout, in which earlier
// brokers close the channel. Deliveries still returns such messages, and an acknowledgement of one
// has no effect: what is published from then on is doubled.
func (s *Consumer) Canceled() bool {
	select {
	case _, is := <-s.canceled:
		s.lost = s.lost || is
	default:
	}
	return s.lost
}

// Take returns a delivery with the headers that were published. The reader of Deliveries must call
// it before anything else.
func (s *Consumer) Take(d amqp091.Delivery) amqp091.Delivery {
	d.Headers = wire.Unwrap(d.Headers)
	return d
}

// Full reports whether deliveries had to wait, because the unacknowledged ones have as many bytes
// as they may have, and how many bytes the largest delivery had. The caller should continue with a
// smaller prefetch: the broker ends a connection that is not read.
func (s *Consumer) Full() (full bool, largest int) { return s.gate.State() }

// Ack acknowledges a delivery, with multiple also all before it: the broker deletes the messages.
// The caller guarantees that their copies are safe.
func (s *Consumer) Ack(tag uint64, multiple bool) error {
	s.acks++
	err := s.ch.Ack(tag, multiple)
	s.gate.Release(tag, multiple)
	return s.ended(err)
}

// ended returns why a request on the channel failed. Of a channel that has ended the library says
// only that, or what became of the write. The reason tells callers whether to try again.
func (s *Consumer) ended(err error) error {
	said, is := errors.AsType[*amqp091.Error](err)
	if err == nil || is && said != amqp091.ErrClosed {
		return explainChannel(err)
	}
	return reason(s.closed)
}

// Forget marks the memory of a delivery as free. The delivery is not acknowledged.
func (s *Consumer) Forget(tag uint64) { s.gate.Release(tag, false) }

// Cancel ends the subscription. Delivered messages can still be acknowledged, and Deliveries still
// returns those that it has not returned yet.
func (s *Consumer) Cancel() error {
	defer s.gate.Lift()() // the answer may be behind deliveries
	return s.ended(s.ch.Cancel(s.tag, false))
}

// Stop ends the subscription too, and discards what Deliveries has not returned yet: the broker
// redelivers it.
func (s *Consumer) Stop() error {
	s.gate.Drop()
	return s.ended(s.ch.Cancel(s.tag, false))
}

// Get fetches one ready message, after the subscription. It reports false if the broker has none.
func (s *Consumer) Get() (amqp091.Delivery, bool, error) {
	d, ok, err := s.ch.Get(s.queue, false)
	if err != nil {
		return amqp091.Delivery{}, false, explainChannel(err)
	}
	return d, ok, nil
}

// Settle makes sure that the queue receives all acknowledgements, also if the channel ends next. It
// is called after Cancel or Stop. Of a quorum queue, the channel keeps acknowledgements while 32 of
// them are not applied, and forgets them if it is closed before the queue has told it so (soft
// limit of rabbit_fifo_client, 3.10 to 4.3). Where channels that had sent fewer were left alone,
// reloads of a processor doubled messages on a busy machine, why is not known (4.0.5).
//
// Another consumer begins and ends. The queue answers to its begin once it has applied what the
// channel had sent before, and to its end after the channel has been told that, so that the channel
// sends what it kept before it reads anything else from this connection: the signals of one Erlang
// process to another arrive in the order in which they were sent. A message that this consumer gets
// is not acknowledged, and goes back with the others.
//
// A queue without a leader does not answer: after answerTime the connection is ended.
func (s *Consumer) Settle() error {
	if s.acks == 0 {
		return nil
	}
	end := func() { _ = s.conn.Close() } // it has a deadline of its own
	defer time.AfterFunc(answerTime, end).Stop()
	s.gate.Drop() // or the answers would wait behind unread deliveries
	if err := s.ch.Qos(1, 0, false); err != nil {
		return explainChannel(err)
	}
	if err := s.Resume(); errors.Is(err, broker.ErrNotFound) {
		return nil // the queue is gone with its messages
	} else if err != nil {
		return err
	}
	return s.ended(s.ch.Cancel(s.tag, false))
}

// Close ends the channel: the broker redelivers what is not acknowledged.
func (s *Consumer) Close() error {
	s.gate.Drop() // or the answer would wait behind unread deliveries
	return s.ch.Close()
}

// ErrCanceled is why a subscription ended whose channel goes on.
var ErrCanceled = errors.New("the broker canceled the consumer: the queue was deleted, " +
	"its leader is gone, or messages were not acknowledged in time (consumer_timeout)")

// Err returns why the subscription ended.
func (s *Consumer) Err() error {
	select {
	case e := <-s.closed:
		if e != nil {
			return explainChannel(e)
		}
		return amqp091.ErrClosed
	default:
		return ErrCanceled
	}
}
