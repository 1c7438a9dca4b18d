// Package processor is the worker that counts attempts: it reads the failed
// queues of a topology and moves each message on, to the tier where it waits or
// to its dead-letter queue. package retry says what becomes of a message;
// package relay sees to it that none is lost.
package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/topology"
)

// Processor processes the failed queues of one topology. Any number of processors may
// share the queues, in one process or in many.
type Processor struct {
	Topology topology.Compiled
	Endpoint broker.Endpoint
	// Prefetch is how many messages of each failed queue may be in flight. It must
	// be 1 or more.
	Prefetch int
	// PrefetchBytes is how many bytes of each failed queue may be in flight, headers
	// included. A message that is larger is in flight alone. Zero means any number.
	PrefetchBytes int
	// Grace is how long Run goes on with what is in flight once ctx has ended.
	Grace time.Duration
	// UntilEmpty ends Run once nothing is in flight and every failed queue is
	// empty, and makes a missing broker, queue, exchange or right an error.
	UntilEmpty bool
	// ConfirmTimeout is how long to wait for the confirm of one message before
	// Run reconnects. What is in flight is then processed again, which may double it.
	// It doubles each time, up to 16 times as long. Zero means a minute.
	ConfirmTimeout time.Duration
	// Log gets a line for each dead letter and each failure. It must be set.
	Log *slog.Logger
	// Monitor shows what the processor does. Nil: nothing is recorded.
	Monitor *monitor.Monitor
	// Notifier gets a notice of each dead letter. The caller runs it. Nil: there is none.
	Notifier *notify.Notifier
	// Targets gets the same, for the targets of the topology file. Run runs it. Nil: there is none.
	Targets *notify.Notifier
	// Show returns what notices and logs show of a message. Nil: they show it as it is.
	Show func(notify.Message) notify.Shown
}

const (
	// firstPause is the pause before the first reconnect. It doubles each time, and is
	// shortened at random, to half at least, so that many processors do not reconnect
	// at once.
	firstPause = 200 * time.Millisecond
	// longestPause limits it.
	longestPause = 30 * time.Second
	// settled is how long a session must have lasted for the next failure to count as
	// the first.
	settled = 10 * time.Second
	// mostFailures is how many failures in a row end a run with UntilEmpty.
	mostFailures = 5
	// defaultConfirmTimeout is how long to wait for a confirm. A queue without a leader
	// confirms once it has one again. The processor waits for that, as each new try may
	// put one more copy there.
	defaultConfirmTimeout = time.Minute
	// confirmDoublings is how often the timeout is doubled at most.
	confirmDoublings = 4
	// troubleLines is how many lines of the same text about messages that cannot be moved are
	// logged in a minute.
	troubleLines = 10
	// deadLetterLines is how many dead letters of each queue are logged in a minute. A line has
	// some 300 bytes: 0.2 GB a day for a queue whose messages all fail, and not 25 GB.
	deadLetterLines = 500
)

// Run processes the failed queues until ctx ends. It then returns nil, once what is in
// flight is finished or Grace is over. The broker delivers the rest again, to the next
// processor. No goroutine outlives it.
//
// It reconnects by itself, without end. It returns an error at once if the broker
// refuses user, password or virtual host at the first connection, or is too old or of
// another cluster than the topology is for (see plan.Guard), if there is nothing to
// process, and, with UntilEmpty, if messages cannot be moved until a person mends something.
func (p *Processor) Run(ctx context.Context) error {
	if err := p.hasWork(); err != nil {
		return err
	}
	defer p.runTargets(ctx)()
	trouble, flush := monitor.LimitLog(p.Log, monitor.Limit{Lines: troubleLines})
	defer flush()
	dead, flushDead := monitor.LimitLog(p.Log, monitor.Limit{Lines: deadLetterLines, By: "queue"})
	defer flushDead()
	probes := p.Monitor.Watch(p.Topology)
	defer probes.Close()
	out, err := p.newOutages(ctx, probes)
	if err != nil {
		return err
	}
	var watch sync.WaitGroup
	defer watch.Wait()
	watching, end := context.WithCancel(ctx)
	defer end()
	watch.Go(func() { out.run(watching) })
	for _, d := range p.Topology.Delays {
		if d.Timer != "" {
			watch.Go(func() { p.runTimer(watching, d, probes.OfQueue(d.Timer)) })
		}
	}
	queues := p.failedQueues(probes, out, trouble, dead)
	for {
		group, each := errgroup.WithContext(ctx)
		for _, q := range queues {
			group.Go(func() error { return q.run(each) })
		}
		if err := group.Wait(); err != nil || ctx.Err() != nil {
			if ctx.Err() != nil {
				return nil // once ctx has ended, errors say no more than that
			}
			return err
		}
		// Each failed queue was empty at a different time.
		switch empty, err := p.empty(ctx); {
		case ctx.Err() != nil:
			return nil
		case empty || err != nil:
			return err
		}
	}
}

// runTargets runs the notifier of the topology file until the function that it returns is called,
// which waits a few seconds at most until the last notices are sent.
func (p *Processor) runTargets(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the last messages come once ctx has ended
	var running sync.WaitGroup
	running.Go(func() { p.Targets.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (p *Processor) tell(n notify.Notice, m notify.Message) {
	for _, to := range []*notify.Notifier{p.Notifier, p.Targets} {
		if to != nil {
			to.NotifyShown(n, m, p.Show)
		}
	}
}

// shown returns what a log shows of a message.
func (p *Processor) shown(m notify.Message) notify.Shown {
	if p.Show == nil {
		return notify.Shown{ID: m.ID, Queue: m.Queue, Key: m.Key, Error: m.Error, ErrorType: m.ErrorType}
	}
	return p.Show(m)
}

// tells reports whether anything gets notices.
func (p *Processor) tells() bool { return p.Notifier != nil || p.Targets != nil }

// hasWork fails if the topology has no failed queue.
func (p *Processor) hasWork() error {
	if len(p.Topology.Delays) > 0 {
		return nil
	}
	if len(p.Topology.Backoffs) == 0 && len(p.Topology.Native) > 0 {
		return fmt.Errorf("RabbitMQ does all retries of the topology %q (engine: native): there is nothing to process", p.Topology.Name)
	}
	if len(p.Topology.Backoffs) == 0 {
		return fmt.Errorf("the topology %q has no queue with a backoff: there is nothing to process", p.Topology.Name)
	}
	return nil
}

// Check reports whether the broker has what the topology needs of it: the failed
// queues, the exchanges, the queues of the tiers. It fails with broker.ErrNotFound if
// something is missing.
func (p *Processor) Check(ctx context.Context) error {
	conn, err := amqp.Dial(ctx, p.endpoint("", "check"))
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, b := range p.Topology.Read() {
		if err := check(ctx, conn, p.Topology, b, p.Log); err != nil {
			return withFix(err)
		}
	}
	out, err := p.newOutages(ctx, nil)
	if out != nil && err == nil {
		out.api.Close()
	}
	return err
}

// withFix adds to err what helps when the broker lacks something, or says in its own words that the
// user lacks a right.
func withFix(err error) error {
	closed, is := errors.AsType[*amqp.ClosedError](err)
	switch {
	case errors.Is(err, broker.ErrNotFound):
		return fmt.Errorf("%w; 'dlxctl apply' with the same files and overlays creates it", err)
	case is && closed.AboutKey():
		return fmt.Errorf("%w; rabbitmqctl set_topic_permissions grants it", err)
	case is && errors.Is(closed, broker.ErrForbidden):
		return fmt.Errorf("%w; 'dlxctl rights' prints the commands that grant what is missing", err)
	}
	return err
}

// check fails with broker.ErrNotFound if the broker lacks what a backoff needs: its failed queue,
// its exchange, the queues of its tiers, and those to which its messages are addressed. Processed
// without one of these, messages that should go there would be dead letters, or in the unroutable
// queue. RabbitMQ 4.3 tells only users with a right on such queues which exist: others go on, as
// retries need no such right.
func check(ctx context.Context, conn *amqp.Conn, t topology.Compiled, b topology.Backoff, log *slog.Logger) error {
	if _, err := conn.MessagesReady(b.FailedQueue); err != nil {
		return err
	}
	for _, tier := range b.AllTiers() {
		_, err := conn.MessagesReady(tier.Queue)
		if errors.Is(err, broker.ErrForbidden) {
			log.WarnContext(ctx, "whether the tiers exist is not known: without one, messages for it become dead letters; "+
				"'dlxctl rights' prints the right to see them", "queue", b.FailedQueue, "error", err)
			break
		}
		if err != nil {
			return err
		}
	}
	for _, queue := range targets(t, b) {
		_, err := conn.MessagesReady(queue)
		if errors.Is(err, broker.ErrForbidden) {
			log.WarnContext(ctx, "whether a queue of retryTo, or of dead of a match, exists is not known: without it, "+
				"messages for it go to the unroutable queue; 'dlxctl rights' prints the right to see it", "queue", queue, "error", err)
		} else if err != nil {
			return err
		}
	}
	return checkExchange(conn, b.RetryExchange)
}

// targets returns the queues by whose names messages of a backoff are addressed, other than those
// in which they failed: those to which queues retry, and the dead-letter queues of matches. AMQP
// cannot show whether they are bound.
func targets(t topology.Compiled, b topology.Backoff) []string {
	var out []string
	for _, w := range t.WorkQueues {
		if w.Backoff == b.Name && w.RetryTo != "" {
			out = append(out, w.RetryTo)
		}
	}
	for _, m := range t.Matches {
		if m.Backoff == b.Name {
			out = append(out, m.DeadLetterQueue)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// checkExchange fails with broker.ErrNotFound if an exchange does not exist.
func checkExchange(conn *amqp.Conn, name string) error {
	exists, err := conn.HasExchange(name)
	if err == nil && !exists {
		err = fmt.Errorf("%w: exchange %s", broker.ErrNotFound, name)
	}
	return err
}

// pauseAfter returns the pause after a number of failures in a row.
func pauseAfter(failures int) time.Duration {
	pause := min(firstPause<<min(failures-1, 20), longestPause)
	return pause/2 + rand.N(pause/2)
}

// endpoint returns the broker, with a connection name by which operators recognize the
// connection.
func (p *Processor) endpoint(backoff, purpose string) broker.Endpoint {
	e := p.Endpoint
	e.ConnectionName = "dlxctl process " + p.Topology.Name
	if backoff != "" {
		e.ConnectionName += " " + backoff
	}
	e.ConnectionName += " " + purpose
	return e
}

// empty reports whether every failed queue is empty, one after the other.
func (p *Processor) empty(ctx context.Context) (bool, error) {
	conn, err := amqp.Dial(ctx, p.endpoint("", "check"))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	for _, b := range p.Topology.Read() {
		if empty, err := conn.Empty(b.FailedQueue); err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}
