package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
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
			err := r.finishMove(ctx, m, step)
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
		return err // it matters more than those that wait
	}
	return errors.Join(waiting...)
}

// progress starts the progress of all messages that wait in the legacy queues. The counts
// come from AMQP: the statistics of quorum queues are up to 5 seconds old.
func (r *Runner) progress(ctx context.Context, moves []Move) (step, finish func(), err error) {
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	var backlog int64
	for _, m := range moves {
		ready, err := conn.MessagesReady(m.Legacy)
		if err != nil && !errors.Is(err, broker.ErrNotFound) {
			return nil, nil, err
		}
		backlog += int64(ready)
	}
	if r.Progress == nil || backlog == 0 || r.Parallel > 0 {
		return func() {}, func() {}, nil
	}
	step, finish = r.Progress(backlog)
	return step, finish, nil
}

// finishMove drains one legacy queue and deletes it.
func (r *Runner) finishMove(ctx context.Context, m Move, step func()) error {
	h := r.resumeMover(m)
	h.step = step
	state, err := r.waitForConsumers(ctx, m)
	if err != nil {
		return err
	}
	refused := 0 // how many times the broker did not delete the queue
	told := ""   // which run of the desk the queue stays for
	for began := time.Now(); m.find(state).legacy; {
		r.remember(state, m)
		again, err := r.repairCutover(ctx, m, state)
		if err != nil {
			return err
		}
		suspect := h.sinceUnbound(r.takeRebound(m) || again)
		moved, err := r.drainLegacy(ctx, m, h, state)
		if suspect != nil {
			r.reportRebound("drain", m, h, *suspect+moved)
		}
		inUse := errors.Is(err, broker.ErrInUse)
		switch {
		case inUse && time.Since(began) >= r.Wait:
			return fmt.Errorf("%w: the queue %s has an exclusive consumer, so dlxctl cannot consume; stop that consumer and run migrate again",
				ErrWaiting, m.Legacy)
		case inUse, errors.Is(err, errBound):
			if err := wait.For(ctx, time.Second); err != nil {
				return err
			}
			if state, err = r.inspect(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return r.drainEnded(ctx, m, h, err)
		case r.Until == Drain:
			state, err = r.inspect(ctx)
			if err != nil || state.Usage[m.Legacy].Ready == 0 {
				return err
			}
			continue
		}
		if state, err = r.retire(ctx, m, h); err != nil {
			return err
		}
		sends := plan.DeskSends(m.Legacy, state.Have.Bindings)
		if sends != told && sends != "" {
			r.say("retire: the queue %s stays for now: %s", m.Legacy, sends)
		}
		told = sends
		refused++
		// The first refusal says little: a message came, or the broker still counts the
		// consumer of the drain.
		if u := state.Usage[m.Legacy]; moved == 0 && refused > 1 && m.find(state).legacy && time.Since(began) >= r.Wait {
			has := fmt.Sprintf("it has %s ready, %s, and %s", messages(u.Ready), u.NotReady(),
				text.Count(u.Consumers, "consumer"))
			return fmt.Errorf("%w: the queue %s is in use, so it is not deleted: %s", ErrWaiting, m.Legacy,
				cmp.Or(sends, has))
		}
	}
	return r.cleanUp(ctx, m, h, state)
}

// drainEnded decides what follows when a drain has ended early.
func (r *Runner) drainEnded(ctx context.Context, m Move, h *mover, err error) error {
	err = r.whoSends(ctx, m, h, err)
	fed, isFed := errors.AsType[*fedError](err)
	coming, byName := errors.Is(err, errComing), errors.Is(err, errByName)
	switch {
	case coming && r.Until == Drain:
		return nil
	case (coming || byName || isFed) && r.Forward:
		why := "publishers send to its name"
		if isFed {
			why = fed.text
		}
		return r.forward(ctx, m, why)
	case coming:
		return fmt.Errorf("%w: a publisher still sends to the queue %s by its name; the queue is kept, and migrate moves what comes to %s while it runs; %s",
			ErrWaiting, m.Legacy, m.New, m.WaysOut())
	case byName:
		return fmt.Errorf("%w: the queue %s is kept: %w; however rarely they send, the broker drops what they send once the queue is deleted; %s",
			ErrWaiting, m.Legacy, err, m.WaysOut())
	case isFed:
		return fmt.Errorf("%w: %w; %s is kept, and migrate moves what comes to %s while it runs; run it again, or with %s",
			ErrWaiting, fed, m.Legacy, m.New, cmp.Or(fed.advice, "--forward"))
	case errors.Is(err, errStuck):
		return h.stuck(m)
	}
	if state, lookErr := r.inspect(ctx); lookErr == nil && !m.find(state).legacy {
		return r.cleanUp(ctx, m, h, state) // it ended with the queue
	}
	return err
}

// whoSends returns err, or in place of errComing why messages come that no publisher has sent to
// the name of the legacy queue: the drain has seen none of these, so they come from feeders. Where
// others can put messages there, these do not end, however long migrate waits.
func (r *Runner) whoSends(ctx context.Context, m Move, h *mover, err error) error {
	if !errors.Is(err, errComing) || r.Until == Drain || h.watched.seen.Load() {
		return err
	}
	state, failed := r.inspect(ctx)
	list := feeders(state, m.Legacy)
	if failed != nil || len(list) == 0 {
		return err
	}
	if open := openError(m, list); open != nil {
		return open
	}
	fed := &fedError{text: fmt.Sprintf("messages still come back to %s by its name from %s", m.Legacy, names(list))}
	if ttl := within(list); ttl > 0 {
		fed.advice = longEnough(ttl)
	}
	return fed
}

// drainLegacy drains a queue and reports what was moved.
func (r *Runner) drainLegacy(ctx context.Context, m Move, h *mover, state topology.State) (moved int64, err error) {
	limits, err := r.room(ctx, m, state)
	if err != nil {
		return 0, err
	}
	limits.idle, limits.wait, limits.stuck = r.Idle, r.Wait, max(r.Wait, leastStuck)
	limits.fedWait = r.Wait
	limits.byName = m.watchLegacy(state)
	limits.bound = r.boundAgain(h, func(state topology.State) bool { return len(m.find(state).onLegacy) > 0 })
	if r.Until == Drain {
		limits.idle, limits.wait = time.Second, 0
	} else {
		var closes func()
		limits.feeders, closes = r.feedersEmpty(m, h)
		defer closes()
	}
	if r.Until != Drain && h.passes.Load() == 0 {
		r.say("drain: moving what is left in %s, until nothing has come for %s", m.Legacy, text.Duration(r.Idle))
	}
	before := h.moved.Load()
	backlog, err := r.drain(ctx, m, h, limits)
	moved = h.moved.Load() - before
	r.reportMoved(m, h, moved, backlog)
	if err == nil && r.Until != Drain {
		err = r.publishersGone(ctx, m)
	}
	return moved, err
}

// boundAgain returns a function that asks the broker whether the queue of a drain is bound, and
// notes what was moved before if it is not.
func (r *Runner) boundAgain(h *mover, bound func(topology.State) bool) func(context.Context) bool {
	return func(ctx context.Context) bool {
		before := h.moved.Load()
		state, err := r.inspect(ctx)
		if err == nil && !bound(state) {
			h.unbound.Store(before)
		}
		return err == nil && bound(state)
	}
}

// reportMoved reports what a drain has moved, and what it had to change.
func (r *Runner) reportMoved(m Move, h *mover, moved, backlog int64) {
	if n := min(moved, backlog); n > 0 {
		r.say("drain: moved %s from %s to %s", messages(n), m.Legacy, m.New)
	}
	if n := moved - backlog; n > 0 {
		r.say("drain: %s came to %s since, by its name through the default exchange: moved to %s",
			messages(n), m.Legacy, m.New)
	}
	r.reportChanged("drain", h)
}

// reportChanged reports what a mover had to change, and which messages may be doubled. stage is
// drain or replace.
func (r *Runner) reportChanged(stage string, h *mover) {
	r.reportAgain(stage, h)
	if n := h.malformed; n > 0 {
		r.say("%s: the x-death of %s was not written by RabbitMQ, and 3.x fails on it; it was moved to the header retry-x-death",
			stage, messages(n))
		h.malformed = 0
	}
	if n := h.shortened; n > 0 {
		r.say("%s: %s lost the x-death header that the broker had added: with it the headers were larger than the broker accepts",
			stage, messages(n))
		h.shortened = 0
	}
}

// reportAgain reports how many of the moved messages had been delivered before. stage is drain,
// replace or abort.
func (r *Runner) reportAgain(stage string, h *mover) {
	if h.again > 0 {
		r.say("%s: %s had been delivered before; they are doubled if migrate was killed or lost its connection while they were in flight, and else not%s",
			stage, messages(h.again), listIDs(h.ids, h.again))
		h.doubled += h.again
		h.again, h.ids = 0, nil
	}
}

// takeRebound reports whether a cutover of this run has found that the legacy queue was bound
// again, and forgets it.
func (r *Runner) takeRebound(m Move) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	again := r.rebound[m.Legacy]
	delete(r.rebound, m.Legacy)
	return again
}

// sinceUnbound returns how many messages were moved since the legacy queue was last seen
// without bindings. Nil: it has none now, and had none.
func (h *mover) sinceUnbound(again bool) *int64 {
	moved := h.moved.Load()
	if !again {
		h.unbound.Store(moved) // the broker was read before this, and nothing was moved since
		return nil
	}
	n := moved - h.unbound.Load()
	return &n
}

// reportRebound reports how many messages may have come to both queues, because the legacy queue
// was bound again: all that were moved since it was last seen without bindings. stage is drain or
// abort.
func (r *Runner) reportRebound(stage string, m Move, h *mover, n int64) {
	h.unbound.Store(h.moved.Load())
	if n > 0 {
		h.doubled += n
		r.say("%s: up to %s of these are doubled, because %s was bound again", stage, messages(n), m.Legacy)
	}
}

// leastStuck is how long a successor may accept nothing before a drain gives up, however
// short --wait is.
const leastStuck = 10 * time.Second

// waitForConsumers waits until the legacy queue has no consumers, and keeps it unbound meanwhile.
func (r *Runner) waitForConsumers(ctx context.Context, m Move) (topology.State, error) {
	said, rebound := false, ""
	for deadline := time.Now().Add(r.Wait); ; {
		state, again, err := r.keepUnbound(ctx, m)
		if err != nil {
			return state, err
		}
		if again {
			rebound = ", and it was bound again; the next time, messages come to both queues until migrate runs again"
		}
		consumers, err := r.consumers(ctx, state, m.Legacy)
		if err != nil {
			return state, err
		}
		if !said && !r.DrainNow && consumers > 0 && r.Wait > 0 {
			r.say("drain: waiting up to %s for %s of %s", text.Duration(r.Wait), text.Count(consumers, "consumer"), m.Legacy)
			said = true
		}
		if r.DrainNow || consumers == 0 {
			return state, nil
		}
		if !time.Now().Before(deadline) {
			return state, fmt.Errorf("%w: the queue %s still has %s%s; %sstop them and run migrate again, or use --drain now",
				ErrWaiting, m.Legacy, text.Count(consumers, "consumer"), rebound, r.unread(ctx, state, m))
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return state, err
		}
	}
}

// keepUnbound reads the broker. If a service has bound the legacy queue again, keepUnbound removes
// that first, and reports it: old consumers process at once what comes by it to both queues.
func (r *Runner) keepUnbound(ctx context.Context, m Move) (state topology.State, again bool, err error) {
	if state, err = r.inspect(ctx); err != nil || len(m.find(state).onLegacy) == 0 {
		return state, false, err
	}
	if again, err = r.repairCutover(ctx, m, state); err != nil {
		return state, again, err
	}
	state, err = r.inspect(ctx)
	return state, again, err
}

// repairCutover removes bindings that a service has made on the legacy queue since the
// cutover, and creates the exchange again by which the drain reaches the successor. It
// reports whether there was such a binding.
func (r *Runner) repairCutover(ctx context.Context, m Move, state topology.State) (again bool, err error) {
	again = len(m.find(state).onLegacy) > 0
	if m.next(state, nil).Doing != "" {
		if err := r.cutover(ctx, []Move{m}); err != nil {
			return again, err
		}
		if state, err = r.inspect(ctx); err != nil {
			return again, err
		}
	}
	return again, r.execute(ctx, m.makeEnd(m.find(state), m.successorEnd()))
}
