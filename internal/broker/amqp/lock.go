package amqp

import (
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// ErrLocked is wrapped by the error of Lock when another connection holds the lock.
var ErrLocked = errors.New("locked")

// ErrLockEnding is wrapped by the error of Lock when the broker fails over a lock that ends at this
// moment, with the connection that held it (541 INTERNAL_ERROR, seen on 4.0.5). The broker has
// ended this connection too: try again on another.
var ErrLockEnding = errors.New("the lock is ending")

// renewEvery is how often a lock is renewed. A policy of another team may delete queues that have
// not been used for a time (expires), and it also applies to those that are exclusive.
const renewEvery = time.Second

// lock is a lock that a connection holds.
type lock struct {
	ch    *amqp091.Channel
	ended <-chan *amqp091.Error // closed when the connection has ended
	free  chan struct{}         // closed to end its renewal
	done  chan struct{}         // closed when its renewal has ended
}

// Lock acquires the lock with a name by declaring an exclusive queue of that name: the connection
// holds the lock until it ends, and the broker frees it if the process dies. The connection ends if
// it has lost the lock, because its queue was deleted. Lock fails with ErrLocked if another
// connection holds the lock, and with ErrLockEnding while that connection ends.
//
// Source: the broker answers queue.declare of a queue that is exclusive to another connection with
// 405 RESOURCE_LOCKED, on 3.10 to 4.3.
func (c *Conn) Lock(name string) error {
	ch, err := c.conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	_, err = ch.QueueDeclare(name, false, false, true, false,
		amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeClassic})
	var refused *amqp091.Error
	if errors.As(err, &refused) && refused.Code == amqp091.ResourceLocked {
		return fmt.Errorf("%w: %s", ErrLocked, broker.OneLine(refused.Reason))
	}
	if refused != nil && refused.Code == amqp091.InternalError {
		return fmt.Errorf("%w: %d %s", ErrLockEnding, refused.Code, broker.OneLine(refused.Reason))
	}
	if err != nil {
		err = explainChannel(err)
		if errors.Is(err, broker.ErrForbidden) {
			return broker.Errorf(broker.ErrForbidden, "user %q may not declare the queue %q; %s", c.endpoint.AMQP.User, name,
				broker.GrantHint(c.endpoint.AMQP.User))
		}
		return err
	}
	l := lock{
		ch: ch, ended: c.Ended(), free: make(chan struct{}), done: make(chan struct{}),
	}
	c.starting.Lock()
	defer c.starting.Unlock()
	c.locks.Store(name, l)
	c.running.Go(func() { c.renew(name, l) })
	return nil
}

// renew asks for the queue of a lock again and again, which counts as use of it. If the queue is
// gone, or is that of another connection, it closes this one: nothing more may be written under the
// lock. For both the broker's answer is an error.
//
// Source: rabbit_amqqueue_process, handle_call of stat, restarts the timer of expires; measured on
// 3.10.8, 4.0.5 and 4.3.6 (TestALockOutlivesExpires).
func (c *Conn) renew(name string, l lock) {
	defer close(l.done)
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.free:
			return
		case <-l.ended: //nolint:errcheck // whatever ended it
			return
		case <-tick.C:
		}
		if !held(l.ch, name) {
			// Close waits for this goroutine. What the broker has not answered on this connection is
			// as unknown as after a cut.
			_ = c.conn.CloseDeadline(time.Now().Add(closeTime))
			return
		}
	}
}

// held reports whether the connection of ch still holds a lock.
func held(ch *amqp091.Channel, name string) bool {
	_, err := ch.QueueDeclarePassive(name, false, false, true, false,
		amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeClassic})
	return err == nil
}

// Unlock frees the lock with that name at once. The end of the connection frees it too, but a
// moment later: the next process may still find the lock held. It fails if the lock was lost.
func (c *Conn) Unlock(name string) error {
	v, ok := c.locks.LoadAndDelete(name)
	if !ok {
		return fmt.Errorf("this connection does not hold the lock %s", name)
	}
	l, _ := v.(lock)
	close(l.free)
	<-l.done
	if !held(l.ch, name) {
		_ = c.conn.CloseDeadline(time.Now().Add(closeTime))
		return fmt.Errorf("the lock %s was lost: its queue was deleted, or the connection has ended", name)
	}
	// The queue is exclusive to this connection: no message was ever routed to it.
	if _, err := l.ch.QueueDelete(name, false, false, false); err != nil {
		return explainChannel(err)
	}
	return l.ch.Close()
}
