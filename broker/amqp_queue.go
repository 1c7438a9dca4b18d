package broker

import (
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// Over makes m declare quorum queues, bind, unbind and delete over c, in place of
// HTTP. Whoever kills the client of an HTTP request kills what the broker does for
// it. Over AMQP the broker finishes what it has begun. What is left to HTTP was seen
// to come out right when it is done again; docs/guarantees.md has the figures.
//
//   - Quorum queues that are declared are left without a leader: they look like
//     others, and what is routed to them is never confirmed.
//   - Bindings of topic exchanges are listed and do not route, or are gone from the
//     list and route on (4.0.5): a transaction of its own writes what they route by.
//   - Exchanges that are deleted cannot be made again (4.0.5): the note stays that
//     they are being deleted, and the broker says yes to each declaration and makes
//     nothing (source: rabbit_exchange, exchange-delete-in-progress).
//   - Queues that are deleted take their bindings with them, as above.
//
// Once c has ended, nothing more is written over HTTP either: a lock that it held is
// free, and somebody else may be writing.
func (m *Management) Over(c *Conn) { m.over = c }

// stillOver fails if the connection of Over has ended.
func (m *Management) stillOver() error {
	if m.over == nil || !m.over.Closed() {
		return nil
	}
	return tell(ErrUnreachable, "the AMQP connection to %s ended: the lock was lost with it", m.over.endpoint.AMQP)
}

// Fresh gives the same management API with counts that are read anew: those that
// prove a quorum queue empty are newer than this call.
func (m *Management) Fresh() *Management {
	fresh := *m
	fresh.census = &census{}
	return &fresh
}

// declareQueue makes a queue, or finds it made. It fails with ErrInequivalent if
// the queue exists and differs.
func (c *Conn) declareQueue(q topology.Queue) error {
	return c.onChannel(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q.Name, q.Durable, q.AutoDelete, false, false, table(q.Arguments))
		return err
	})
}

// deleteQueue deletes a queue, or finds it gone. The broker checks the conditions
// for classic queues alone. It fails with ErrRefused if they do not hold.
func (c *Conn) deleteQueue(name string, only conditions) error {
	return c.onChannel(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(name, only.unused, only.empty, false) // the caller answers for what it holds
		return err
	})
}

// deleteExchange deletes an exchange, or finds it gone. It fails with ErrRefused if
// the exchange has bindings and must not.
func (c *Conn) deleteExchange(name string, only conditions) error {
	err := c.onChannel(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, only.unused, false) })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// bind makes a binding, or finds it made.
func (c *Conn) bind(b topology.Binding) error {
	return c.onChannel(func(ch *amqp.Channel) error {
		if b.DestinationType == topology.ToExchange {
			return ch.ExchangeBind(b.Destination, b.Key, b.Source, false, table(b.Arguments))
		}
		return ch.QueueBind(b.Destination, b.Key, b.Source, false, table(b.Arguments))
	})
}

// unbind deletes the binding with just these arguments, or finds it gone.
func (c *Conn) unbind(b topology.Binding) error {
	err := c.onChannel(func(ch *amqp.Channel) error {
		if b.DestinationType == topology.ToExchange {
			return ch.ExchangeUnbind(b.Destination, b.Key, b.Source, false, table(b.Arguments))
		}
		return ch.QueueUnbind(b.Destination, b.Key, b.Source, table(b.Arguments))
	})
	if errors.Is(err, ErrNotFound) {
		return nil // one of its ends is gone, and it with that
	}
	return err
}

// onChannel uses a channel that nobody else uses meanwhile, and keeps it for the
// next use. The broker closes one on which something fails.
func (c *Conn) onChannel(use func(*amqp.Channel) error) error {
	var ch *amqp.Channel
	select {
	case ch = <-c.spare:
	default:
		var err error
		if ch, err = c.conn.Channel(); err != nil {
			return c.explain(err)
		}
	}
	if err := use(ch); err != nil {
		return c.explain(err)
	}
	select {
	case c.spare <- ch:
		return nil
	default:
		return ch.Close()
	}
}

// explain turns what the broker answers to a declaration into words.
func (c *Conn) explain(err error) error {
	var e *amqp.Error
	if !errors.As(err, &e) {
		return tell(ErrUnreachable, "the AMQP connection to %s ended: %s", c.endpoint.AMQP, oneLine(err.Error()))
	}
	switch reason := oneLine(e.Reason); e.Code {
	case amqp.NotFound:
		return tell(ErrNotFound, "%s", reason)
	case amqp.PreconditionFailed:
		if strings.Contains(reason, reasonInequal) {
			return tell(ErrInequivalent, "it exists and differs: %s", reason)
		}
		return tell(ErrRefused, "the broker refuses it: %s", reason)
	case amqp.AccessRefused:
		return tell(ErrForbidden, "user %q lacks a permission (configure, write or read) for this in vhost %q: %s",
			c.endpoint.AMQP.User, c.endpoint.VHost, giveRights(c.endpoint.AMQP.User))
	case amqp.ConnectionForced, amqp.FrameError, amqp.ChannelError:
		return tell(ErrUnreachable, "the AMQP connection to %s ended: %d %s", c.endpoint.AMQP, e.Code, reason)
	default:
		return tell(ErrRefused, "the broker refuses it: %d %s", e.Code, reason)
	}
}

// table gives arguments as AMQP takes them.
func table(args topology.Arguments) amqp.Table {
	out := amqp.Table{}
	for name, v := range args {
		out[name] = fieldValue(v)
	}
	return out
}

func fieldValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return table(v)
	case topology.Arguments:
		return table(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = fieldValue(v[i])
		}
		return out
	default:
		return v
	}
}
