package amqp

import (
	"context"
	"errors"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/wait"
)

const (
	// sureZeros is how many zeros in succession sure believes, and sureTries after how many answers
	// it gives up.
	sureZeros = 3
	sureTries = 30
	// settlePause is the pause between two questions of Settled, and settleTime how long the counts
	// must not change while other clients consume.
	settlePause = 10 * time.Millisecond
	settleTime  = 500 * time.Millisecond
	// settleMost is how long Settled waits at most: new messages may arrive all the time.
	settleMost = 5 * time.Second
	// aloneMost is how long it waits for the end of each consumer of a queue that has none.
	aloneMost = 30 * time.Second
)

// Alone is the number of other consumers of a queue that none but the caller reads, see Settled.
const Alone = -1

// counts is one answer of a queue.
type counts struct {
	ready, consumers int
	slow             bool // it took so long that zeros may stand for a leader that is silent
}

// zero reports that the answer is also that of a queue whose leader is silent.
func (n counts) zero() bool { return n.ready == 0 && n.consumers == 0 }

// count asks a queue, on a channel that is free.
func (c *Conn) count(queue string) (now counts, err error) {
	err = c.onChannel(func(ch *amqp091.Channel) error {
		now, err = countOn(ch, queue)
		return err
	})
	return now, err
}

// ReadyForSure returns how many messages are ready in a queue. It does not take a leader that is
// silent for an empty queue: if it is silent for seconds, ReadyForSure fails with ErrRefused.
func (c *Conn) ReadyForSure(queue string) (int, error) {
	now, err := sure(func() (counts, error) { return c.count(queue) })
	return now.ready, explainChannel(err)
}

func countOn(ch *amqp091.Channel, queue string) (counts, error) {
	began := time.Now()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return counts{ready: q.Messages, consumers: q.Consumers, slow: time.Since(began) >= silence}, err
}

// sure asks until an answer is not zero, which a silent leader cannot give, or several in
// succession are zero and quick. It fails with ErrRefused if the leader seems to be silent.
func sure(ask func() (counts, error)) (counts, error) {
	zeros := 0
	for range sureTries {
		now, err := ask()
		switch {
		case err != nil || !now.zero():
			return now, err
		case now.slow:
			zeros = 0
		default:
			zeros++
		}
		if zeros == sureZeros {
			return now, nil
		}
	}
	return counts{}, broker.Errorf(broker.ErrRefused,
		"the queue does not report how many messages it has; check that its leader is up")
}

// Settled returns how many messages are ready in a queue, and how many consumers it has, once what
// the connections of earlier consumers had has come back. others is how many consumers the queue
// has that stay; if it has more for long, they are not earlier ones, and the counts need not change
// for half a second, or for five if no message is ready. With Alone no count is believed while the
// queue has a consumer, and Settled fails with ErrRefused if one stays: after the death of a node
// or of a client it may be one that the queue still has to forget. Settled fails with ErrNotFound
// if the queue does not exist.
//
// A quorum queue returns the messages of a channel a moment after the channel has ended, and counts
// fewer until then (1 to 193 ms on 3.10.8, 4.0.5 and 4.3.6 with both cores busy, measured). It also
// counts the consumers of the channel until then, see Holder.await. Settled believes no zero that
// basic.get, which goes through the log of the leader, does not confirm.
func (c *Conn) Settled(ctx context.Context, queue string, others int) (ready, consumers int, err error) {
	ask := func() (counts, error) { return c.count(queue) }
	var began, changed time.Time // began is when the leader has answered first: it may have been silent
	var last counts
	for {
		now, err := sure(ask)
		if err != nil {
			return 0, 0, explainChannel(err)
		}
		if began.IsZero() {
			began, changed = time.Now(), time.Now()
		}
		if now.ready != last.ready || now.consumers != last.consumers {
			last, changed = now, time.Now()
		}
		over := others != Alone && time.Since(began) >= settleMost
		// Without a message ready, a consumer too many may hold all that will come back.
		unchanged := others != Alone && now.ready > 0 && time.Since(changed) >= settleTime
		if others == Alone && now.consumers > 0 && time.Since(began) >= aloneMost {
			return 0, 0, broker.Errorf(broker.ErrRefused, "another client consumes from queue %s; stop it, or wait until it ends", queue)
		}
		if now.consumers <= max(others, 0) || unchanged || over {
			empty := true
			if now.zero() {
				if empty, err = c.emptyByLog(ctx, queue); err != nil {
					return 0, 0, err
				}
				now, err = sure(ask) // the leader answers
			}
			if err != nil {
				return 0, 0, explainChannel(err)
			}
			if empty || now.ready > 0 || over {
				return now.ready, now.consumers, nil
			}
		}
		if wait.For(ctx, settlePause) != nil {
			return 0, 0, context.Cause(ctx)
		}
	}
}

// emptyByLog is Empty, also for a queue with a single active consumer. It does not wait longer than
// ctx: a leader that has lost the majority of its nodes answers after a minute (65 s on 4.3.6,
// measured). The question ends with the connection then.
func (c *Conn) emptyByLog(ctx context.Context, queue string) (bool, error) {
	type answer struct {
		empty bool
		err   error
	}
	answers := make(chan answer, 1) // it fits: after ctx has ended nothing receives it
	go func() {
		empty, err := c.Empty(queue)
		answers <- answer{empty, err}
	}()
	select {
	case a := <-answers:
		if !errors.Is(a.err, broker.ErrInUse) {
			return a.empty, a.err
		}
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	c.gate.Begin(0)                 // a Holder of this connection that has given back discards deliveries
	return c.EmptyToConsumer(queue) // RabbitMQ refuses basic.get, see there
}
