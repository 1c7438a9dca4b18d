package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Abort rolls back the migrations whose legacy queue still exists. without gives the
// topology without the successors of the legacy queues it is given: Abort asks for those
// that are rolled back, and for no others. Abort may be stopped at any moment and run again.
//
// The relay moves messages that wait in a successor back to its legacy queue; messages
// that wait in a tier return there too. What migrate created is deleted when it is proved
// empty. A queue that holds dead letters stays, and the error names it.
func (r *Runner) Abort(ctx context.Context, without func(legacy []string) (topology.Compiled, error)) error {
	r.prepareRun()
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	moves, done, err := Abortable(r.Topology, state, r.Legacy)
	if err != nil {
		return err
	}
	for _, line := range done {
		r.say("abort: %s", line)
	}
	if err := r.abortReplacements(ctx, state); err != nil {
		return err
	}
	if len(moves) == 0 {
		return NotInFile(r.Topology, state, r.Legacy)
	}
	if r.CheckRights != nil {
		if err := r.CheckRights(rightsOf(r.Topology, state, moves)); err != nil {
			return err
		}
	}
	if err := r.removeForwarders(ctx, moves); err != nil {
		return err
	}
	if err := r.cutoverBack(ctx, moves); err != nil {
		return err
	}
	// A successor that has to wait does not keep the others: each has its own queues.
	var free []Move
	var legacy []string
	var waiting []error
	for _, m := range moves {
		err := r.returnMessages(ctx, m)
		if err == nil {
			err = r.checkSuccessorFeeders(ctx, m)
		}
		switch {
		case errors.Is(err, ErrWaiting):
			waiting = append(waiting, err)
		case err != nil:
			return err
		default:
			free, legacy = append(free, m), append(legacy, m.Legacy)
		}
	}
	if len(free) > 0 {
		rest, err := without(legacy)
		if err == nil {
			err = r.rollBack(ctx, rest, free)
		}
		if err != nil {
			waiting = append(waiting, err)
		}
	}
	return joinErrors(waiting...)
}

// cutoverBack takes the steps that route messages to the legacy queues again.
func (r *Runner) cutoverBack(ctx context.Context, moves []Move) error {
	return r.converge(ctx, func(state topology.State) (changes []plan.Change, err error) {
		for _, m := range moves {
			step, err := r.ensureSwitch(m, state)
			if err == nil && step.Doing == "" {
				step = m.nextBack(state)
			}
			if err != nil {
				return nil, err
			}
			if step.Doing != "" {
				r.say("abort: %s", step.Doing)
			}
			if step.Doubled {
				r.say("abort: the queue %s was bound again: until %s, messages that match this binding come to both queues; those that its consumers take are not counted",
					m.New, clock(time.Now()))
			}
			r.mu.Lock()
			r.rebound[m.New] = r.rebound[m.New] || step.Doubled
			err = r.unbinds(state, step, m.New, "abort")
			r.mu.Unlock()
			if err != nil {
				return nil, err
			}
			changes = append(changes, step.Changes...)
		}
		return changes, nil
	})
}

// checkSuccessorFeeders fails if messages can still come to the successor by its name,
// from a queue that dead-letters to it: a home-made retry queue was changed to do so, and
// rollBack would delete the queue that its messages need.
func (r *Runner) checkSuccessorFeeders(ctx context.Context, m Move) error {
	err := r.checkFeeders(ctx, Move{Topology: m.Topology, Legacy: m.New, New: m.Legacy}, nil, func(error) {})
	if fed, ok := errors.AsType[*fedError](err); ok {
		return fmt.Errorf("%w: messages go to the legacy queue, and nothing is lost; %s is kept: %w; then run abort again",
			ErrWaiting, m.New, fed)
	}
	return err
}

// returnMessages moves the messages of the successor to the legacy queue, and waits for
// those that return there from a tier.
func (r *Runner) returnMessages(ctx context.Context, m Move) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == name })
	}
	if !has(m.New) {
		return nil
	}
	// A drain in the other direction: from the successor.
	reverse := Move{Topology: m.Topology, Legacy: m.New, New: m.Legacy}
	h := r.startMover(reverse)
	h.to = m.legacyEnd()
	if waiting := state.Usage[m.New].Ready; r.Progress != nil && waiting > 0 {
		step, finish := r.Progress(waiting)
		h.step = step
		defer finish()
	}
	limits, err := r.room(ctx, reverse, state)
	if err != nil {
		return err
	}
	limits.idle, limits.wait, limits.stuck = time.Second, r.Wait, max(r.Wait, leastStuck)
	limits.byName = m.watchSuccessor(state)
	if !limits.paced {
		limits.fullAt = 0 // a successor without messages need not wait for a full legacy queue
	}
	limits.bound = r.boundAgain(h, func(state topology.State) bool { return len(m.find(state).onSuccessor) > 0 })
	var deadline time.Time // of all waits for the tiers: a service may bind the successor each minute
	for again := true; again; {
		err := r.drainBack(ctx, m, reverse, h, limits)
		switch {
		case errors.Is(err, errStuck):
			return h.stuck(reverse)
		case errors.Is(err, errComing):
			return fmt.Errorf("%w: a publisher still sends to the queue %s by its name; stop it and run abort again",
				ErrWaiting, m.New)
		case err != nil:
			return err
		}
		deadline = firstOf(deadline, time.Now().Add(r.Wait))
		err = r.tiersEmpty(ctx, m, deadline)
		if again = errors.Is(err, errNotEmpty); err != nil && !again {
			return err
		}
	}
	return r.successorUnused(ctx, m)
}

// errNotEmpty says that the successor has to be drained again: a consumer has given messages back,
// or a service has bound it.
var errNotEmpty = errors.New("messages are in the successor again, or come to it")

// drainBack drains the successor of m, and takes it out of the bindings that a service gives it
// meanwhile: what comes by them comes to the legacy queue too.
func (r *Runner) drainBack(ctx context.Context, m, reverse Move, h *mover, limits drainLimits) error {
	for {
		err := r.converge(ctx, func(state topology.State) ([]plan.Change, error) {
			f := m.find(state)
			return append(m.makeEnd(f, m.legacyEnd()), m.makeEnd(f, m.successorEnd())...), nil // see byNameMark
		})
		if err != nil {
			return err
		}
		before, suspect := h.moved.Load(), h.sinceUnbound(r.takeRebound(reverse))
		_, err = r.drain(ctx, reverse, h, limits)
		n := h.moved.Load() - before
		if n > 0 {
			r.say("abort: moved %s from %s back to %s", messages(n), m.New, m.Legacy)
		}
		r.reportAgain("abort", h)
		if suspect != nil {
			r.reportRebound("abort", reverse, h, *suspect+n)
		}
		if again := errors.Is(err, errBound) || err == nil && limits.bound(ctx); !again {
			return err
		}
		if err := r.cutoverBack(ctx, []Move{m}); err != nil {
			return err
		}
	}
}

// tiersEmpty waits for the successor's messages that are in the failed queue or in a tier
// of its backoff: they return to the legacy queue, so their return path must stay until
// then. Other queues may share the backoff, and their messages may fail all the time. So
// the wait ends in one of two states:
//
//   - the failed queue and all tiers were empty for longer than counts can be old (lag);
//   - the failed queue was empty once, and the longest delay and lag have passed since: by
//     then the successor's messages were in a tier or in the dead-letter queue. Since then
//     each tier was seen with no message on its way out. There is each one whose delay is
//     over, also one that a full queue refuses, or one behind 32 of those.
//
// While messages are there after deadline, it fails with ErrWaiting. It fails with errNotEmpty if
// the successor has had ready messages for longer than lag, as no tier returns those, and at once
// if it is bound again: messages come to both queues until drainBack unbinds it.
func (r *Runner) tiersEmpty(ctx context.Context, m Move, deadline time.Time) error {
	work, _ := r.Topology.WorkQueue(m.New)
	backoff, ok := r.Topology.Backoff(work.Backoff)
	if !ok {
		return nil
	}
	longest, tiers := longestWait(backoff), retryQueues(backoff)
	const lag = broker.Tick + 2*time.Second // so old can counts be, with a margin
	begun := time.Now()
	var empty, failedEmpty time.Time // since when all queues are empty, and when the failed queue was
	var ready time.Time              // since when the successor has had ready messages
	passed := map[string]bool{}      // the tiers that none of the successor's messages is in any more
	for {
		state, err := r.inspect(ctx)
		if err != nil {
			return err
		}
		holds := func(queue string) int64 { return state.Usage[queue].Ready + state.Usage[queue].Unacknowledged }
		failed, now := holds(m.New)+holds(backoff.FailedQueue), time.Now()
		held := failed
		for _, q := range tiers {
			held += holds(q)
		}
		switch {
		case len(m.find(state).onSuccessor) > 0:
			return errNotEmpty
		case state.Usage[m.New].Ready == 0:
			ready = time.Time{}
		case ready.IsZero():
			ready = now
		case now.Sub(ready) > lag:
			return errNotEmpty
		}
		switch {
		case held > 0:
			empty = time.Time{}
		case empty.IsZero():
			empty = now
		}
		switch {
		case holds(m.New) > 0: // a consumer still has it, and may reject it
			failedEmpty = time.Time{}
			clear(passed)
		case failed == 0 && failedEmpty.IsZero() && now.Sub(begun) > lag:
			failedEmpty = now
		}
		over := !failedEmpty.IsZero() && now.Sub(failedEmpty) > longest+lag
		for _, q := range tiers {
			passed[q] = passed[q] || over && state.Usage[q].Unacknowledged == 0
		}
		inTier := slices.ContainsFunc(tiers, func(q string) bool { return !passed[q] })
		switch {
		case !empty.IsZero() && now.Sub(empty) > lag, over && !inTier:
			return nil
		case held > 0 && now.After(deadline):
			return fmt.Errorf("%w: %s in the tiers and the failed queue of the backoff %s; those of %s return to %s, if need be after those that a full queue refuses; run abort again when they have returned",
				ErrWaiting, messages(held), backoff.Name, m.New, m.Legacy)
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// longestWait returns how long a message of a backoff waits at most.
func longestWait(b topology.Backoff) time.Duration {
	if b.Outage != nil && b.Outage.Rate > 0 {
		return topology.LongestOutageTier
	}
	longest := time.Duration(0) // of a backoff without tiers
	for _, tier := range b.AllTiers() {
		longest = max(longest, tier.Delay)
	}
	return longest
}

// retryQueues returns the retry queues of a backoff. Tiers may share one.
func retryQueues(b topology.Backoff) []string {
	var out []string
	for _, tier := range b.AllTiers() {
		if !slices.Contains(out, tier.Queue) {
			out = append(out, tier.Queue)
		}
	}
	return out
}
