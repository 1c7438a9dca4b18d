package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
)

// consumers gives how many consumers a queue has: as it says itself, or else as the
// statistics say. It fails with ErrWaiting where neither tells.
func (r *Runner) consumers(ctx context.Context, state plan.State, queue string) (int64, error) {
	u, there := state.Usage[queue]
	if !there {
		return 0, nil
	}
	n, err := r.Management.Consumers(ctx, queue)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil, errors.Is(err, broker.ErrNotFound): // it is gone since
		return n, nil
	case u.ConsumersUnknown:
		return 0, fmt.Errorf("%w: whether somebody consumes from the queue %s is not known: %w; run it again", ErrWaiting, queue, err)
	default:
		return u.Consumers, nil
	}
}

// rested inspects once the statistics no longer show the consumers by which this run,
// or the one before it, has drained the queues of moves: they stay there for a while,
// and what they are said to be in use by would be kept.
func (r *Runner) rested(ctx context.Context, moves []Move) (plan.State, error) {
	for deadline := time.Now().Add(broker.StatisticsLag); ; {
		state, err := r.Management.Inspect(ctx)
		if err != nil {
			return state, err
		}
		state = r.Management.AskConsumers(ctx, state, broker.UnknownConsumers(state)) // what was made just now
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
		if err := pause(ctx, time.Second); err != nil {
			return state, err
		}
	}
}
