package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// atOnce is how many legacy queues are drained at a time. Each takes two
// connections.
const atOnce = 8

// finish drains and retires the legacy queues, several at a time.
func (r *Runner) finish(ctx context.Context, moves []Move) error {
	step, finish, err := r.progress(ctx, moves)
	if err != nil {
		return err
	}
	defer finish()
	var mu sync.Mutex
	var waiting []error
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, m := range moves {
		group.Go(func() error {
			err := r.end(ctx, m, step)
			if errors.Is(err, ErrWaiting) || errors.Is(err, ErrVanished) {
				mu.Lock()
				defer mu.Unlock()
				waiting = append(waiting, err)
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", m.Legacy, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err // that some wait for others is less than this
	}
	return errors.Join(waiting...)
}

// progress begins to tell of all that waits in the legacy queues. The counts are
// those of AMQP: the statistics of quorum queues are up to 5 seconds old.
func (r *Runner) progress(ctx context.Context, moves []Move) (step, finish func(), err error) {
	conn, err := broker.Dial(ctx, r.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	var backlog int64
	for _, m := range moves {
		ready, err := conn.Queue(m.Legacy)
		if err != nil && !errors.Is(err, broker.ErrNotFound) {
			return nil, nil, err
		}
		backlog += int64(ready)
	}
	if r.Progress == nil || backlog == 0 {
		return func() {}, func() {}, nil
	}
	step, finish = r.Progress(backlog)
	return step, finish, nil
}

// end drains one legacy queue and deletes it.
func (r *Runner) end(ctx context.Context, m Move, step func()) error {
	h := m.newMover()
	h.tell = step
	state, err := r.unused(ctx, m)
	if err != nil {
		return err
	}
	refused := 0 // how often the broker did not delete the queue
	for began := time.Now(); m.find(state).legacy; {
		r.note(state, m, h)
		again, err := r.makeWay(ctx, m, state)
		if err != nil {
			return err
		}
		moved, err := r.empty(ctx, m, h, plan.FullAt(state, m.New))
		if again && moved > 0 {
			h.doubled += moved
			r.tell("drain: up to %s of these are doubled, as %s was bound again", number(moved, "message"), m.Legacy)
		}
		inUse := errors.Is(err, broker.ErrInUse)
		switch {
		case inUse && time.Since(began) >= r.Wait:
			return fmt.Errorf("%w: the queue %s has an exclusive consumer, beside which nobody else may consume: stop it and run migrate again", ErrWaiting, m.Legacy)
		case inUse, errors.Is(err, errBound):
			if err := pause(ctx, time.Second); err != nil {
				return err
			}
			if state, err = r.Management.Inspect(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return r.ended(ctx, m, h, err)
		case r.Until == Drain:
			state, err = r.Management.Inspect(ctx)
			if err != nil || state.Usage[m.Legacy].Ready == 0 {
				return err
			}
			continue
		}
		if state, err = r.retire(ctx, m, h); err != nil {
			return err
		}
		refused++
		// Once may be bad luck: a message came, or the broker still counts the consumer of the drain.
		if u := state.Usage[m.Legacy]; moved == 0 && refused > 1 && m.find(state).legacy && time.Since(began) >= r.Wait {
			return fmt.Errorf("%w: the queue %s is in use, so the broker does not delete it: it has %s, %d unacknowledged, and %s",
				ErrWaiting, m.Legacy, number(u.Ready, "message")+" ready", u.Unacknowledged, number(u.Consumers, "consumer"))
		}
	}
	return r.over(ctx, m, h, state)
}

// ended says how it goes on when a drain has ended early.
func (r *Runner) ended(ctx context.Context, m Move, h *mover, err error) error {
	var fed *fedError
	coming := errors.Is(err, errComing)
	switch {
	case coming && r.Until == Drain:
		return nil
	case (coming || errors.As(err, &fed)) && r.Forward:
		return r.forward(ctx, m)
	case coming:
		return fmt.Errorf("%w: somebody still publishes to the queue %s by its name; it is kept, and what comes goes on to %s while migrate runs: run it again, or with --forward", ErrWaiting, m.Legacy, m.New)
	case errors.As(err, &fed):
		return fmt.Errorf("%w: %w; %s is kept, and messages that come to it go on to %s while migrate runs: run it again, or with --forward", ErrWaiting, fed, m.Legacy, m.New)
	case errors.Is(err, errStuck):
		return h.stuck(m)
	}
	if state, lookErr := r.Management.Inspect(ctx); lookErr == nil && !m.find(state).legacy {
		return r.over(ctx, m, h, state) // it ended with the queue
	}
	return err
}

// over removes what is left when the legacy queue is gone, and says how the migration ended.
func (r *Runner) over(ctx context.Context, m Move, h *mover, state plan.State) error {
	if err := r.execute(ctx, m.rest(state)); err != nil {
		return err
	}
	if !h.deleted {
		return r.vanished(m, h)
	}
	doubled := "0 doubled"
	if h.doubled > 0 {
		doubled = "at most " + grouped(h.doubled) + " doubled"
	}
	r.tell("done: %s is now %s; this run moved %s, %s, %s", m.Legacy, m.New, grouped(h.moved.Load()), doubled, time.Since(r.began).Round(time.Second))
	return nil
}

// empty drains a queue and says what was moved.
func (r *Runner) empty(ctx context.Context, m Move, h *mover, fullAt int64) (moved int64, err error) {
	p := patience{idle: r.Idle, wait: r.Wait, stuck: max(r.Wait, leastStuck), fullAt: fullAt, bound: func(ctx context.Context) bool {
		state, err := r.Management.Inspect(ctx)
		return err == nil && len(m.find(state).onLegacy) > 0
	}}
	if r.Until == Drain {
		p.idle, p.wait = time.Second, 0
	} else {
		p.fed = r.unfed(m)
	}
	if r.Until != Drain && h.taken.Load() == 0 {
		r.tell("drain: moving what is left in %s, until nothing has come for %s", m.Legacy, r.Idle)
	}
	before := h.moved.Load()
	backlog, err := r.drain(ctx, m, h, p)
	moved = h.moved.Load() - before
	if n := min(moved, backlog); n > 0 {
		r.tell("drain: moved %s from %s to %s", number(n, "message"), m.Legacy, m.New)
	}
	if n := moved - backlog; n > 0 {
		r.tell("drain: %s came to %s since, by its name through the default exchange, and went on to %s", number(n, "message"), m.Legacy, m.New)
	}
	if h.again > 0 {
		r.tell("drain: %s had been delivered before and may be doubled, if a run was killed: %s", number(h.again, "message"), some(h.ids, h.again))
		h.doubled += h.again
		h.again, h.ids = 0, nil
	}
	if n := h.malformed; n > 0 {
		r.tell("drain: the x-death of %s was not written by RabbitMQ, and 3.x fails on it: it is in the header retry-x-death now", number(n, "message"))
		h.malformed = 0
	}
	if n := h.shortened; n > 0 {
		r.tell("drain: %s lost the x-death that the broker had added, which made the headers larger than the broker takes them", number(n, "message"))
		h.shortened = 0
	}
	return moved, err
}

// leastStuck is how long a new queue may take nothing before a drain gives up,
// however short the wait for others is.
const leastStuck = 10 * time.Second

// stuck says why a drain does not go on.
func (h *mover) stuck(m Move) error {
	why := "no confirm comes"
	if reason := h.refused.Load(); reason != nil {
		why = *reason
	}
	return fmt.Errorf("%w: %s does not take the messages of %s, which stay there: %s; mend that and run it again", ErrWaiting, m.New, m.Legacy, why)
}

// unused waits until nobody consumes from the legacy queue.
func (r *Runner) unused(ctx context.Context, m Move) (plan.State, error) {
	said := false
	for deadline := time.Now().Add(r.Wait); ; {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return state, err
		}
		consumers, err := r.consumers(ctx, state, m.Legacy)
		if err != nil {
			return state, err
		}
		if !said && !r.Now && consumers > 0 && r.Wait > 0 {
			r.tell("drain: waiting up to %s for %s of %s", r.Wait, number(consumers, "consumer"), m.Legacy)
			said = true
		}
		if r.Now || consumers == 0 {
			return state, nil
		}
		if !time.Now().Before(deadline) {
			return state, fmt.Errorf("%w: the queue %s has %s, which keep what is there; stop them and run migrate again, or drain now with --drain now", ErrWaiting, m.Legacy, number(consumers, "consumer"))
		}
		if err := pause(ctx, time.Second); err != nil {
			return state, err
		}
	}
}

// makeWay undoes a binding that somebody has made on the legacy queue since, and
// makes the exchange again by which the drain reaches the new queue. It reports
// whether there was such a binding.
func (r *Runner) makeWay(ctx context.Context, m Move, state plan.State) (again bool, err error) {
	again = len(m.find(state).onLegacy) > 0
	if m.Next(state, nil).Doing != "" {
		if err := r.cutover(ctx, []Move{m}); err != nil {
			return again, err
		}
		if state, err = r.Management.Inspect(ctx); err != nil {
			return again, err
		}
	}
	return again, r.execute(ctx, m.makeEnd(m.find(state), m.toNew()))
}

// retire deletes the legacy queue, if it is empty and unused: the broker looks
// at that in the moment in which it deletes a classic queue, and proves it a
// moment before for a quorum queue. If not, the queue stays and is drained again.
// That nobody publishes to it by name, the idle time has shown; that no queue
// dead-letters to it by name, unfed has.
func (r *Runner) retire(ctx context.Context, m Move, h *mover) (plan.State, error) {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return state, err
	}
	if len(m.find(state).onLegacy) > 0 {
		return state, nil // bound again meanwhile
	}
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == m.Legacy })
	if i < 0 {
		return state, nil
	}
	r.note(state, m, h)
	// The counts that prove a quorum queue empty must be newer than this moment.
	fresh := r.Management.Fresh()
	err = plan.Execute(ctx, fresh, plan.Plan{Changes: []plan.Change{remove(topology.KindQueue, m.Legacy, state.Have.Queues[i])}}, r.written)
	if errors.Is(err, broker.ErrRefused) {
		return state, pause(ctx, time.Second) // a message came, or our consumer is still in the statistics
	}
	if err != nil {
		return state, err
	}
	h.deleted = true
	r.tell("retire: deleted %s", m.Legacy)
	r.strand(state, m)
	return r.Management.Inspect(ctx)
}

// rest gives what is left when the legacy queue is gone: the exchange of the drain, and where the
// failures of a legacy queue of ours went.
func (m Move) rest(state plan.State) []plan.Change {
	var out []plan.Change
	if m.find(state).exchanges[m.toNew()] {
		c := remove(topology.KindExchange, m.toNew(), topology.Exchange{Name: m.toNew()})
		c.Hazards = []plan.Hazard{plan.DropsRouting} // nobody but the drain publishes to it
		out = append(out, c)
	}
	if p := m.find(state).forwarder; p != nil {
		out = append(out, remove(topology.KindPolicy, p.Name, *p))
	}
	for _, b := range state.Have.Bindings {
		owner, _ := topology.Owner(b.Arguments)
		if b.Source == topology.FailedExchangeName(m.Topology) && b.Key == topology.AddressKey(m.Legacy) && owner == m.Topology {
			out = append(out, remove(topology.KindBinding, b.String(), b)) // nothing fails in the legacy queue any more
		}
	}
	return out
}

// shown is how many message-ids are named.
const shown = 10

// some names the first of a number of messages.
func some(ids []string, n int64) string {
	list := strings.Join(ids, ", ")
	if more := n - int64(len(ids)); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
