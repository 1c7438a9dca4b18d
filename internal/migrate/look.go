package migrate

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/topology"
)

// looks lets queues that are moved at the same time share what is read of the virtual host: one
// reading is under way at a time, however many queues wait for it. So the load on the management
// API does not grow with their number.
type looks struct {
	mu   sync.Mutex
	slot chan struct{} // of the reading that is under way. Nil: there was none yet
	next *look         // has not begun. Nil: no caller waits for one
}

// look is a reading of the virtual host.
type look struct {
	done    chan struct{} // closed when the fields below are set
	state   topology.State
	err     error
	stopped bool // the context of its reader has ended, which is no answer for other callers
}

// inspect returns what read returns, or has returned to another caller, if it began after this
// call. Callers must not change the maps and lists of the state.
func (l *looks) inspect(ctx context.Context, read func(context.Context) (topology.State, error)) (
	topology.State, error,
) {
	for {
		l.mu.Lock()
		mine, reads := l.next, l.next == nil
		if reads {
			mine = &look{done: make(chan struct{})}
			l.next = mine
		}
		if l.slot == nil {
			l.slot = make(chan struct{}, 1)
		}
		l.mu.Unlock()
		if reads {
			l.perform(ctx, mine, read)
			return mine.state, mine.err
		}
		select {
		case <-mine.done:
		case <-ctx.Done():
			return topology.State{}, ctx.Err()
		}
		if !mine.stopped {
			return mine.state, mine.err
		}
	}
}

// perform reads once no other reading is under way. A caller that comes after it has begun needs a
// later one.
func (l *looks) perform(ctx context.Context, mine *look, read func(context.Context) (topology.State, error)) {
	defer close(mine.done)
	select {
	case l.slot <- struct{}{}:
		defer func() { <-l.slot }()
	case <-ctx.Done():
		mine.err = ctx.Err()
	}
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	if mine.err == nil {
		mine.state, mine.err = read(ctx)
	}
	mine.stopped = mine.err != nil && ctx.Err() != nil
}

// inspect reads the virtual host, see [management.Client.Inspect]. It fails with ErrWaiting if the
// node of a queue of the run is down: the queue is not listed, and would be taken for deleted. A
// queue that runEach has refused for that is not part of the run.
func (r *Runner) inspect(ctx context.Context) (topology.State, error) {
	state, err := r.looks.inspect(ctx, r.Management.Inspect)
	if err != nil {
		return state, err
	}
	for _, w := range r.Topology.WorkQueues {
		for _, name := range []string{w.Name, w.Replaces} {
			named := len(r.Legacy) == 0 || slices.Contains(r.Legacy, w.Name) || slices.Contains(r.Legacy, w.Replaces)
			if named && slices.Contains(state.Down, name) && !slices.Contains(r.leftOut, name) {
				return state, fmt.Errorf("%w: %s", ErrWaiting, nodeDown(name))
			}
		}
	}
	return state, nil
}

// nodeDown says what to do about a queue whose node is down.
func nodeDown(queue string) string {
	return fmt.Sprintf("the node of the queue %s is down: the broker does not list the queue, and it exists; start the node, then run the command again",
		queue)
}

// converger carries out changes, and reads as the runner does.
type converger struct {
	*management.Client

	runner *Runner
}

func (c converger) Inspect(ctx context.Context) (topology.State, error) { return c.runner.inspect(ctx) }

func (r *Runner) converger() apply.Converger { return converger{r.Management, r} }
