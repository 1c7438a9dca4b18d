package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
)

// leaderTimeout is how long a queue has to say whether it is empty.
const leaderTimeout = 15 * time.Second

// waitForLeaders makes sure that the successors answer before messages are routed to
// them. A quorum queue whose declaration was interrupted, by the end of its client over
// HTTP or of the node, can be left without a leader: it is listed like any other queue,
// and messages routed to it are never confirmed.
func (r *Runner) waitForLeaders(ctx context.Context, moves []Move) error {
	state, err := r.inspect(ctx)
	if err != nil {
		return err
	}
	for _, m := range moves {
		if m.next(state, nil).Doing == "" {
			continue // its messages go to the successor already
		}
		conn, err := amqp.Dial(ctx, r.Endpoint)
		if err != nil {
			return err
		}
		switch err = answers(ctx, conn, m.New); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errSilent), errors.Is(err, broker.ErrInternal):
			return fmt.Errorf("%w: the queue %s must answer before messages are routed to it: %w; run migrate again, and if it never answers although its nodes are up, its declaration was interrupted and it has no leader: delete it before (no message was routed to it yet)",
				ErrRefused, m.New, err)
		case err != nil:
			return fmt.Errorf("ask the queue %s whether it is empty: %w", m.New, err)
		}
	}
	return nil
}

// errSilent is wrapped if a queue does not say in time whether it is empty.
var errSilent = errors.New("no answer")

// answers asks a queue whether it is empty. It fails with errSilent if the queue does not say so in
// time. It closes conn.
func answers(ctx context.Context, conn *amqp.Conn, queue string) error {
	answer := make(chan error, 1)
	var question sync.WaitGroup
	defer question.Wait()
	defer conn.Close() // ends a question that hangs
	question.Go(func() {
		_, err := conn.Empty(queue)
		answer <- err
	})
	timer := time.NewTimer(leaderTimeout)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return fmt.Errorf("%w within %s", errSilent, text.Duration(leaderTimeout))
	case <-ctx.Done():
		return ctx.Err()
	}
}
