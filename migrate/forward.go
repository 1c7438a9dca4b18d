package migrate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// arrivals is how far back the statistics are asked, at least, for what came to a forwarder.
const arrivals = time.Minute

// dropHead is the overflow behaviour that dead-letters the oldest messages.
const dropHead = "drop-head"

// The lengths beyond which a forwarder hands messages on.
const (
	forwardAll  int64 = 0
	forwardNone int64 = 1 << 31 // a forwarder that is paused: messages stay in the queue
)

// forwarder gives the policy by which the broker hands on what comes to the legacy queue by its
// name, and what is there.
func (m Move) forwarder(length int64) topology.Policy {
	return topology.Policy{
		Name: m.forwarding(), Pattern: "^" + regexp.QuoteMeta(m.Legacy) + "$", ApplyTo: "queues", Priority: topology.PolicyPriority,
		Definition: topology.Arguments{"max-length": length, "overflow": dropHead, "dead-letter-exchange": "", "dead-letter-routing-key": m.New},
	}
}

// forward leaves a forwarder in place of the drain.
func (r *Runner) forward(ctx context.Context, m Move) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	for _, q := range state.Have.Queues {
		for _, argument := range []string{topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgOverflow} {
			if value, given := q.Arguments[argument]; q.Name == m.Legacy && given && value != dropHead {
				return fmt.Errorf("%w: somebody still publishes to the queue %s by its name, and it cannot forward, as it was declared with %s, which beats every policy: stop that and run it again", ErrWaiting, m.Legacy, argument)
			}
		}
	}
	r.tell("retire: %s stays and forwards to %s, at most once, until nobody publishes to it any more; migrate deletes it then", m.Legacy, m.New)
	return r.execute(ctx, []plan.Change{outrank(state, m.find(state).forwarder, m.forwarder(forwardAll))})
}

// retireForwarder deletes a legacy queue that forwards, if nothing comes to it for --idle.
//
// That nothing comes cannot be seen while the broker hands on what comes. So the forwarder is
// paused: the policy stays, and lets the queue hold messages, which the drain moves on and
// counts. If one comes, the forwarder goes on at once, and hands on what has come meanwhile. If
// migrate is killed, messages wait in the queue until the next run, which finds the paused
// forwarder: nothing is lost at any moment.
func (r *Runner) retireForwarder(ctx context.Context, m Move) error {
	state, err := r.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	if f := m.find(state).forwarder; f.IsPending() || state.InForce[m.Legacy] != f.Name {
		// It was cut off in its making, or somebody's policy overrides it.
		return r.forward(ctx, m)
	}
	if quiet, known, err := r.Management.LastArrival(ctx, m.Legacy, max(r.Idle, arrivals)); err == nil && known && quiet < r.Idle {
		r.tell("retire: %s forwards to %s; a message came to it %s ago", m.Legacy, m.New, quiet.Round(time.Second))
		return nil
	}
	if _, err := r.makeWay(ctx, m, state); err != nil {
		return err
	}
	r.tell("retire: %s forwards to %s; watching for %s whether a message still comes to it", m.Legacy, m.New, r.Idle)
	h := m.newMover()
	retired, err := r.watched(ctx, m, h, state)
	if err == nil && retired {
		if state, err = r.Management.Inspect(ctx); err != nil {
			return err
		}
		return r.over(ctx, m, h, state)
	}
	// Also when the run is interrupted: nobody drains the queue from here on.
	resume, stop := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer stop()
	if state, failed := r.Management.Inspect(resume); failed == nil && m.find(state).legacy {
		failed = r.execute(resume, []plan.Change{outrank(state, m.find(state).forwarder, m.forwarder(forwardAll))})
		err = errors.Join(err, failed)
	} else if failed != nil {
		err = errors.Join(err, failed)
	}
	if err == nil {
		r.tell("retire: %s is still used and goes on forwarding to %s", m.Legacy, m.New)
	}
	return err
}

// watched pauses a forwarder, drains the queue until nothing has come for --idle, and deletes it.
// It reports false if messages still come, or can come, or the queue is in use.
func (r *Runner) watched(ctx context.Context, m Move, h *mover, state plan.State) (bool, error) {
	if err := r.execute(ctx, []plan.Change{outrank(state, m.find(state).forwarder, m.forwarder(forwardNone))}); err != nil {
		return false, err
	}
	wait := patience{idle: r.Idle, stuck: max(r.Wait, leastStuck), fullAt: plan.FullAt(state, m.New), fed: r.unfed(m)}
	if _, err := r.drain(ctx, m, h, wait); err != nil {
		var fed *fedError
		if errors.Is(err, errComing) || errors.Is(err, errStuck) || errors.As(err, &fed) {
			return false, nil
		}
		return false, err
	}
	if _, err := r.retire(ctx, m, h); err != nil {
		return false, err
	}
	return h.deleted, nil
}

// unforward takes the forwarders of moves away: paused first, so that what comes meanwhile stays in
// the legacy queue, where an abort wants it.
func (r *Runner) unforward(ctx context.Context, moves []Move) error {
	for _, m := range moves {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return err
		}
		f := m.find(state).forwarder
		if f == nil {
			continue
		}
		r.tell("abort: stop forwarding from %s to %s", m.Legacy, m.New)
		if err := r.execute(ctx, []plan.Change{outrank(state, f, m.forwarder(forwardNone))}); err != nil {
			return err
		}
		if state, err = r.Management.Inspect(ctx); err != nil {
			return err
		}
		if f = m.find(state).forwarder; f != nil {
			if err := r.execute(ctx, []plan.Change{remove(topology.KindPolicy, f.Name, *f)}); err != nil {
				return err
			}
		}
	}
	return nil
}
