package amqp

import (
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// ErrLocked is wrapped by the error of Lock when another connection holds the lock.
var ErrLocked = errors.New("locked")

// ErrLockEnding is wrapped by the error of Lock when the broker fails over a lock that ends at this
// moment, with the connection that held it (541 INTERNAL_ERROR, seen on 4.0.5). The broker has
// ended this connection too: try again on another.
var ErrLockEnding = errors.New("the lock is ending")

// Lock acquires the lock with a name by declaring an exclusive queue of that name: the connection
// holds the lock until it ends, and the broker frees it if the process dies. It fails with
// ErrLocked if another connection holds the lock, and with ErrLockEnding while that connection
// ends.
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
	return ch.Close() // the queue belongs to the connection, not to the channel
}

// Unlock frees the lock with that name at once. The end of the connection frees it too, but a
// moment later: the next process may still find the lock held.
func (c *Conn) Unlock(name string) error {
	ch, err := c.conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	// The queue is exclusive to this connection: no message was ever routed to it.
	if _, err := ch.QueueDelete(name, false, false, false); err != nil {
		return explainChannel(err)
	}
	return ch.Close()
}
