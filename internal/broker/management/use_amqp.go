package management

import (
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
)

// UseAMQP makes m declare quorum queues, bind, unbind and delete over c, in place of HTTP. When the
// client of an HTTP request dies, so does what the broker does for the request. Over AMQP the
// broker finishes what it has begun. A change that an interrupted HTTP request leaves half done
// came out right in all measurements when it was repeated, except for the following;
// ARCHITECTURE.md has the figures.
//
//   - Quorum queues are left without a leader: they look like others, and messages routed to them
//     are never confirmed.
//   - Bindings of topic exchanges are listed and do not route, or are gone from the list and still
//     route (4.0.5): a transaction of its own writes what they route by.
//   - Exchanges that are deleted cannot be created again (4.0.5): the record that they are being
//     deleted stays, and the broker answers each declaration with success and creates nothing
//     (source: rabbit_exchange, exchange-delete-in-progress).
//   - Queues that are deleted take their bindings with them, as above.
//
// Queues are deleted on c itself: a deletion that reaches the broker late must not meet a queue
// that another process has declared under that name, once c has ended and its lock is free. The
// broker reads nothing more of a connection whose lock it has freed. Quorum queues are declared on
// connections of their own, see apart: a declaration that comes late finds that the queue exists.
// Once c has ended, nothing more is written over HTTP either: another process may be writing.
func (m *Client) UseAMQP(c *amqp.Conn) { m.conn = c }

// LockLost reports whether the connection of UseAMQP has ended: nothing can be written any more.
func (m *Client) LockLost() bool { return m.stillConnected() != nil }

// stillConnected fails if the connection of UseAMQP has ended.
func (m *Client) stillConnected() error {
	if m.conn == nil || !m.conn.Closed() {
		return nil
	}
	return broker.Errorf(broker.ErrUnreachable, "the AMQP connection to %s ended: the lock was lost with it",
		m.conn.Address())
}
