// Package processor is the worker that counts attempts: it reads the failed
// queues of a topology and moves each message on, to the tier where it waits or
// to its dead-letter queue. What becomes of a message is [Rules.Decide]; that it
// is never lost is package relay.
package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/notify"
	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// Processor works off the failed queues of one topology. Any number of them may
// share the queues, in one process or in many.
type Processor struct {
	Topology topology.Topology
	Endpoint broker.Endpoint
	// Prefetch is how many messages of each failed queue may be in flight: the
	// only limit of concurrency. It must be 1 or more.
	Prefetch int
	// Grace is how long to go on with what is in flight once ctx has ended.
	Grace time.Duration
	// UntilEmpty ends Run once nothing is in flight and every failed queue is
	// empty, and makes a missing queue or broker an error.
	UntilEmpty bool
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
)

// Run works until ctx ends, and then returns nil once what is in flight is
// finished or Grace is over. What is not finished then, the broker delivers
// again to the next processor.
//
// It connects again by itself, for ever. It returns an error at once if the
// broker refuses user, password or virtual host at the first connection, if
// there is nothing to process, and, with UntilEmpty, if the broker or a failed
// queue is not there.
func (p *Processor) Run(ctx context.Context) error {
	if len(p.Topology.Loops) == 0 {
		return fmt.Errorf("the topology %q has no queue with a backoff: there is nothing to process", p.Topology.Name)
	}
	probes := p.Monitor.watch(p.Topology, p.Log)
	defer probes.forget()
	connected := false
	for troubles := 1; ; troubles++ {
		begin := time.Now()
		err := p.session(ctx, &connected, probes)
		if ctx.Err() != nil || err == nil {
			return nil // once ctx has ended, errors say no more than that
		}
		switch {
		case !connected && (p.UntilEmpty || errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrNoVHost)):
			return err
		case p.UntilEmpty && (troubles == lastTry || errors.Is(err, broker.ErrNotFound)):
			return err
		case time.Since(begin) > settled:
			troubles = 1
		}
		pause := pauseAfter(troubles)
		probes.lost(err)
		p.Log.WarnContext(ctx, "connect again", "error", err, "pause", pause.String())
		if !wait(ctx, pause) {
			return nil
		}
	}
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

// session works over one pair of connections: what is consumed is acknowledged
// over the first even while the broker blocks the second, on which is published.
// It returns nil when ctx has ended or everything is empty.
func (p *Processor) session(ctx context.Context, connected *bool, probes probes) error {
	in, err := broker.DialToConsume(ctx, p.endpoint("consume"))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := broker.Dial(ctx, p.endpoint("publish"))
	if err != nil {
		return err
	}
	defer out.Close()
	if !*connected {
		p.Log.InfoContext(ctx, "connected", "topology", p.Topology.Name, "vhost", p.Endpoint.VHost, "broker", p.Endpoint.AMQP.String())
	}
	*connected = true
	go p.watchBlocked(ctx, out, probes)
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end()
	watch.Go(func() { p.cutOff(ctx, over, in, out) })
	for {
		group, each := errgroup.WithContext(ctx)
		for _, l := range p.Topology.Loops {
			group.Go(func() error { return p.queue(each, in, out, l, probes.of(l)) })
		}
		if err := group.Wait(); err != nil || ctx.Err() != nil || p.empty(in) {
			return err
		}
	}
}

// cutOff closes the connections when ctx has ended and the time to finish is
// over, unless the session is over before: a publish may hang in a connection
// that the broker blocks.
func (p *Processor) cutOff(ctx, over context.Context, in, out *broker.Conn) {
	select {
	case <-over.Done():
		return
	case <-ctx.Done():
	}
	if wait(over, p.Grace+time.Second) {
		_, _ = in.Close(), out.Close() // what is in flight, the broker delivers again
	}
}

// endpoint gives the broker with a name by which operators know the connection.
func (p *Processor) endpoint(purpose string) broker.Endpoint {
	e := p.Endpoint
	e.ConnectionName = fmt.Sprintf("dlxctl process %s %s", p.Topology.Name, purpose)
	return e
}

// empty reports whether every failed queue is, all looked at in turn.
func (p *Processor) empty(in *broker.Conn) bool {
	for _, l := range p.Topology.Loops {
		if empty, err := in.Empty(l.Failed); err != nil || !empty {
			return false
		}
	}
	return true
}

func (p *Processor) watchBlocked(ctx context.Context, out *broker.Conn, probes probes) {
	defer probes.block(false)
	for b := range out.Blocked {
		probes.block(b.Active)
		if b.Active {
			p.Log.WarnContext(ctx, "the broker takes no messages, because of an alarm; waiting", "reason", b.Reason)
		} else {
			p.Log.InfoContext(ctx, "the broker takes messages again")
		}
	}
}

// queue works off one failed queue until ctx ends. Trouble on its channels is
// its own; without a connection it ends.
func (p *Processor) queue(ctx context.Context, in, out *broker.Conn, l topology.Loop, probe *probe) error {
	for troubles := 1; ; troubles++ {
		begin := time.Now()
		err := p.relay(ctx, in, out, l, probe)
		probe.idle(err)
		if errors.Is(err, relay.ErrGrace) {
			p.Log.WarnContext(ctx, "stopped before all was finished", "queue", l.Failed, "error", err)
		}
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // once ctx has ended, errors say no more than that
		}
		switch {
		case in.Closed() || out.Closed():
			return err
		case p.UntilEmpty && errors.Is(err, broker.ErrNotFound):
			return fmt.Errorf("failed queue %s: %w; 'dlxctl apply' makes it", l.Failed, err)
		case p.UntilEmpty && troubles == lastTry:
			return fmt.Errorf("failed queue %s: %w", l.Failed, err)
		case time.Since(begin) > settled:
			troubles = 1
		}
		pause := pauseAfter(troubles)
		if !errors.Is(err, broker.ErrNotFound) || troubles == 1 { // a queue that is not there yet is said once
			p.Log.WarnContext(ctx, "work on the queue again", "queue", l.Failed, "error", err, "pause", pause.String())
		}
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// relay runs one relay over a pair of channels.
func (p *Processor) relay(ctx context.Context, in, out *broker.Conn, l topology.Loop, probe *probe) error {
	source, err := in.Consume(l.Failed, p.Prefetch)
	if err != nil {
		return err
	}
	defer source.Close()
	sink, err := out.Publisher(p.Prefetch)
	if err != nil {
		return err
	}
	defer sink.Close()
	probe.consuming()
	r := relay.Relay{
		Source: source, Sink: beating{sink, probe}, Grace: p.Grace, UntilEmpty: p.UntilEmpty,
		Handler: &handler{rules: NewRules(p.Topology, l, out.FrameMax()), backoff: l.Backoff, log: p.Log, trouble: probe.trouble, topology: p.Topology, probe: probe, notifier: p.Notifier},
	}
	return r.Run(ctx)
}
