package amqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// silence is less than what the broker waits for the leader of a quorum queue before it answers a
// passive declare with 0 (250 ms; rabbit_quorum_queue:stat/1, 3.10.8 to 4.3.6): a 0 that took this
// long proves nothing.
const silence = 200 * time.Millisecond

// SafeAge is how old a quorum queue must be before messages are moved into it, with a margin.
// RabbitMQ writes the name of a new quorum queue to disk up to a second after it has created the
// queue. A node that is killed before finds the queue empty when it starts again: 10 of 10 messages
// that a queue of 0.2 to 0.4 seconds had confirmed were lost (3.10.8, 4.0.5 and 4.3.6, measured).
const SafeAge = 2 * time.Second

// CancelTime is how long to wait between the deletion of a quorum queue with consumers and the
// declaration of a quorum queue of the same name, with a margin. RabbitMQ 3.10.8 first looks
// whether a queue of that name exists, and if it does, subscribes the consumers there and sends no
// basic.cancel: such a consumer counts as one, takes its prefetch, and its client gets none of
// these messages until it reconnects (each time within 20 ms, and not after 50 ms, measured; not
// 4.0.5, not 4.3.6).
const CancelTime = 500 * time.Millisecond

// Lingers reports whether CancelTime is needed between the deletion of a queue and the declaration
// of another one of the same name.
func Lingers(old, next topology.Queue) bool {
	return old.Type() == topology.Quorum && next.Type() == topology.Quorum
}

// MessagesReady returns how many messages are ready in a queue. It fails with ErrNotFound if the
// queue does not exist. The broker reports 0 for a quorum queue whose leader has not answered for
// 250 ms (rabbit_quorum_queue:stat/1, 3.10.8 to 4.3.6), so MessagesReady asks twice; two zeros
// still do not prove that a queue is empty.
func (c *Conn) MessagesReady(name string) (int, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return 0, fmt.Errorf("open a channel: %w", explainChannel(err))
	}
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err == nil && q.Messages == 0 {
		q, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	}
	if err != nil {
		return 0, explainChannel(err) // the broker has closed the channel
	}
	return q.Messages, ch.Close()
}

// Holds returns how many messages are ready in a queue, and how many consumers it has. It fails
// with ErrNotFound if the queue does not exist. Zeros prove nothing: see MessagesReady.
func (c *Conn) Holds(name string) (ready, consumers int, err error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return 0, 0, fmt.Errorf("open a channel: %w", explainChannel(err))
	}
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err == nil && q.Messages == 0 && q.Consumers == 0 {
		q, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	}
	if err != nil {
		return 0, 0, explainChannel(err) // the broker has closed the channel
	}
	return q.Messages, q.Consumers, ch.Close()
}

// HasExchange reports whether an exchange of this name exists. It needs no permission.
func (c *Conn) HasExchange(name string) (bool, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", explainChannel(err))
	}
	// A passive declaration does not compare the type.
	err = explainChannel(ch.ExchangeDeclarePassive(name, amqp091.ExchangeDirect, true, false, false, false, nil))
	if errors.Is(err, broker.ErrNotFound) {
		return false, nil // the broker has closed the channel
	}
	if err != nil {
		return false, err
	}
	return true, ch.Close()
}

// Empty reports whether basic.get finds nothing ready in a queue. A message that it finds returns
// to its place at once: nothing is acknowledged.
func (c *Conn) Empty(queue string) (bool, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", explainChannel(err))
	}
	m, found, err := ch.Get(queue, false)
	if err != nil {
		return false, explainChannel(err)
	}
	if found {
		if err := m.Nack(false, true); err != nil {
			return false, err
		}
	}
	return !found, ch.Close()
}

// Consumers asks queues how many consumers they have, until ctx ends. Queues that do not answer are
// left out.
//
// The AMQP library waits for an answer without a limit, so on a connection that has gone silent a
// question waits in the background until the heartbeats end the connection.
func (c *Conn) Consumers(ctx context.Context, queues []string) map[string]int64 {
	type answer struct {
		queue     string
		consumers int64
	}
	answers := make(chan answer, len(queues)) // all fit: after ctx has ended nothing receives them
	go func() {
		defer close(answers)
		for _, name := range queues {
			if ctx.Err() != nil || c.Closed() {
				return
			}
			if n, err := c.ConsumersOf(name); err == nil {
				answers <- answer{name, n}
			}
		}
	}()
	out := make(map[string]int64, len(queues))
	for {
		select {
		case a, more := <-answers:
			if !more {
				return out
			}
			out[a.queue] = a.consumers
		case <-ctx.Done():
			return out
		}
	}
}

// ConsumersOf asks a queue how many consumers it has. It fails with ErrNotFound if the queue does
// not exist, and with ErrRefused if each 0 took so long that the broker may have answered for a
// leader that is silent. On a busy machine one answer may take as long.
func (c *Conn) ConsumersOf(name string) (n int64, err error) {
	var took time.Duration
	for range questions {
		err = c.onChannel(func(ch *amqp091.Channel) error {
			began := time.Now()
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			n, took = int64(q.Consumers), time.Since(began)
			return err
		})
		if err != nil || n > 0 || took < silence {
			return n, err
		}
	}
	return n, broker.Errorf(broker.ErrRefused,
		"the queue took %s to answer: its number of consumers is unknown; check that its leader is up", text.Took(took))
}

// questions is how many times a queue is asked that is slow to answer.
const questions = 5
