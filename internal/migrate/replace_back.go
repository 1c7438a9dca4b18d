package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// unpark returns the next step that lets the switch exchange lead to the queue again. What comes
// through the switch exchange has a route all the time.
func (m Move) unpark(state topology.State) cutoverStep {
	f := m.find(state)
	if !f.exchanges[m.switchName()] {
		return cutoverStep{} // nothing leads to the hold
	}
	if made := m.makeSwitch(state, f, m.successorEnd()); len(made) > 0 {
		return cutoverStep{Doing: "create the switch exchange of " + m.Legacy, Changes: made}
	}
	if f.policy.Definition[topology.ArgAlternateExchange] == m.legacyEnd() {
		return cutoverStep{}
	}
	if step := m.keepParked(f); step.Doing != "" {
		return step
	}
	return cutoverStep{
		Doing:   "switch from its hold to " + m.Legacy,
		Changes: []plan.Change{m.pointSwitch(state, f, m.legacyEnd())},
	}
}

// giveBack moves what is in the hold to the queue, lets the switch lead there, binds the queue
// again, and removes the hold, once check agrees. It is the second half of a replacement, and all
// of a rollback. It fails with errGone if the queue or the hold is not there. state was read just
// now: to read it again would lengthen the pause of the consumers.
func (r *Runner) giveBack(ctx context.Context, m Move, state topology.State,
	check func(context.Context, Move) error,
) (err error) {
	safe := time.Now().Add(amqp.SafeAge) // the queue may just have been declared
	var refused time.Time                // since when the hold cannot be deleted
	for first := true; ; first = false {
		if !first {
			if state, err = r.inspect(ctx); err != nil {
				return err
			}
		}
		f := m.find(state)
		if !f.successor || !f.legacy {
			return errGone
		}
		parked := m.unpark(state).Doing != ""
		ready, err := r.readyIn(ctx, m.New)
		if err != nil {
			return err
		}
		if parked || ready > 0 {
			if err := r.queueAnswers(ctx, m, state); err != nil {
				return err
			}
			if err := r.execute(ctx, append(m.makeEnd(f, m.legacyEnd()), m.makeEnd(f, m.successorEnd())...)); err != nil {
				return err
			}
			if err := r.emptyHold(ctx, m, state, safe); err != nil {
				return err
			}
			continue
		}
		if err := r.steps(ctx, m, m.nextBack); err != nil {
			return err
		}
		if err := check(ctx, m); err != nil {
			return err
		}
		if left := time.Until(r.holdFailed(m, state).Add(workerLife)); left > 0 {
			// A worker that finds the queue ends no more than itself, see slowDeclaration.
			r.say("%s gets its messages; its hold, which the broker failed to declare once, is deleted in %s", m.Legacy,
				text.Took(left))
			if err := wait.For(ctx, left); err != nil {
				return err
			}
		}
		if err = r.removeHold(ctx, m); err == nil {
			return r.checkBound(ctx, m)
		}
		if !errors.Is(err, broker.ErrRefused) {
			return err
		}
		if refused.IsZero() {
			refused = time.Now()
		}
		if time.Since(refused) >= r.Wait {
			return fmt.Errorf("%w: %s gets its messages, but its hold cannot be deleted: %w; a consumer of the hold has messages of it, or messages that expired there cannot be dead-lettered yet; run the command again",
				ErrWaiting, m.Legacy, err)
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// queueAnswers makes sure that the queue has a leader before messages are routed to it, unless this
// run has declared it: the declaration of a run that was killed may be under way. Until it fails,
// the broker lists the queue, and then deletes it with its bindings (541): the switch would lead
// nowhere.
func (r *Runner) queueAnswers(ctx context.Context, m Move, state topology.State) error {
	isQuorum := slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool {
		return q.Name == m.Legacy && q.Type() == topology.Quorum
	})
	if r.tallyOf(m).declared || !isQuorum {
		return nil
	}
	ready, err := r.readyIn(ctx, m.Legacy)
	if err != nil || ready > 0 { // to ask a queue that has messages changes their order
		return err
	}
	conn, err := amqp.Dial(ctx, r.Endpoint)
	if err != nil {
		return err
	}
	// A single active consumer is a reason of the leader to refuse the question.
	if err = answers(ctx, conn, m.Legacy); err == nil || errors.Is(err, broker.ErrInUse) || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: the queue %s must answer before messages are routed to it: %w; %s", ErrWaiting, m.Legacy, err,
		noLeader(m))
}

// noLeader says what to do about a queue that was declared by half.
func noLeader(m Move) string {
	return fmt.Sprintf("if the node was killed in the second after %s was declared, or its declaration was interrupted, the queue has no leader, and docs/same-name.md says how to go on; the hold keeps what was not moved",
		m.Legacy)
}

// restore rolls a replacement back: the queue is as it was.
func (r *Runner) restore(ctx context.Context, m Move) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	if f := m.find(state); f.legacy && !f.successor && !f.exchanges[m.switchName()] {
		return nil // nothing was begun
	}
	return r.giveBack(ctx, m, state, func(context.Context, Move) error { return nil })
}

// emptyHold moves what is in the hold to the queue, and lets the switch lead there. Until the queue
// is safe, see mover, the hold keeps all messages and stays on their way.
func (r *Runner) emptyHold(ctx context.Context, m Move, state topology.State, safe time.Time) error {
	back := Move{Topology: m.Topology, Legacy: m.New, New: m.Legacy}
	h := r.startMover(back)
	h.to, h.safe = m.legacyEnd(), safe
	limits, err := r.roomIn(ctx, m, state)
	if err != nil {
		return err
	}
	r.say("replace: moving what waits in the hold to %s", m.Legacy)
	err = r.moveAndSwitch(ctx, back, h, limits,
		func(ctx context.Context) error {
			err := r.steps(ctx, m, m.unpark)
			if err == nil {
				r.note(m, func(t *tally) { t.flows = firstOf(t.flows, time.Now()) })
			}
			return err
		})
	if n := h.moved.Load(); n > 0 {
		r.say("replace: moved %s from the hold to %s", messages(n), m.Legacy)
	}
	r.reportChanged("replace", h)
	r.note(m, func(t *tally) {
		t.moved, t.doubled = t.moved+h.moved.Load(), t.doubled+h.doubled
		if first := h.first.Load(); first != nil && (t.flows.IsZero() || first.Before(t.flows)) {
			t.flows = *first
		}
	})
	full := h.crowded.Load() > 0
	switch {
	case errors.Is(err, errComing) && full:
		err = fmt.Errorf("%w: %s is full, and messages come to its hold as fast as its consumers read them; run the command again when they have caught up",
			ErrWaiting, m.Legacy)
	case errors.Is(err, errComing):
		err = fmt.Errorf("%w: messages still come to the hold %s by its name", ErrWaiting, m.New)
	case errors.Is(err, ErrWaiting) && full:
		err = r.missed(ctx, m, err)
	case errors.Is(err, ErrWaiting) && h.moved.Load() == 0: // the queue has confirmed nothing
		err = fmt.Errorf("%w; %s", err, noLeader(m))
	}
	return err
}

// roomIn returns how fast the hold may be emptied. A queue that is full refuses messages, and those
// behind them would come first; or it drops its oldest, which its consumers would have read if the
// hold had not kept them. Where no consumer reads, it drops them as it did before.
func (r *Runner) roomIn(ctx context.Context, m Move, state topology.State) (drainLimits, error) {
	limit, refuses := policy.FullAt(state, m.Legacy)
	back := m.consumersBefore(state) > 0 && !r.consents(topology.StopsConsumers, m.Legacy)
	if limit == 0 || refuses || back {
		return drainLimits{fullAt: limit, paced: true}, nil
	}
	consumers, err := r.consumers(ctx, state, m.Legacy)
	if consumers == 0 {
		limit = 0
	}
	return drainLimits{fullAt: limit, paced: true}, err
}

// removeHold deletes what is left of a replacement. The broker or the proof refuses to delete a
// hold that is not empty, so nothing can be lost.
func (r *Runner) removeHold(ctx context.Context, m Move) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool {
		return q.Name == m.New && topology.IsReplacementHold(m.Topology, q)
	})
	if i < 0 {
		return nil
	}
	var changes []plan.Change
	for _, name := range []string{m.legacyEnd(), m.successorEnd()} {
		if m.find(state).exchanges[name] {
			c := remove(topology.Exchange{Name: name})
			c.Hazards = []topology.Hazard{topology.DropsRouting} // only the mover publishes to it
			changes = append(changes, c)
		}
	}
	for _, q := range state.Have.Queues {
		if q.Name == m.trialName() && q.Arguments[topology.ArgManagedBy] == topology.DeskMark(m.Topology) {
			changes = append(changes, removeTrial(q)) // a run was killed at its trial
		}
	}
	hold := remove(state.Have.Queues[i])
	hold.Phase = 1
	return apply.Execute(ctx, r.Management.Fresh(), plan.Plan{Changes: append(changes, hold)}, r.noteWrite)
}

// Rollbacks returns the replacements under their names that an abort rolls back, and a line for
// each that it cannot: the queue that was there is deleted, or is as the file has it.
func Rollbacks(want topology.Compiled, state topology.State, queues []string) (moves []Move, stays []string) {
	for _, name := range Unfinished(want, state) {
		m := replacementOf(want.Name, name)
		switch {
		case len(queues) > 0 && !slices.Contains(queues, name):
		case m.find(state).legacy && plan.Differs(want, state, name):
			moves = append(moves, m)
		case m.find(state).legacy: // the new one, or the old one and the file has changed
			stays = append(stays, fmt.Sprintf("the queue %s is as the file has it, so there is nothing to roll back; run migrate to finish", name))
		default:
			stays = append(stays, fmt.Sprintf("the queue that %s replaces under its name is deleted, or its node is down, so there is nothing to roll back to; run migrate to finish", name))
		}
	}
	return moves, stays
}

// abortReplacements rolls back the replacements that have not deleted their queues.
func (r *Runner) abortReplacements(ctx context.Context, state topology.State) error {
	moves, stays := Rollbacks(r.Topology, state, r.Legacy)
	if r.Unlocked && len(moves) > 0 {
		return fmt.Errorf("%w; nothing was written:\n  %s: %s", ErrRefused, moves[0].Legacy, needsLock)
	}
	if len(stays) > 0 && len(r.Legacy) > 0 {
		return fmt.Errorf("%w; nothing was written:\n  %s", ErrRefused, strings.Join(stays, "\n  "))
	}
	for _, line := range stays {
		r.say("abort: %s", line)
	}
	if len(moves) > 0 && r.CheckRights != nil {
		if err := r.CheckRights(r.replacementRights(state, moves)); err != nil {
			return err
		}
	}
	for _, m := range moves {
		if err := r.restore(ctx, m); err != nil {
			return err
		}
		r.say("abort: %s is as it was", m.Legacy)
	}
	return nil
}
