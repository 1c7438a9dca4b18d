package processor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// firstLook is the pause before what is missing is looked for. It doubles each time: it may be
	// missing for days, and the broker logs each look.
	firstLook = time.Second
	// longestLook is the longest pause.
	longestLook = 10 * time.Second
	// bindTime is how long an exchange that was missing may have no binding for a message: apply binds
	// it in later steps than it creates it.
	bindTime = 30 * time.Second
)

// unavailable is an exchange while nothing can be published to it: it does not exist, or
// the user has no permission. A publish would close the channel, and everything in flight
// on it would have to be done again, and again. So what must go to the unroutable queue
// waits, what should wait for the end of an outage is decided as if there were none, and
// all else goes on.
//
// It looks over a connection of its own: on that of the deliveries an answer may be
// behind those that wait for memory.
type unavailable struct {
	*failedQueue
	exchange string
	check    func(*amqp.Conn) (bool, error) // reports whether it is available

	mu        sync.Mutex
	available bool // again
}

// findUnavailable looks for the exchanges of the backoff before anything is consumed.
// Without the one to which all retries go there is nothing to do but wait, and neither is
// there at the start without the tiers: the file may not be applied yet, or not be the one
// that was. Later, a change that removes a tier does not stop the others. With
// UntilEmpty no message may wait, also none for another exchange.
func (q *failedQueue) findUnavailable(ctx context.Context, in *amqp.Conn) (unavailables, error) {
	if !q.checked {
		if err := check(ctx, in, q.Topology, q.backoff, q.Log); err != nil {
			return nil, err
		}
		q.checked = true
	}
	needed := []string{q.backoff.RetryExchange}
	if q.UntilEmpty {
		needed = append(needed, topology.UnroutableName(q.Topology.Name))
		if q.delay != nil {
			needed = append(needed, q.delay.To)
		}
	}
	for _, exchange := range needed {
		if err := checkExchange(in, exchange); err != nil {
			return nil, err
		}
		if err := q.checkPermission(in, exchange); err != nil {
			return nil, err
		}
	}
	var out unavailables
	u, err := q.lookFor(in, topology.UnroutableName(q.Topology.Name))
	if err != nil {
		return nil, err
	}
	if u != nil {
		out = append(out, u)
		q.Log.ErrorContext(ctx, "nothing can be published to the exchange of the unroutable queue: unroutable messages wait; "+
			"'dlxctl apply' creates it, 'dlxctl rights' prints the right", "exchange", u.exchange)
	}
	if q.delay != nil {
		if u, err = q.lookFor(in, q.delay.To); err != nil {
			return nil, err
		}
		if u != nil {
			out = append(out, u)
			q.Log.ErrorContext(ctx, "nothing can be published to the exchange of a delay: messages that are due wait; "+
				"'dlxctl plan' shows whether it is missing or internal, 'dlxctl rights' prints the right", "exchange", u.exchange, "delay", q.delay.Name)
		}
	}
	if q.outages == nil {
		return out, nil
	}
	if u, err = q.lookFor(in, q.backoff.Outage.Exchange()); err != nil {
		return nil, err
	}
	if u != nil {
		out = append(out, u)
		q.Log.WarnContext(ctx, "nothing can be published to the exchange of outages: messages die after their tiers; "+
			"'dlxctl apply' creates it, 'dlxctl rights' prints the right", "exchange", u.exchange)
	}
	return out, nil
}

// lookFor looks for an exchange. It returns nil if the user can publish to it.
func (q *failedQueue) lookFor(in *amqp.Conn, exchange string) (*unavailable, error) {
	u := &unavailable{failedQueue: q, exchange: exchange}
	if q.caution.Refused(exchange) {
		may, err := in.MayPublish(exchange)
		if err != nil || may {
			q.caution.Permitted(exchange)
			return nil, err
		}
		u.check = func(conn *amqp.Conn) (bool, error) { return conn.MayPublish(exchange) }
		q.shared.sawUnavailable(exchange)
		return u, nil
	}
	if exists, err := in.HasExchange(exchange); err != nil || exists {
		return nil, err
	}
	u.check = func(conn *amqp.Conn) (bool, error) { return conn.HasExchange(exchange) }
	q.shared.sawUnavailable(exchange)
	return u, nil
}

// checkPermission fails while the user may not publish to an exchange.
func (q *failedQueue) checkPermission(in *amqp.Conn, exchange string) error {
	if !q.caution.Refused(exchange) {
		return nil
	}
	switch may, err := in.MayPublish(exchange); {
	case err != nil:
		return err
	case !may:
		return fmt.Errorf("%w: user %q may not publish to exchange %s; 'dlxctl rights' prints the command that grants it; if the exchange is internal, 'dlxctl plan' shows what to do",
			broker.ErrForbidden, q.Endpoint.AMQP.User, exchange)
	}
	q.caution.Permitted(exchange)
	return nil
}

// unavailables are those of a failed queue.
type unavailables []*unavailable

// has reports whether nothing can be published to an exchange.
func (all unavailables) has(exchange string) bool {
	return slices.ContainsFunc(all, func(u *unavailable) bool { return u.exchange == exchange && u.lasts() })
}

// unbound reports whether an exchange may lack bindings: nothing can be published to it, or
// nothing could until a short time ago, as any queue of the processor has seen.
func (all unavailables) unbound(exchange string, s *shared) bool {
	return all.has(exchange) || s.unbound(exchange)
}

// watch checks them until they are available or ctx ends.
func (all unavailables) watch(ctx context.Context) {
	var each sync.WaitGroup
	for _, u := range all {
		each.Go(func() { u.watch(ctx) })
	}
	each.Wait()
}

func (u *unavailable) lasts() bool {
	u.probe.Active() // what waits does so on purpose
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.available
}

// watch checks the exchange until it is available or ctx ends.
func (u *unavailable) watch(ctx context.Context) {
	for pause := firstLook; wait.For(ctx, pause) == nil; pause = min(2*pause, longestLook) {
		if available, err := u.look(ctx); err != nil || !available {
			continue // the relay sees itself when its connections are over
		}
		u.shared.sawUnavailable(u.exchange) // it was until now
		u.mu.Lock()
		u.available = true
		u.mu.Unlock()
		u.Log.InfoContext(ctx, "the exchange can be published to again", "exchange", u.exchange)
		return
	}
}

// look checks over a connection of its own.
func (u *unavailable) look(ctx context.Context) (bool, error) {
	conn, err := amqp.Dial(ctx, u.endpoint(u.backoff.Name, "look"))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	return u.check(conn)
}
