package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
)

// Applier carries out one change. Carrying out a change twice must be harmless.
type Applier interface {
	Apply(ctx context.Context, c plan.Change) error
}

// atOnce is how many changes run at the same time. More gain nothing: see the
// table of costs in docs.
const atOnce = 32

// PartialError says which changes of a plan were carried out before it stopped.
type PartialError struct {
	Done    []plan.Change
	Failed  []plan.Change // tried, with an error: the broker may have carried them out
	Pending []plan.Change // not tried
	Err     error         // the first error

	steps int // of reroutes among Failed, which are written
}

// Error says what is done, what failed, and how to go on.
func (e *PartialError) Error() string {
	if errors.Is(e.Err, context.Canceled) {
		doubtful := ""
		if len(e.Failed) > 0 {
			doubtful = fmt.Sprintf("%d begun and perhaps not finished, ", len(e.Failed))
		}
		return fmt.Sprintf("interrupted (%d done, %s%d not tried; run it again to continue)", len(e.Done), doubtful,
			len(e.Pending))
	}
	if len(e.Failed) == 0 {
		return fmt.Sprintf("stopped: %v (%d done, %d not tried; run it again to continue)", e.Err, len(e.Done),
			len(e.Pending))
	}
	f := e.Failed[0]
	return fmt.Sprintf("%s %s %s: %v (%d done, %d failed, %d not tried; fix the cause and run it again)",
		f.Action, f.Kind, text.Name(f.Name), e.Err, len(e.Done), len(e.Failed), len(e.Pending))
}

// Unwrap returns the cause.
func (e *PartialError) Unwrap() error { return e.Err }

// Wrote reports whether anything was written.
func (e *PartialError) Wrote() bool { return len(e.Done) > 0 || e.steps > 0 }

// Execute carries out the changes of p: those of one phase at the same time, up
// to 32, and phase after phase. report is called after each change that
// succeeded, never twice at once.
//
// At the first error, or when ctx ends, it begins nothing more, waits for the running changes,
// and returns a [*PartialError]. It ignores blocked changes: call [plan.Check] first.
func Execute(ctx context.Context, a Applier, p plan.Plan, report func(plan.Change)) error {
	changes := slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool { return c.Action == plan.Blocked })
	run := execution{applier: a, report: report}
	for len(changes) > 0 && run.err == nil {
		n := 1
		for n < len(changes) && changes[n].Phase == changes[0].Phase {
			n++
		}
		tried := run.phase(ctx, changes[:n])
		changes = changes[tried:]
	}
	if run.err == nil {
		return nil
	}
	return &PartialError{Done: run.done, Failed: run.failed, Pending: changes, Err: run.err}
}

// execution is one run of a plan.
type execution struct {
	applier Applier
	report  func(plan.Change)

	mu     sync.Mutex
	done   []plan.Change
	failed []plan.Change
	err    error
}

// phase carries out changes that may run at the same time, and gives how many
// were tried.
func (r *execution) phase(ctx context.Context, changes []plan.Change) int {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, atOnce)
	for i, c := range changes {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if r.stopped(ctx) {
			return i
		}
		wg.Go(func() {
			// What is under way is finished also when ctx ends, so that what is
			// done and what is not is known.
			r.finished(c, r.applier.Apply(context.WithoutCancel(ctx), c))
			<-slots
		})
	}
	return len(changes)
}

// stopped reports whether no further change may begin.
func (r *execution) stopped(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = ctx.Err()
	}
	return r.err != nil
}

func (r *execution) finished(c plan.Change, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.done = append(r.done, c)
		r.report(c)
		return
	}
	r.failed = append(r.failed, c)
	if r.err == nil {
		r.err = err
	}
}
