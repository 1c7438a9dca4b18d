package plan

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/wait"
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
// mend is called with the error of a failed round: if it returns nil, Converge looks again;
// otherwise Converge returns its error. With a nil mend, Converge returns the error of the
// round. report is called after each change that was carried out.
func Converge(ctx context.Context, b Converger, settle time.Duration,
	next func(topology.State) ([]Change, error), mend func(error) error, report func(Change),
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
		slices.SortStableFunc(changes, func(a, b Change) int { return int(a.Phase - b.Phase) })
		err = Execute(ctx, b, Plan{Changes: changes}, report)
		if err != nil && mend != nil {
			err = mend(err)
		}
		if err != nil {
			return err
		}
		if err := wait.For(ctx, settle); err != nil {
			return err
		}
	}
}

// Carry carries out p, which was made for want. It carries out the changes as [Execute] does.
// Between the creations and the deletions it changes the routes of messages, step by step, and
// reads each step back from the broker. Like Execute it fails with a [*PartialError].
func Carry(ctx context.Context, b Converger, want topology.Compiled, p Plan, settle time.Duration,
	report func(Change),
) error {
	var made, moved, gone []Change
	for _, c := range p.Changes {
		switch {
		case c.Reroute != nil:
			moved = append(moved, c)
		case c.Phase < PhaseReroute:
			made = append(made, c)
		default:
			gone = append(gone, c)
		}
	}
	if len(moved) == 0 {
		return Execute(ctx, b, p, report)
	}
	partly := func(err error, done, pending []Change) error {
		part := &PartialError{Err: err}
		if e, is := errors.AsType[*PartialError](err); is {
			*part = *e
		}
		part.Done, part.Pending = slices.Concat(done, part.Done), slices.Concat(part.Pending, pending)
		return part
	}
	if err := Execute(ctx, b, Plan{Changes: made}, report); err != nil {
		return partly(err, nil, slices.Concat(moved, gone))
	}
	steps, err := rerouted(ctx, b, want, moved, settle)
	if err != nil {
		return partly(&PartialError{Done: steps, Failed: moved, Err: err}, made, gone)
	}
	for _, c := range moved {
		report(c)
	}
	if err := Execute(ctx, b, Plan{Changes: gone}, report); err != nil {
		return partly(err, slices.Concat(made, moved), nil)
	}
	return nil
}

// rerouted carries out the reroutes that moved names, and gives the steps that it did.
func rerouted(ctx context.Context, b Converger, want topology.Compiled, moved []Change,
	settle time.Duration,
) (steps []Change, err error) {
	named := map[rerouteKey]bool{}
	for _, c := range moved {
		named[c.Reroute.key()] = true
	}
	// What was made just now, policies above all, must be in effect everywhere.
	if err := wait.For(ctx, settle); err != nil {
		return nil, err
	}
	next := func(state topology.State) ([]Change, error) {
		return nextReroutes(want, state, func(key rerouteKey) bool { return named[key] }), nil
	}
	err = Converge(ctx, b, settle, next, nil, func(c Change) { steps = append(steps, c) })
	if e, is := errors.AsType[*PartialError](err); is {
		err = e.Err
	}
	return steps, err
}
