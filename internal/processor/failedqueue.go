package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// failedQueue processes one failed queue, over connections of its own: a message that
// ends a connection disturbs no other queue.
type failedQueue struct {
	*Processor
	backoff   topology.Backoff
	delay     *topology.Delay // nil: the queue is the failed queue of a backoff. Else see Delay.AsBackoff
	probe     *monitor.Probe  // nil without a monitor
	trouble   *slog.Logger    // Log, which limits lines of the same text
	dead      *slog.Logger    // Log, which limits lines about dead letters of the same queue
	outages   *outages        // nil: no backoff says what an outage is
	shared    *shared
	caution   relay.Caution
	connected bool // at least once
	checked   bool // whether the broker had all that the backoff needs
}

// shared is what the failed queues of a processor have in common.
type shared struct {
	connected sync.Once // it is logged once

	mu          sync.Mutex
	blocked     map[*failedQueue]bool
	unavailable map[string]time.Time // when nothing could be published to an exchange, the last time
}

// sawUnavailable remembers that nothing can be published to an exchange.
func (s *shared) sawUnavailable(exchange string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unavailable[exchange] = time.Now()
}

// unbound reports whether nothing could be published to an exchange a short time ago. A queue that
// connected since does not know that itself.
func (s *shared) unbound(exchange string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.unavailable[exchange]) < bindTime
}

// failedQueues returns those of the topology.
func (p *Processor) failedQueues(probes monitor.Probes, out *outages, trouble, dead *slog.Logger) []*failedQueue {
	together := &shared{blocked: map[*failedQueue]bool{}, unavailable: map[string]time.Time{}}
	var all []*failedQueue
	for _, b := range p.Topology.Backoffs {
		q := &failedQueue{Processor: p, backoff: b, probe: probes.Of(b.Name), trouble: trouble, dead: dead, shared: together}
		if b.Outage != nil {
			q.outages = out
		}
		all = append(all, q.cautious())
	}
	for _, d := range p.Topology.Delays {
		for _, queue := range d.Queues() {
			q := &failedQueue{
				Processor: p, backoff: d.AsBackoff(queue), delay: &d, probe: probes.OfQueue(queue),
				trouble: trouble, dead: dead, shared: together,
			}
			all = append(all, q.cautious())
		}
	}
	return all
}

// cautious returns q with what keeps messages from being published over and over.
func (q *failedQueue) cautious() *failedQueue {
	q.caution = relay.Caution{Prefetch: q.Prefetch, Bytes: q.PrefetchBytes, Report: q.report, Held: q.held}
	return q
}

// run processes the queue until ctx ends, or until the queue is empty with UntilEmpty.
// It reconnects by itself.
func (q *failedQueue) run(ctx context.Context) error {
	shortest := cmp.Or(q.ConfirmTimeout, defaultConfirmTimeout)
	confirmTimeout, longest := shortest, shortest<<confirmDoublings
	for failures := 1; ; failures++ {
		begin := time.Now()
		err := q.session(ctx, confirmTimeout)
		if ctx.Err() != nil || err == nil {
			return nil //nolint:nilerr // once ctx has ended, errors say no more than that
		}
		switch {
		case !q.connected && (q.UntilEmpty || isFinal(err)):
			return err
		case q.UntilEmpty && (failures == mostFailures || isFinalUntilEmpty(err)):
			return err
		case errors.Is(err, relay.ErrNoConfirm):
			confirmTimeout = min(2*confirmTimeout, longest)
		case time.Since(begin) > settled:
			failures, confirmTimeout = 1, shortest
		}
		pause := pauseAfter(failures)
		q.probe.Disconnected(err)
		q.Log.WarnContext(ctx, "reconnecting", "queue", q.backoff.FailedQueue, "error", err, "pause", pause.String())
		if wait.For(ctx, pause) != nil {
			return nil //nolint:nilerr // once ctx has ended, err says no more than that
		}
	}
}

// isFinal reports whether err, at the first connection, is one that reconnecting does
// not help against.
func isFinal(err error) bool {
	return errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrNoVHost) || errors.Is(err, plan.ErrBroker)
}

// isFinalUntilEmpty reports whether a person must mend what err says. A run with UntilEmpty waits
// for no person.
func isFinalUntilEmpty(err error) bool {
	return errors.Is(err, broker.ErrNotFound) || errors.Is(err, broker.ErrForbidden) || errors.Is(err, relay.ErrHeld)
}

// session works over one pair of connections: what is consumed is acknowledged over
// the first even while the broker blocks the second, over which is published. It
// returns nil when ctx has ended or the queue is empty. No goroutine outlives it.
//
// If the broker does not confirm a message within confirmTimeout it ends with
// relay.ErrNoConfirm: the broker may have stopped reading the connection, to
// hold back those who publish to that queue, and then all wait.
func (q *failedQueue) session(ctx context.Context, confirmTimeout time.Duration) error {
	in, err := amqp.DialToConsume(ctx, q.endpoint(q.backoff.Name, "consume"))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := amqp.Dial(ctx, q.endpoint(q.backoff.Name, "publish"))
	if err != nil {
		return err
	}
	var watch sync.WaitGroup
	defer watch.Wait()
	defer out.Close() // ends the watch
	q.connected = true
	q.shared.connected.Do(func() {
		q.Log.InfoContext(ctx, "connected", "vhost", q.Endpoint.VHost, "broker", q.Endpoint.AMQP.String())
	})
	watch.Go(func() { q.watchBlocked(ctx, out) })
	return q.process(ctx, in, out, confirmTimeout)
}

// watchBlocked notes when the broker stops and starts accepting messages, until the
// connection is closed.
func (q *failedQueue) watchBlocked(ctx context.Context, out *amqp.Conn) {
	defer q.noteBlocked(ctx, amqp.Blocking{})
	for b := range out.Blocked {
		q.noteBlocked(ctx, b)
	}
}

// noteBlocked notes whether the broker accepts messages. An alarm concerns all failed
// queues, and is logged once.
func (q *failedQueue) noteBlocked(ctx context.Context, b amqp.Blocking) {
	q.probe.Blocked(b.Active)
	q.shared.mu.Lock()
	defer q.shared.mu.Unlock()
	before := len(q.shared.blocked)
	if b.Active {
		q.shared.blocked[q] = true
	} else {
		delete(q.shared.blocked, q)
	}
	switch after := len(q.shared.blocked); {
	case before == 0 && after > 0:
		q.Log.WarnContext(ctx, "broker blocks publishing because of an alarm; waiting", "reason", b.Reason)
	case before > 0 && after == 0:
		q.Log.InfoContext(ctx, "broker accepts messages again")
	}
}

// process runs one relay after the other until ctx ends. It ends with an error when a connection is
// lost, or when it is refused something and the password has changed: RabbitMQ before 4.2.6 leaves
// a connection open whose OAuth 2 token has expired, and refuses all that is done over it.
func (q *failedQueue) process(ctx context.Context, in, out *amqp.Conn, confirmTimeout time.Duration) error {
	logged := ""
	for failures := 1; ; failures++ {
		begin := time.Now()
		err := q.masked(q.relay(ctx, in, out, confirmTimeout))
		q.probe.Idle(err)
		if errors.Is(err, relay.ErrGrace) {
			q.Log.WarnContext(ctx, "grace period expired with messages in flight", "queue", q.backoff.FailedQueue, "error", err)
		}
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // once ctx has ended, errors say no more than that
		}
		if errors.Is(err, relay.ErrAgain) {
			failures = 0
			continue
		}
		if errors.Is(err, broker.ErrForbidden) && in.PasswordChanged() {
			return errors.New("the password file has changed, and a connection with its previous content is refused: " + err.Error())
		}
		missing := errors.Is(err, broker.ErrNotFound)
		err = withFix(err)
		switch {
		case in.Closed() || out.Closed(), q.UntilEmpty && errors.Is(err, relay.ErrHeld):
			return err
		case q.UntilEmpty && (missing || failures == mostFailures):
			return fmt.Errorf("failed queue %s: %w", q.backoff.FailedQueue, err)
		case time.Since(begin) > settled:
			failures = 1
		}
		pause := pauseAfter(failures)
		q.logRetry(ctx, err, pause, err.Error() == logged)
		logged = err.Error()
		if wait.For(ctx, pause) != nil {
			return nil //nolint:nilerr // once ctx has ended, err says no more than that
		}
	}
}

// masked returns err as a log shows it: the broker quotes the key of a message that it refuses.
func (q *failedQueue) masked(err error) error {
	if err == nil {
		return nil
	}
	return maskedError{err, q.quoting(err, q.caution.Blamed)()}
}

// maskedError is an error with another text.
type maskedError struct {
	error
	text string
}

func (e maskedError) Error() string { return e.text }

// Unwrap returns the error.
func (e maskedError) Unwrap() error { return e.error }

// logRetry logs that the queue is processed again after a pause. An error that an
// operator must fix is logged once.
func (q *failedQueue) logRetry(ctx context.Context, err error, pause time.Duration, repeated bool) {
	missing := errors.Is(err, broker.ErrNotFound)
	switch log := q.Log.With("queue", q.backoff.FailedQueue, "error", err, "pause", pause.String()); {
	case repeated && (missing || errors.Is(err, broker.ErrForbidden)):
	case missing:
		log.WarnContext(ctx, "waiting for the topology to be applied")
	default:
		log.WarnContext(ctx, "retrying queue")
	}
}

// relay runs one relay over a pair of channels.
func (q *failedQueue) relay(ctx context.Context, in, out *amqp.Conn, confirmTimeout time.Duration) error {
	var missing unavailables
	absent := func(exchange string) bool { return missing.has(exchange) }
	unbound := func(exchange string) bool { return missing.unbound(exchange, q.shared) }
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	handler, end := q.handler(ctx, out, absent, unbound, giveUp)
	defer end()
	err := relay.Drive{
		Queue: q.backoff.FailedQueue, Caution: &q.caution,
		Relay: relay.Relay{
			Handler: handler, Grace: q.Grace, UntilEmpty: q.UntilEmpty, ConfirmTimeout: confirmTimeout,
			Absent: absent,
		},
		Open: func(ctx context.Context, in, _ *amqp.Conn) (err error) {
			missing, err = q.findUnavailable(ctx, in)
			return err
		},
		Start: func(r *relay.Relay) {
			q.probe.Consuming()
			q.outages.consuming(q.backoff.FailedQueue)
			r.Sink = activeSink{r.Sink, q.probe}
		},
		Meanwhile: func(ctx context.Context) error {
			missing.watch(ctx)
			<-ctx.Done()
			return nil
		},
	}.Over(ctx, in, out)
	if why := context.Cause(ctx); errors.Is(why, relay.ErrHeld) {
		return why
	}
	return err
}

// handler returns what decides about the messages of the queue, for messages that are published
// over out. It calls giveUp when the relay must end because of a message. The caller calls end
// afterwards.
func (q *failedQueue) handler(
	ctx context.Context, out *amqp.Conn, absent, unbound func(exchange string) bool, giveUp func(error),
) (made relay.Handler, end func()) {
	refused := &refusals{
		queue: topology.UnroutableName(q.Topology.Name), probe: q.probe, tries: map[uint64]int{},
		untilEmpty: q.UntilEmpty, giveUp: giveUp,
	}
	alike := deadletter.NewAlike()
	var tell func(notify.Notice, notify.Message)
	if q.tells() {
		tell = q.tell
	}
	if q.delay != nil {
		return &delayHandler{
			rules: retry.NewDelayRules(q.Topology, *q.delay, out.FrameMax()), delay: *q.delay,
			topology: q.Topology, trouble: q.trouble, probe: q.probe, unbound: unbound, refused: refused,
			tell: tell, alike: alike, show: q.shown,
		}, func() {}
	}
	lookup := q.newLookup(ctx)
	h := &handler{
		rules:   retry.NewRules(q.Topology, q.backoff, out.FrameMax()).Including(lookup.exists),
		backoff: q.backoff, outages: q.outages, absent: absent,
		topology: q.Topology, log: q.Log, trouble: q.trouble, dead: q.dead, probe: q.probe,
		show: q.shown, refused: refused, tell: tell, alike: alike,
	}
	h.knowing = h.rules
	if q.outages != nil {
		h.knowing = h.rules.Knowing(broker.Tick, h.state).Behind(func() time.Duration { return h.outages.queued(h.backoff) })
	}
	return h, lookup.close
}

// activeSink is a sink that records each publish with a probe, so that a message that
// is refused again and again does not look like a relay that is stuck.
type activeSink struct {
	relay.Sink
	probe *monitor.Probe
}

// Publish publishes.
func (s activeSink) Publish(exchange, key string, m amqp091.Publishing) (uint64, error) {
	s.probe.Active()
	return s.Sink.Publish(exchange, key, m)
}
