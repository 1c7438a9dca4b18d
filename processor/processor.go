// Package processor is the worker that counts attempts: it reads the failed
// queues of a topology and moves each message on, to the tier where it waits or
// to its dead-letter queue. What becomes of a message is [Rules.Decide]; that it
// is never lost is package relay.
package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/notify"
	"github.com/dlxctl/dlxctl/plan"
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
	// absenceTime is how long an exchange that is not there is not looked for.
	absenceTime = time.Second
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
	connected, patience := false, cmp.Or(p.ConfirmTimeout, confirmTime)
	longest := patience << confirmDoublings
	for troubles := 1; ; troubles++ {
		begin := time.Now()
		err := p.session(ctx, patience, &connected, probes)
		if ctx.Err() != nil || err == nil {
			return nil // once ctx has ended, errors say no more than that
		}
		switch {
		case !connected && (p.UntilEmpty || errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrNoVHost) || errors.Is(err, plan.ErrBroker)):
			return err
		case p.UntilEmpty && (troubles == lastTry || errors.Is(err, broker.ErrNotFound)):
			return err
		case errors.Is(err, relay.ErrNoConfirm):
			patience = min(2*patience, longest)
		case time.Since(begin) > settled:
			troubles, patience = 1, cmp.Or(p.ConfirmTimeout, confirmTime)
		}
		pause := pauseAfter(troubles)
		probes.lost(err)
		p.Log.WarnContext(ctx, "connect again", "error", err, "pause", pause.String())
		if !wait(ctx, pause) {
			return nil
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
	conn, err := broker.Dial(ctx, p.endpoint("check"))
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

// session works over one pair of connections: what is consumed is acknowledged
// over the first even while the broker blocks the second, on which is published.
// It returns nil when ctx has ended or everything is empty.
//
// If the broker does not confirm a message within patience it ends with
// relay.ErrNoConfirm: the broker may have stopped reading the connection, to
// hold back whoever publishes to that queue, and then all wait.
func (p *Processor) session(ctx context.Context, patience time.Duration, connected *bool, probes probes) error {
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
	defer broker.CutOff(ctx, p.Grace+time.Second, in, out)()
	for {
		group, each := errgroup.WithContext(ctx)
		var unconfirmed atomic.Pointer[error]
		for _, l := range p.Topology.Loops {
			group.Go(func() error {
				err := p.queue(each, in, out, l, patience, probes.of(l))
				if errors.Is(err, relay.ErrNoConfirm) {
					unconfirmed.Store(&err)
				}
				return err
			})
		}
		err := group.Wait()
		if cause := unconfirmed.Load(); cause != nil {
			err = *cause // the others ended because of it
		}
		if err != nil || ctx.Err() != nil || p.empty(in) {
			return err
		}
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
func (p *Processor) queue(ctx context.Context, in, out *broker.Conn, l topology.Loop, patience time.Duration, probe *probe) error {
	said := ""
	for troubles := 1; ; troubles++ {
		begin := time.Now()
		err := p.relay(ctx, in, out, l, patience, probe)
		probe.idle(err)
		if errors.Is(err, relay.ErrGrace) {
			p.Log.WarnContext(ctx, "stopped before all was finished", "queue", l.Failed, "error", err)
		}
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // once ctx has ended, errors say no more than that
		}
		missing := errors.Is(err, broker.ErrNotFound)
		if missing {
			err = fmt.Errorf("%w; 'dlxctl apply' makes it", err)
		}
		switch {
		case in.Closed() || out.Closed():
			return err
		case p.UntilEmpty && missing:
			return fmt.Errorf("failed queue %s: %w", l.Failed, err)
		case p.UntilEmpty && troubles == lastTry:
			return fmt.Errorf("failed queue %s: %w", l.Failed, err)
		case time.Since(begin) > settled:
			troubles = 1
		}
		pause := pauseAfter(troubles)
		switch {
		case !missing:
			p.Log.WarnContext(ctx, "work on the queue again", "queue", l.Failed, "error", err, "pause", pause.String())
		case err.Error() != said: // what is not there yet is said once
			p.Log.WarnContext(ctx, "waiting: the topology is not applied yet", "queue", l.Failed, "error", err, "pause", pause.String())
		}
		said = err.Error()
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// relay runs one relay over a pair of channels.
func (p *Processor) relay(ctx context.Context, in, out *broker.Conn, l topology.Loop, patience time.Duration, probe *probe) error {
	absent, err := p.absences(ctx, in, l, probe)
	if err != nil {
		return err
	}
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
		Source: source, Sink: beating{sink, probe}, Grace: p.Grace, UntilEmpty: p.UntilEmpty, ConfirmTimeout: patience, Absent: absent,
		Handler: &handler{rules: NewRules(p.Topology, l, out.FrameMax()), backoff: l.Backoff, log: p.Log, trouble: probe.trouble, topology: p.Topology, probe: probe, notifier: p.Notifier},
	}
	if err = r.Run(ctx); errors.Is(err, relay.ErrNoConfirm) {
		_ = out.Close() // first, since the broker may not hear that a channel of it is closed
	}
	return err
}

// absences looks for the exchanges of a loop before anything is consumed: a
// publish to one that is not there closes the channel, and everything in flight
// on it would have to be done again, and again. Without the exchange to which
// all retries go there is nothing to do but wait. Without the one for what is
// unroutable only such messages wait, and the function that is given says so; it
// looks again every absenceTime.
func (p *Processor) absences(ctx context.Context, in *broker.Conn, l topology.Loop, probe *probe) (func(exchange string) bool, error) {
	there, err := in.HasExchange(l.Exchange)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%w: exchange %s", broker.ErrNotFound, l.Exchange)
	}
	unroutable := topology.UnroutableName(p.Topology.Name)
	if there, err = in.HasExchange(unroutable); err != nil || there {
		return nil, err
	}
	p.Log.ErrorContext(ctx, "an exchange is not there: what must be parked waits; 'dlxctl apply' makes it", "exchange", unroutable)
	looked := time.Now()
	return func(exchange string) bool {
		probe.touch() // it waits on purpose
		if there || exchange != unroutable {
			return false
		}
		if time.Since(looked) >= absenceTime {
			looked = time.Now()
			there, err = in.HasExchange(unroutable)
			there = there && err == nil // the relay sees itself when its connection is over
		}
		return !there
	}, nil
}
