package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Converger reads a broker and carries out changes.
type Converger interface {
	Applier
	Inspect(ctx context.Context) (topology.State, error)
}

// Converge looks at the broker, carries out the changes that next gives, lets the broker settle
// for a while, and looks again, until next gives none. In a cluster other nodes see a change a
// little later: settle is how long that may take. next must be a function of the state alone,
// so that a stopped run continues from the state that it left.
//
// onError is called with the error of a failed round: if it returns nil, Converge looks again;
// otherwise Converge returns its error. With a nil onError, Converge returns the error of the
// round. report is called after each change that was carried out.
func Converge(ctx context.Context, b Converger, settle time.Duration,
	next func(topology.State) ([]plan.Change, error), onError func(error) error, report func(plan.Change),
) error {
	for {
		state, err := b.Inspect(ctx)
		if err != nil {
			return err
		}
		changes, err := next(state)
		if err != nil || len(changes) == 0 {
			return err
		}
		slices.SortStableFunc(changes, func(a, b plan.Change) int { return int(a.Phase - b.Phase) })
		err = Execute(ctx, b, plan.Plan{Changes: changes}, report)
		if err != nil && onError != nil {
			err = onError(err)
		}
		if err != nil {
			return err
		}
		if err := wait.For(ctx, settle); err != nil {
			return err
		}
	}
}

// ExecuteWithReroutes carries out p, which was made for want, as [Execute] does. Between the
// creations and the deletions it changes the routes of messages, step by step, and reads each step
// back from the broker. Like Execute it fails with a [*PartialError].
func ExecuteWithReroutes(ctx context.Context, b Converger, want topology.Compiled, p plan.Plan, settle time.Duration,
	report func(plan.Change),
) error {
	first := slices.IndexFunc(p.Changes, func(c plan.Change) bool { return c.Reroute != nil })
	if first < 0 {
		return Execute(ctx, b, p, report)
	}
	end := first // the reroutes have a phase of their own
	for end < len(p.Changes) && p.Changes[end].Reroute != nil {
		end++
	}
	creations, reroutes, deletions := p.Changes[:first], p.Changes[first:end], p.Changes[end:]
	partly := func(err error, done, pending []plan.Change) error {
		part := &PartialError{Err: err}
		if e, is := errors.AsType[*PartialError](err); is {
			*part = *e
		}
		part.Done, part.Pending = slices.Concat(done, part.Done), slices.Concat(part.Pending, pending)
		return part
	}
	if err := Execute(ctx, b, plan.Plan{Changes: creations}, report); err != nil {
		return partly(err, nil, slices.Concat(reroutes, deletions))
	}
	if err := rerouted(ctx, b, want, reroutes, settle); err != nil {
		return partly(err, creations, deletions)
	}
	for _, c := range reroutes {
		report(c)
	}
	if err := Execute(ctx, b, plan.Plan{Changes: deletions}, report); err != nil {
		return partly(err, slices.Concat(creations, reroutes), nil)
	}
	return nil
}

// rerouted carries out reroutes. It fails with a [*PartialError], in which either all of them have
// failed or none was tried: of one that is stopped between its steps it is not known whether more
// steps are needed.
func rerouted(ctx context.Context, b Converger, want topology.Compiled, reroutes []plan.Change,
	settle time.Duration,
) error {
	// What was made just now, policies above all, must be in effect everywhere.
	if err := wait.For(ctx, settle); err != nil {
		return &PartialError{Pending: reroutes, Err: err}
	}
	next := func(state topology.State) ([]plan.Change, error) {
		return plan.NextReroutes(want, state, reroutes), nil
	}
	steps, tried := 0, false
	err := Converge(ctx, b, settle, next, nil, func(plan.Change) { steps++ })
	if err == nil {
		return nil
	}
	if e, is := errors.AsType[*PartialError](err); is {
		err, tried = e.Err, len(e.Failed) > 0
	}
	if steps == 0 && !tried {
		return &PartialError{Pending: reroutes, Err: err}
	}
	return &PartialError{Failed: reroutes, Err: err, steps: steps}
}
