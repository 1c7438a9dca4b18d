// Package processor is the worker that counts attempts: it reads the failed
// queues of a topology and moves each message on, to the tier where it waits or
// to its dead-letter queue. What becomes of a message is [Rules.Decide]; that it
// is never lost is package relay.
package processor

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/notify"
	"github.com/dlxctl/dlxctl/topology"
)

// Processor works off the failed queues of one topology. Any number of them may
// share the queues, in one process or in many.
type Processor struct {
	Topology topology.Topology
	Endpoint broker.Endpoint
	// Prefetch is how many messages of each failed queue may be in flight. It must
	// be 1 or more.
	Prefetch int
	// PrefetchBytes is how many bytes of each failed queue may be in flight, headers
	// included. A message that is larger is in flight alone. Zero is any number.
	PrefetchBytes int
	// Grace is how long to go on with what is in flight once ctx has ended.
	Grace time.Duration
	// UntilEmpty ends Run once nothing is in flight and every failed queue is
	// empty, and makes a missing queue or broker an error.
	UntilEmpty bool
	// ConfirmTimeout is how long to wait for the confirm of one message before
	// Run connects again and what is in flight is done again, which may double it.
	// It gets longer each time, up to 16 times as long. Zero is a minute.
	ConfirmTimeout time.Duration
	// Log gets a line for each dead letter and each trouble. It must be set.
	Log *slog.Logger
	// Monitor shows what the processor does. Nil: nobody looks.
	Monitor *Monitor
	// Notifier is told of each dead letter. Nil: nobody is.
	Notifier *notify.Notifier
}

const (
	// firstPause is the pause before the first try to connect again. It doubles
	// each time, and is cut at random to half at least, so that many processors
	// do not come back at once.
	firstPause = 200 * time.Millisecond
	// longestPause is the longest one.
	longestPause = 30 * time.Second
	// settled is how long a session must have lasted for the next trouble to
	// count as new.
	settled = 10 * time.Second
	// lastTry is after how many troubles in a row UntilEmpty gives up.
	lastTry = 5
	// confirmTime is how long to wait for a confirm. A queue without a leader
	// confirms once it has one again: that is worth waiting for, as each new try
	// may put one more copy there.
	confirmTime = time.Minute
	// confirmDoublings is how often that is doubled.
	confirmDoublings = 4
)

// Run works until ctx ends, and then returns nil once what is in flight is
// finished or Grace is over. What is not finished then, the broker delivers
// again to the next processor.
//
// It connects again by itself, for ever. It returns an error at once if the
// broker refuses user, password or virtual host at the first connection, or is
// too old or of another cluster than the topology is for (see plan.Guard), if
// there is nothing to process, and, with UntilEmpty, if the broker or a failed
// queue is not there.
func (p *Processor) Run(ctx context.Context) error {
	if len(p.Topology.Loops) == 0 {
		return fmt.Errorf("the topology %q has no queue with a backoff: there is nothing to process", p.Topology.Name)
	}
	probes := p.Monitor.watch(p.Topology, p.Log)
	defer probes.forget()
	all := p.lines(probes)
	for {
		group, each := errgroup.WithContext(ctx)
		for _, l := range all {
			group.Go(func() error { return l.run(each) })
		}
		if err := group.Wait(); err != nil || ctx.Err() != nil {
			if ctx.Err() != nil {
				return nil // once ctx has ended, errors say no more than that
			}
			return err
		}
		// Each failed queue was empty at a time of its own.
		switch empty, err := p.empty(ctx); {
		case ctx.Err() != nil:
			return nil
		case empty || err != nil:
			return err
		}
	}
}

// Check reports whether the broker has what the topology needs of it: the failed
// queues, the exchanges, the queues of the tiers. It fails with
// broker.ErrNotFound if something is missing. A processor that knows a tier before
// the broker does would make dead letters of what should wait there.
func (p *Processor) Check(ctx context.Context) error {
	if len(p.Topology.Loops) == 0 {
		return fmt.Errorf("the topology %q has no queue with a backoff: there is nothing to process", p.Topology.Name)
	}
	conn, err := broker.Dial(ctx, p.endpoint("", "check"))
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, l := range p.Topology.Loops {
		queues := []string{l.Failed}
		for _, step := range l.Steps {
			queues = append(queues, step.Queue)
		}
		for _, name := range queues {
			if _, err := conn.Queue(name); err != nil {
				return fmt.Errorf("queue %s: %w; 'dlxctl apply' makes it", name, err)
			}
		}
		switch there, err := conn.HasExchange(l.Exchange); {
		case err != nil:
			return err
		case !there:
			return fmt.Errorf("%w: exchange %s; 'dlxctl apply' makes it", broker.ErrNotFound, l.Exchange)
		}
	}
	return nil
}

// pauseAfter gives the pause after a number of troubles in a row.
func pauseAfter(troubles int) time.Duration {
	pause := min(firstPause<<min(troubles-1, 20), longestPause)
	return pause/2 + rand.N(pause/2)
}

// wait waits, and reports false if ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// endpoint gives the broker with a name by which operators know the connection.
func (p *Processor) endpoint(backoff, purpose string) broker.Endpoint {
	e := p.Endpoint
	e.ConnectionName = "dlxctl process " + p.Topology.Name
	if backoff != "" {
		e.ConnectionName += " " + backoff
	}
	e.ConnectionName += " " + purpose
	return e
}

// empty reports whether every failed queue is, all looked at in turn.
func (p *Processor) empty(ctx context.Context) (bool, error) {
	conn, err := broker.Dial(ctx, p.endpoint("", "check"))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	for _, l := range p.Topology.Loops {
		if empty, err := conn.Empty(l.Failed); err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}
