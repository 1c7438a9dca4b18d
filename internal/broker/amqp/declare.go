package amqp

import (
	"errors"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/topology"
)

// Conditions are what the broker checks in the moment of a deletion.
type Conditions struct{ Unused, Empty bool }

// DeclareQueue creates a queue, or finds that it exists. It fails with ErrInequivalent if the queue
// exists and differs.
func (c *Conn) DeclareQueue(q topology.Queue) error {
	return c.onChannel(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(q.Name, q.Durable, q.AutoDelete, false, false, Table(q.Arguments))
		return err
	})
}

// DeleteQueue deletes a queue, or finds that it is gone. The broker checks the conditions for
// classic queues only. It fails with ErrRefused if they do not hold.
func (c *Conn) DeleteQueue(name string, only Conditions) error {
	return c.onChannel(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(name, only.Unused, only.Empty, false) // the caller is responsible for its messages
		return err
	})
}

// DeclareExchange creates an exchange, or finds that it exists. It fails with ErrInequivalent if
// the exchange exists and differs.
func (c *Conn) DeclareExchange(e topology.Exchange) error {
	return c.onChannel(func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(e.Name, e.Type, e.Durable, e.AutoDelete, e.Internal, false, Table(e.Arguments))
	})
}

// DeleteExchange deletes an exchange, or finds that it is gone. It fails with ErrRefused if the
// exchange has bindings and must not have any.
func (c *Conn) DeleteExchange(name string, only Conditions) error {
	err := c.onChannel(func(ch *amqp091.Channel) error { return ch.ExchangeDelete(name, only.Unused, false) })
	if errors.Is(err, broker.ErrNotFound) {
		return nil
	}
	return err
}

// Bind creates a binding, or finds that it exists.
func (c *Conn) Bind(b topology.Binding) error {
	return c.onChannel(func(ch *amqp091.Channel) error {
		if b.DestinationType == topology.ToExchange {
			return ch.ExchangeBind(b.Destination, b.Key, b.Source, false, Table(b.Arguments))
		}
		return ch.QueueBind(b.Destination, b.Key, b.Source, false, Table(b.Arguments))
	})
}

// Unbind deletes the binding with exactly these arguments, or finds that it is gone.
func (c *Conn) Unbind(b topology.Binding) error {
	err := c.onChannel(func(ch *amqp091.Channel) error {
		if b.DestinationType == topology.ToExchange {
			return ch.ExchangeUnbind(b.Destination, b.Key, b.Source, false, Table(b.Arguments))
		}
		return ch.QueueUnbind(b.Destination, b.Key, b.Source, Table(b.Arguments))
	})
	if errors.Is(err, broker.ErrNotFound) {
		return nil // one of its ends is gone, and the binding with it
	}
	return err
}

// onChannel calls use with a channel that it shares with no other goroutine, and keeps the channel
// for the next call. The broker closes a channel on which a request fails.
func (c *Conn) onChannel(use func(*amqp091.Channel) error) error {
	var ch *amqp091.Channel
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

// explain turns the broker's answer to a declaration into an error for the user.
func (c *Conn) explain(err error) error {
	var e *amqp091.Error
	if !errors.As(err, &e) {
		return broker.Errorf(broker.ErrUnreachable, "the AMQP connection to %s ended: %s", c.endpoint.AMQP,
			broker.OneLine(err.Error()))
	}
	reason := broker.OneLine(e.Reason)
	if endsConnection(e.Code) {
		return broker.Errorf(broker.ErrUnreachable, "the AMQP connection to %s ended: %d %s", c.endpoint.AMQP, e.Code, reason)
	}
	switch e.Code {
	case amqp091.NotFound:
		return broker.Errorf(broker.ErrNotFound, "%s", reason)
	case amqp091.PreconditionFailed:
		if strings.Contains(reason, broker.ReasonInequivalent) {
			return broker.Errorf(broker.ErrInequivalent, "it exists and differs: %s", reason)
		}
		return broker.Errorf(broker.ErrRefused, "the broker refuses it: %s", reason)
	case amqp091.AccessRefused:
		return broker.Errorf(broker.ErrForbidden,
			"user %q lacks a permission (configure, write or read) for this in vhost %q; %s",
			c.endpoint.AMQP.User, c.endpoint.VHost, broker.GrantHint(c.endpoint.AMQP.User))
	case amqp091.ResourceLocked:
		return broker.Errorf(broker.ErrInUse, "%s", reason)
	case amqp091.InternalError:
		return broker.Errorf(broker.ErrInternal, "the broker failed: %d %s", e.Code, reason)
	default:
		return broker.Errorf(broker.ErrRefused, "the broker refuses it: %d %s", e.Code, reason)
	}
}

// Table converts arguments or headers to the types of AMQP.
func Table(values map[string]any) amqp091.Table {
	out := amqp091.Table{}
	for name, v := range values {
		out[name] = fieldValue(v)
	}
	return out
}

func fieldValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Table(v)
	case topology.Arguments:
		return Table(v)
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
