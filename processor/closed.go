package processor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// absenceTime is how long an exchange that is not there is not looked for.
	absenceTime = time.Second
	// rightTime is how long a right that is lacking is not tried again.
	rightTime = 10 * time.Second
)

// closed is the exchange for what is unroutable while nothing can be published to
// it: it is not there, or the user may not. A publish would close the channel, and
// everything in flight on it would have to be done again, and again. So what must
// be parked waits, and all else goes on.
//
// It looks over a connection of its own: on that of the deliveries an answer may be
// behind those that wait for memory.
type closed struct {
	*line
	exchange string
	every    time.Duration
	open     func(*broker.Conn) (bool, error)

	mu   sync.Mutex
	over bool // it can be published to again
}

// closedExchanges looks for the exchanges of the loop before anything is consumed.
// Without the one to which all retries go there is nothing to do but wait. It gives
// nil if both take messages.
func (l *line) closedExchanges(ctx context.Context, in *broker.Conn) (*closed, error) {
	there, err := in.HasExchange(l.loop.Exchange)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%w: exchange %s", broker.ErrNotFound, l.loop.Exchange)
	}
	if err := l.permitted(in); err != nil {
		return nil, err
	}
	c := &closed{line: l, exchange: topology.UnroutableName(l.Topology.Name)}
	if l.caution.Refused(c.exchange) {
		may, err := in.MayPublish(c.exchange)
		if err != nil || may {
			l.caution.Permitted(c.exchange)
			return nil, err
		}
		c.every, c.open = rightTime, func(conn *broker.Conn) (bool, error) { return conn.MayPublish(c.exchange) }
		return c, nil
	}
	if there, err = in.HasExchange(c.exchange); err != nil || there {
		return nil, err
	}
	l.Log.ErrorContext(ctx, "an exchange is not there: what must be parked waits; 'dlxctl apply' makes it", "exchange", c.exchange)
	c.every, c.open = absenceTime, func(conn *broker.Conn) (bool, error) { return conn.HasExchange(c.exchange) }
	return c, nil
}

// permitted fails while the user may not publish to the exchange of the retries.
func (l *line) permitted(in *broker.Conn) error {
	if !l.caution.Refused(l.loop.Exchange) {
		return nil
	}
	switch may, err := in.MayPublish(l.loop.Exchange); {
	case err != nil:
		return err
	case !may:
		return fmt.Errorf("%w: user %q lacks write on exchange %s; 'dlxctl rights' prints the command that grants it",
			broker.ErrForbidden, l.Endpoint.AMQP.User, l.loop.Exchange)
	}
	l.caution.Permitted(l.loop.Exchange)
	return nil
}

// has reports whether a message for an exchange must wait. None does if c is nil.
func (c *closed) has(exchange string) bool {
	if c == nil || exchange != c.exchange {
		return false
	}
	c.probe.touch() // it waits on purpose
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over
}

// watch looks now and then, until the exchange takes messages or ctx ends.
func (c *closed) watch(ctx context.Context) {
	for wait(ctx, c.every) {
		if open, err := c.look(ctx); err != nil || !open {
			continue // the relay sees itself when its connections are over
		}
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		return
	}
}

// look looks over a connection of its own.
func (c *closed) look(ctx context.Context) (bool, error) {
	conn, err := broker.Dial(ctx, c.endpoint(c.loop.Backoff, "look"))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	return c.open(conn)
}
