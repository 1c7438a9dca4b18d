package migrate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// arrivals is how far back the statistics are read, at least, for messages that came to a
// forwarder.
const arrivals = time.Minute

// dropHead is the overflow behavior that dead-letters the oldest messages.
const dropHead = "drop-head"

// The lengths beyond which a forwarder forwards messages.
const (
	forwardAll  int64 = 0
	forwardNone int64 = 1 << 31 // the forwarder is paused: messages stay in the queue
)

// forwarder returns the policy by which the broker forwards what is in the legacy queue and
// what comes to it by its name.
func (m Move) forwarder(length int64) topology.Policy {
	return topology.Policy{
		Name: m.forwarding(), Pattern: "^" + regexp.QuoteMeta(m.Legacy) + "$", ApplyTo: "queues",
		Priority: topology.PolicyPriority,
		Definition: topology.Arguments{
			topology.KeyMaxLength: length, topology.KeyOverflow: dropHead,
			topology.KeyDeadLetterExchange: "", topology.KeyDeadLetterRoutingKey: m.New,
		},
	}
}

// isPaused reports whether a forwarder forwards nothing.
func (m Move) isPaused(forwarder topology.Policy) bool {
	return forwarder.Definition[topology.KeyMaxLength] != forwardAll
}

// forward leaves a forwarder in place of the drain. why says what comes to the legacy queue.
func (r *Runner) forward(ctx context.Context, m Move, why string) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	fixed := []string{topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgOverflow}
	for _, q := range state.Have.Queues {
		for _, argument := range fixed {
			if value, given := q.Arguments[argument]; q.Name == m.Legacy && given && value != dropHead {
				return fmt.Errorf("%w: the queue %s is kept: %s; it cannot forward, as it was declared with %s, which no policy overrides; run migrate again without --forward",
					ErrWaiting, m.Legacy, why, argument)
			}
		}
	}
	r.say("retire: %s stays and forwards to %s, at most once; once nothing comes to its name any more, run migrate with %s to delete it",
		m.Legacy, m.New, consentTo(m.Legacy))
	return r.execute(ctx, []plan.Change{override(state, m.find(state).forwarder, m.forwarder(forwardAll))})
}

// retireForwarder deletes a legacy queue that forwards, if the user consents and no message comes
// to it for --idle. Without consent the queue stays: publishers have used its name, and one that
// uses it once a night is quiet for longer than any --idle.
//
// While the broker forwards, it cannot be seen whether messages come. So the forwarder is
// paused: the policy stays, and lets the queue hold messages, which the drain moves and
// counts. If a publisher's message comes, the forwarder resumes at once, and forwards what has
// come meanwhile. For what feeders return it stays paused, up to --wait. If migrate is killed,
// messages wait in the queue until the next run, which finds the paused forwarder: nothing is
// lost at any moment.
func (r *Runner) retireForwarder(ctx context.Context, m Move) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	found := m.find(state)
	f := found.forwarder
	if f == nil || !found.legacy {
		// Its policy or the queue is gone: an earlier attempt of this run got so far, or another client
		// has deleted it. It is then migrated like any other.
		if why := m.reasons(r.Topology, state); len(why) > 0 {
			return refusedFor(why)
		}
		return r.move(ctx, state, []Move{m}, nil)
	}
	if f.IsPending() || state.QueuePolicies[m.Legacy] != f.Name || m.isPaused(*f) && !r.allows(m.Legacy) {
		// Its creation was interrupted, a foreign policy overrides it, or a run with consent was killed.
		return r.forward(ctx, m, "publishers send to its name")
	}
	quiet, known, err := r.Management.LastArrival(ctx, m.Legacy, max(r.Idle, arrivals))
	if err == nil && known && quiet < r.Idle {
		r.say("retire: %s forwards to %s; a message came to it %s ago", m.Legacy, m.New, text.Took(quiet))
		return nil
	}
	again, err := r.repairCutover(ctx, m, state)
	if err != nil {
		return err
	}
	if !r.allows(m.Legacy) {
		r.say("retire: %s forwards to %s; once no publisher sends to its name any more, run migrate with %s to delete it",
			m.Legacy, m.New, consentTo(m.Legacy))
		return nil
	}
	r.say("retire: %s forwards to %s; waiting %s to see whether a message still comes to it", m.Legacy, m.New, text.Duration(r.Idle))
	h := r.resumeMover(m)
	why, err := r.watchForwarder(ctx, m, h, state)
	if err == nil && why == "" {
		if state, err = r.inspect(ctx); err != nil {
			return err
		}
		if r.takeRebound(m) || again {
			h.doubled = h.moved.Load() // all of them may have come to the successor too
		}
		return r.cleanUp(ctx, m, h, state)
	}
	// Also when the run is interrupted: from here on the queue is not drained.
	resume, stop := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer stop()
	if state, failed := r.inspect(resume); failed == nil && m.find(state).legacy {
		failed = r.execute(resume, []plan.Change{override(state, m.find(state).forwarder, m.forwarder(forwardAll))})
		err = errors.Join(err, failed)
	} else if failed != nil {
		err = errors.Join(err, failed)
	}
	if err == nil {
		r.say("retire: %s keeps forwarding to %s, as %s", m.Legacy, m.New, why)
	}
	return err
}

// watchForwarder pauses a forwarder, drains the queue until no message has come for --idle,
// and deletes it. It says why not if messages still come, or can come, or the queue is in use.
func (r *Runner) watchForwarder(ctx context.Context, m Move, h *mover, state topology.State) (why string, err error) {
	paused := override(state, m.find(state).forwarder, m.forwarder(forwardNone))
	if err := r.execute(ctx, []plan.Change{paused}); err != nil {
		return "", err
	}
	limits, err := r.room(ctx, m, state)
	if err != nil {
		return "", err
	}
	// A message of a publisher ends it at once, but for feeders it waits as a drain does.
	limits.idle, limits.wait, limits.fedWait, limits.stuck = r.Idle, r.Wait, r.Wait, max(r.Wait, leastStuck)
	limits.byName, limits.quits = m.watchLegacy(state), true
	var closes func()
	limits.feeders, closes = r.feedersEmpty(m, h)
	defer closes()
	_, err = r.drain(ctx, m, h, limits)
	err = r.whoSends(ctx, m, h, err)
	fed, isFed := errors.AsType[*fedError](err)
	switch {
	case isFed && fed.advice != "":
		return fmt.Sprintf("%s; run migrate again, or with %s", fed, fed.advice), nil
	case isFed:
		return fed.text, nil
	case errors.Is(err, errComing):
		return "messages still come to it", nil
	case errors.Is(err, errStuck):
		return m.New + " does not accept its messages", nil
	case err != nil:
		return "", err
	}
	if _, err := r.retire(ctx, m, h); err != nil {
		return "", err
	}
	if !h.deleted {
		why = "it is in use"
	}
	return why, nil
}

// removeForwarders deletes the forwarders of moves. It pauses them first, so that what
// comes meanwhile stays in the legacy queue, where an abort needs it.
func (r *Runner) removeForwarders(ctx context.Context, moves []Move) error {
	for _, m := range moves {
		state, err := r.inspect(ctx)
		if err != nil {
			return err
		}
		f := m.find(state).forwarder
		if f == nil {
			continue
		}
		r.say("abort: stop forwarding from %s to %s", m.Legacy, m.New)
		if err := r.execute(ctx, []plan.Change{override(state, f, m.forwarder(forwardNone))}); err != nil {
			return err
		}
		if state, err = r.inspect(ctx); err != nil {
			return err
		}
		if f = m.find(state).forwarder; f != nil {
			if err := r.execute(ctx, []plan.Change{remove(*f)}); err != nil {
				return err
			}
		}
	}
	return nil
}
