package broker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrLocked is wrapped by the error of Lock when another connection holds it.
var ErrLocked = errors.New("locked")

// ErrLockEnding is wrapped by the error of Lock when the broker stumbled over a lock
// that is just ending with the connection that held it (541 INTERNAL_ERROR, seen on
// 4.0.5). It has ended this connection too: ask again on another.
var ErrLockEnding = errors.New("the lock is just ending")

// Lock declares the exclusive queue name, and so takes the lock of that name: it
// is held until the connection ends, and the broker frees it if the process
// dies. It fails with ErrLocked if another connection holds it, and with
// ErrLockEnding while that ends.
//
// Source: queue.declare of a queue that is exclusive to another connection is
// answered with 405 RESOURCE_LOCKED, on 3.10 to 4.3.
func (c *Conn) Lock(name string) error {
	ch, err := c.conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	_, err = ch.QueueDeclare(name, false, false, true, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic})
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.ResourceLocked {
		return fmt.Errorf("%w: %s", ErrLocked, oneLine(refused.Reason))
	}
	if refused != nil && refused.Code == amqp.InternalError {
		return fmt.Errorf("%w: %d %s", ErrLockEnding, refused.Code, oneLine(refused.Reason))
	}
	if err != nil {
		err = explainChannel(err)
		if errors.Is(err, ErrForbidden) {
			return tell(ErrForbidden, "user %q may not declare the queue %q: %s", c.endpoint.AMQP.User, name, giveRights(c.endpoint.AMQP.User))
		}
		return err
	}
	return ch.Close() // the queue belongs to the connection, not to the channel
}

// Unlock frees the lock of that name at once. The end of the connection frees it
// too, but a moment after the connection is closed: whoever comes next may find
// it held still.
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

// Holder is who holds a lock.
type Holder struct {
	// Connection is the name that the client gave its connection, or else the
	// broker's name for it.
	Connection string
	// Host is the address of the client.
	Host string
	// Since is when it connected. Zero: the broker does not tell, or not yet.
	Since time.Time
}

// Holder says who holds the exclusive queue name. It reports false if nobody
// does any more, or if the broker does not tell.
func (m *Management) Holder(ctx context.Context, name string) (Holder, bool) {
	var q struct {
		Owner struct {
			Name string `json:"name"`
			Host string `json:"peer_host"`
		} `json:"owner_pid_details"`
	}
	if err := m.get(ctx, &q, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(name)); err != nil || q.Owner.Name == "" {
		return Holder{}, false
	}
	h := Holder{Connection: q.Owner.Name, Host: q.Owner.Host}
	var c struct {
		Since      int64 `json:"connected_at"` // milliseconds
		Properties struct {
			Name string `json:"connection_name"`
		} `json:"client_properties"`
	}
	if err := m.get(ctx, &c, "connections/"+url.PathEscape(q.Owner.Name)); err == nil {
		if c.Since > 0 {
			h.Since = time.UnixMilli(c.Since)
		}
		if c.Properties.Name != "" {
			h.Connection = c.Properties.Name
		}
	}
	return h, true
}
