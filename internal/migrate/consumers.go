package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

// consumers returns how many consumers a queue has: as the queue answers, or else as the
// statistics say. It fails with ErrWaiting where neither is known. A quorum queue with a single
// active consumer answers 1 however many wait behind that one, whom the statistics count (4.3.6).
func (r *Runner) consumers(ctx context.Context, state topology.State, queue string) (int64, error) {
	u, there := state.Usage[queue]
	if !there {
		return 0, nil
	}
	n, err := r.Management.Consumers(ctx, queue)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil && n > 0 && singleActive(state, queue):
		return max(n, u.Consumers), nil
	case err == nil, errors.Is(err, broker.ErrNotFound): // it is gone since
		return n, nil
	case u.ConsumersUnknown:
		return 0, fmt.Errorf("%w: it is not known whether the queue %s has consumers: %w; run the command again", ErrWaiting,
			queue, err)
	default:
		return u.Consumers, nil
	}
}

// unread says to let a service consume the successor first, where nothing does: new messages wait
// in it, and to stop the consumers of the legacy queue would stop the last ones. It returns ""
// where consumers read it, or where that is not known.
func (r *Runner) unread(ctx context.Context, state topology.State, m Move) string {
	if n, err := r.consumers(ctx, state, m.New); err != nil || n > 0 {
		return ""
	}
	return m.New + " has no consumers: let a service consume it, then "
}

// singleActive reports whether a queue has a single active consumer.
func singleActive(state topology.State, queue string) bool {
	return slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool {
		return q.Name == queue && q.Arguments[topology.ArgSingleActiveConsumer] == true
	})
}

// settledState inspects once the statistics no longer show the consumers by which this run,
// or the one before it, has drained the queues of moves. The statistics show them for a while,
// and a queue that seems to be in use would be kept.
func (r *Runner) settledState(ctx context.Context, moves []Move) (topology.State, error) {
	for deadline := time.Now().Add(management.StatisticsLag); ; {
		state, err := r.inspect(ctx)
		if err != nil {
			return state, err
		}
		state = r.Management.AskConsumers(ctx, state, management.UnknownConsumers(state)) // what was made just now
		stale := false
		for _, m := range moves {
			for _, queue := range []string{m.Legacy, m.New} {
				n, err := r.Management.Consumers(ctx, queue)
				stale = stale || err == nil && n == 0 && state.Usage[queue].Consumers > 0
			}
		}
		if !stale || time.Now().After(deadline) {
			return state, nil
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return state, err
		}
	}
}
