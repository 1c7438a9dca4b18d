package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// line works off one failed queue, over connections of its own: a message that
// ends a connection disturbs no other queue.
type line struct {
	*Processor
	loop      topology.Loop
	probe     *probe
	common    *common
	caution   relay.Caution
	connected bool // at least once
}

// common is what the lines of a processor have together.
type common struct {
	connected sync.Once // is said once

	mu      sync.Mutex
	blocked map[*line]bool
}

// lines gives one for each failed queue.
func (p *Processor) lines(probes probes) []*line {
	together := &common{blocked: map[*line]bool{}}
	var all []*line
	for _, l := range p.Topology.Loops {
		one := &line{Processor: p, loop: l, probe: probes.of(l), common: together}
		one.caution = relay.Caution{Prefetch: p.Prefetch, Bytes: p.PrefetchBytes, Tell: one.tell}
		all = append(all, one)
	}
	return all
}

// run works until ctx ends, or the queue is empty with UntilEmpty. It connects
// again by itself.
func (l *line) run(ctx context.Context) error {
	patience := cmp.Or(l.ConfirmTimeout, confirmTime)
	longest := patience << confirmDoublings
	for troubles := 1; ; troubles++ {
		begin := time.Now()
		err := l.session(ctx, patience)
		if ctx.Err() != nil || err == nil {
			return nil //nolint:nilerr // once ctx has ended, errors say no more than that
		}
		switch {
		case !l.connected && (l.UntilEmpty || errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrNoVHost) || errors.Is(err, plan.ErrBroker)):
			return err
		case l.UntilEmpty && (troubles == lastTry || errors.Is(err, broker.ErrNotFound) || errors.Is(err, relay.ErrHeld)):
			return err
		case errors.Is(err, relay.ErrNoConfirm):
			patience = min(2*patience, longest)
		case time.Since(begin) > settled:
			troubles, patience = 1, cmp.Or(l.ConfirmTimeout, confirmTime)
		}
		pause := pauseAfter(troubles)
		l.probe.lost(err)
		l.Log.WarnContext(ctx, "connect again", "queue", l.loop.Failed, "error", err, "pause", pause.String())
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// session works over one pair of connections: what is consumed is acknowledged
// over the first even while the broker blocks the second, on which is published.
// It returns nil when ctx has ended or the queue is empty.
//
// If the broker does not confirm a message within patience it ends with
// relay.ErrNoConfirm: the broker may have stopped reading the connection, to
// hold back whoever publishes to that queue, and then all wait.
func (l *line) session(ctx context.Context, patience time.Duration) error {
	in, err := broker.DialToConsume(ctx, l.endpoint(l.loop.Backoff, "consume"))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := broker.Dial(ctx, l.endpoint(l.loop.Backoff, "publish"))
	if err != nil {
		return err
	}
	var watch sync.WaitGroup
	defer watch.Wait()
	defer out.Close()
	l.connected = true
	l.common.connected.Do(func() {
		l.Log.InfoContext(ctx, "connected", "vhost", l.Endpoint.VHost, "broker", l.Endpoint.AMQP.String())
	})
	watch.Go(func() { l.watchBlocked(ctx, out) })
	defer broker.CutOff(ctx, l.Grace+time.Second, in, out)()
	return l.queue(ctx, in, out, patience)
}

// watchBlocked tells when the broker stops and starts taking messages, until the
// connection is closed.
func (l *line) watchBlocked(ctx context.Context, out *broker.Conn) {
	defer l.block(ctx, broker.Blocking{})
	for b := range out.Blocked {
		l.block(ctx, b)
	}
}

// block notes whether the broker takes messages. An alarm is for all lines.
func (l *line) block(ctx context.Context, b broker.Blocking) {
	l.probe.block(b.Active)
	l.common.mu.Lock()
	defer l.common.mu.Unlock()
	before := len(l.common.blocked)
	if b.Active {
		l.common.blocked[l] = true
	} else {
		delete(l.common.blocked, l)
	}
	switch after := len(l.common.blocked); {
	case before == 0 && after > 0:
		l.Log.WarnContext(ctx, "the broker takes no messages, because of an alarm; waiting", "reason", b.Reason)
	case before > 0 && after == 0:
		l.Log.InfoContext(ctx, "the broker takes messages again")
	}
}

// queue works off the failed queue until ctx ends. Without a connection it ends.
func (l *line) queue(ctx context.Context, in, out *broker.Conn, patience time.Duration) error {
	said := ""
	for troubles := 1; ; troubles++ {
		begin := time.Now()
		err := l.relay(ctx, in, out, patience)
		l.probe.idle(err)
		if errors.Is(err, relay.ErrGrace) {
			l.Log.WarnContext(ctx, "stopped before all was finished", "queue", l.loop.Failed, "error", err)
		}
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // once ctx has ended, errors say no more than that
		}
		missing := errors.Is(err, broker.ErrNotFound)
		if missing {
			err = fmt.Errorf("%w; 'dlxctl apply' makes it", err)
		}
		if errors.Is(err, relay.ErrAgain) {
			troubles = 0
			continue
		}
		switch {
		case in.Closed() || out.Closed(), l.UntilEmpty && errors.Is(err, relay.ErrHeld):
			return err
		case l.UntilEmpty && missing:
			return fmt.Errorf("failed queue %s: %w", l.loop.Failed, err)
		case l.UntilEmpty && troubles == lastTry:
			return fmt.Errorf("failed queue %s: %w", l.loop.Failed, err)
		case time.Since(begin) > settled:
			troubles = 1
		}
		pause := pauseAfter(troubles)
		switch {
		case errors.Is(err, broker.ErrForbidden) && err.Error() == said, missing && err.Error() == said:
			// what a person must mend is said once
		case missing:
			l.Log.WarnContext(ctx, "waiting: the topology is not applied yet", "queue", l.loop.Failed, "error", err, "pause", pause.String())
		default:
			l.Log.WarnContext(ctx, "work on the queue again", "queue", l.loop.Failed, "error", err, "pause", pause.String())
		}
		said = err.Error()
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// relay runs one relay over a pair of channels.
func (l *line) relay(ctx context.Context, in, out *broker.Conn, patience time.Duration) error {
	closed, err := l.closedExchanges(ctx, in)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var look sync.WaitGroup
	defer look.Wait()
	defer stop()
	if closed != nil {
		look.Go(func() { closed.watch(ctx) })
	}
	others := l.newKnown(ctx)
	defer others.close()
	h := &handler{
		rules: NewRules(l.Topology, l.loop, out.FrameMax()).Including(others.exists), backoff: l.loop.Backoff, log: l.Log, trouble: l.probe.trouble,
		topology: l.Topology, probe: l.probe, notifier: l.Notifier,
	}
	r := relay.Relay{Handler: h, Grace: l.Grace, UntilEmpty: l.UntilEmpty, ConfirmTimeout: patience, Absent: closed.has}
	prefetch := l.caution.Begin(&r)
	source, err := in.Consume(l.loop.Failed, prefetch, l.PrefetchBytes)
	if err != nil {
		l.caution.Lost(err)
		return err
	}
	defer source.Close()
	sink, err := out.Publisher(prefetch)
	if err != nil {
		return err
	}
	defer sink.Close()
	l.probe.consuming()
	r.Source, r.Sink = source, beating{sink, l.probe}
	err = r.Run(ctx)
	l.caution.End(&r, err)
	if errors.Is(err, relay.ErrNoConfirm) {
		_ = out.Close() // first, since the broker may not hear that a channel of it is closed
	}
	return err
}
