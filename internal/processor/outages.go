package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// outages knows which work queues are in outage. A nil one knows of none.
type outages struct {
	*Processor
	probes monitor.Probes
	rules  retry.Rules // they tell which queues a match covers
	api    *management.Client
	logged bool // that they cannot be read

	mu     sync.Mutex
	names  []string               // of the queues whose statistics it reads
	queues map[string]*deliveries // by the name of the work queue
	due    map[string]time.Time   // by backoff: when the next message may return from its outage queue
	taken  map[string]time.Time   // by failed queue: since when there are messages that none are counted of
}

// deliveries are those of one work queue.
type deliveries struct {
	work       topology.WorkQueue
	backoff    topology.Backoff
	window     *retry.Window
	probe      *monitor.Probe // nil of one that only a newer file has
	processors int64
	seen       time.Time // when the statistics had the queue last
	since      time.Time // when the outage began. Zero: there is none
	before     bool      // the outage may have begun before
	blind      bool      // the broker does not count what its consumers get, and the log says so
	waited     int       // how often a message of the queue waited, since then, and did not die
}

// newOutages reads the first statistics. It returns nil if no backoff says what an outage is, and
// an error if the user may not read statistics. A broker that does not answer may do so later.
func (p *Processor) newOutages(ctx context.Context, probes monitor.Probes) (*outages, error) {
	o := &outages{
		Processor: p, probes: probes, rules: retry.NewRules(p.Topology, topology.Backoff{}, 0),
		queues: map[string]*deliveries{}, due: map[string]time.Time{}, taken: map[string]time.Time{},
	}
	now := time.Now()
	for _, b := range p.Topology.Backoffs {
		if b.Outage == nil {
			continue
		}
		o.names = append(o.names, b.FailedQueue, b.Outage.Tier.Queue)
		for _, w := range p.Topology.WorkQueues {
			if w.Backoff == b.Name {
				o.watch(w, b, now)
			}
		}
	}
	if o.names == nil {
		return nil, nil
	}
	var err error
	if o.api, err = management.New(p.endpoint("", "outages")); err != nil {
		return nil, err
	}
	return o, o.begin(ctx)
}

// watch begins to look at the deliveries of a work queue.
func (o *outages) watch(w topology.WorkQueue, b topology.Backoff, now time.Time) *deliveries {
	q := &deliveries{
		work: w, backoff: b, window: retry.NewWindow(*b.Outage, broker.Tick, now), processors: 1, seen: now,
	}
	if o.rules.Names(w.Name) {
		q.probe = o.probes.Of(b.Name)
	}
	o.names = append(o.names, w.Name)
	o.queues[w.Name] = q
	return q
}

// of returns the deliveries of a work queue from which a message came by the failed queue of b:
// also of one that a match of the file covers, or that only a newer file has, up to a number. The
// caller holds the lock.
func (o *outages) of(d retry.Decision, b topology.Backoff) (*deliveries, bool) {
	q, ok := o.queues[d.Queue]
	full := len(o.queues) >= mostAnswers+len(o.Topology.WorkQueues)
	if ok || full || b.Outage == nil || d.Outcome == retry.Unroutable { // it may name a queue that does not exist
		return q, ok
	}
	return o.watch(o.rules.WorkQueue(d.Queue), b, time.Now()), true
}

// forget drops a queue: others need its place. The caller holds the lock.
func (o *outages) forget(ctx context.Context, q *deliveries, now time.Time) {
	if !q.since.IsZero() {
		o.ends(ctx, q, now.Sub(q.since))
	}
	q.probe.Forget(q.work.Name)
	delete(o.queues, q.work.Name)
	o.names = slices.DeleteFunc(o.names, func(name string) bool { return name == q.work.Name })
}

// deleted forgets a queue that the statistics no longer have. Of one that the file names it begins
// anew, as it may come again: its outage is over. The caller holds the lock.
func (o *outages) deleted(ctx context.Context, q *deliveries, now time.Time) (forgotten bool) {
	if _, named := o.Topology.WorkQueue(q.work.Name); named {
		q.window, q.seen, q.blind = retry.NewWindow(*q.backoff.Outage, broker.Tick, now), now, false
		return false
	}
	o.forget(ctx, q, now)
	return true
}

// begin reads the first statistics.
func (o *outages) begin(ctx context.Context) error {
	err := o.read(ctx)
	if errors.Is(err, broker.ErrForbidden) || errors.Is(err, broker.ErrUnauthorized) {
		o.api.Close()
		return fmt.Errorf("a backoff has outage, for which the processor reads statistics from the management API: %w; "+
			"'dlxctl rights' prints the tag that its user needs, or remove outage", err)
	}
	o.report(ctx, err)
	return nil
}

// run reads statistics, and tells the broker what they show, until ctx ends.
func (o *outages) run(ctx context.Context) {
	if o == nil {
		return
	}
	defer o.api.Close()
	var announcing sync.WaitGroup
	defer announcing.Wait()
	announcing.Go(func() { o.announce(ctx) })
	tick := time.NewTicker(broker.Tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o.report(ctx, o.read(ctx))
		}
	}
}

func (o *outages) read(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, broker.Tick)
	defer cancel()
	o.mu.Lock()
	names := slices.Clone(o.names)
	o.mu.Unlock()
	begin := time.Now()
	counted, err := o.api.Deliveries(reading, names)
	if err != nil {
		return err
	}
	o.count(ctx, counted, time.Now())
	return o.uncounted(counted, begin)
}

// uncounted fails if statistics of that time lack what this processor has consumed itself: then
// the broker keeps none, or counts later than it does by default.
func (o *outages) uncounted(counted map[string]management.Deliveries, now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for queue, since := range o.taken {
		if counted[queue].Delivered > 0 {
			delete(o.taken, queue)
		} else if now.Sub(since) > management.StatisticsLag {
			return fmt.Errorf("the broker counts no deliveries of %s, so it may keep no statistics; "+
				"see management_agent.disable_metrics_collector in its configuration", queue)
		}
	}
	return nil
}

// consuming notes that a failed queue is consumed from now on. Before, the broker or the queue may
// have lost its counts.
func (o *outages) consuming(queue string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.taken, queue)
}

// report logs an error once, until statistics can be read again, and tells the monitor.
func (o *outages) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil: // errors say no more than that
		return
	case err != nil && !o.logged:
		o.Log.WarnContext(ctx, "cannot read statistics: whether a work queue is in outage is not known", "error", err)
	case err == nil && o.logged:
		o.Log.InfoContext(ctx, "reading statistics again")
	}
	o.logged = err != nil
	for _, b := range o.Topology.Backoffs {
		if b.Outage != nil {
			o.probes.Of(b.Name).Statistics(err == nil && !o.blind(b))
		}
	}
}

// blind reports whether the broker does not count what the consumers of a work queue of b get.
func (o *outages) blind(b topology.Backoff) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.queues {
		if q.blind && q.backoff.Name == b.Name {
			return true
		}
	}
	return false
}

// count notes statistics, and tells which outages begin and end.
func (o *outages) count(ctx context.Context, counted map[string]management.Deliveries, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	shares := o.shares()
	for name, q := range o.queues {
		s, there := counted[name]
		if there {
			q.seen = now
		} else if now.Sub(q.seen) > retry.Unsure(broker.Tick) && o.deleted(ctx, q, now) {
			continue
		}
		failed := counted[q.backoff.FailedQueue]
		q.processors = max(1, failed.Consumers)
		q.window.Count(retry.Statistics{
			Delivered: s.Delivered, Acknowledged: s.Acknowledged,
			Told: failed.Published, Share: shares[name], Processors: q.processors, Consumed: failed.Delivered,
		}, now)
		q.see(ctx, o.Log)
		if _, known := o.due[q.backoff.Name]; !known { // what previous processors have put there
			o.due[q.backoff.Name] = now.Add(q.spread(counted[q.backoff.Outage.Tier.Queue].Messages))
		}
		switch out := q.window.Out(); {
		case out && q.since.IsZero():
			q.since, q.before, q.waited = now, !q.window.SawBegin(), 0
			o.begins(ctx, q)
		case !out && !q.since.IsZero():
			o.ends(ctx, q, now.Sub(q.since))
			q.since = time.Time{}
		}
		q.probe.Outage(name, !q.since.IsZero())
	}
}

// see logs when the broker begins or ends to count what the consumers of the queue get.
func (q *deliveries) see(ctx context.Context, log *slog.Logger) {
	switch blind := q.window.Uncounted(); {
	case blind == q.blind:
		return
	case blind:
		q.describe(log).WarnContext(ctx, "the broker does not count what consumers of a work queue get: "+
			"whether it is in outage is not known; RabbitMQ 4 counts none of AMQP 1.0")
	default:
		q.describe(log).InfoContext(ctx, "the broker counts again what consumers of a work queue get")
	}
	q.blind = !q.blind
}

// shares returns which part of what consumers publish to its failed queue each work queue has. How
// many they are, of all work queues of a backoff, the broker counts. This processor sees some of
// them: the part is at most what these show, and all of it where it has seen none.
func (o *outages) shares() map[string]float64 {
	all := map[string]float64{}
	for _, q := range o.queues {
		all[q.backoff.Name] += q.window.Told()
	}
	out := map[string]float64{}
	for name, q := range o.queues {
		out[name] = 1
		if n := all[q.backoff.Name]; n >= 1 {
			part := q.window.Told() / n
			out[name] = min(1, part+2*math.Sqrt(part*(1-part)/n)) // two standard deviations
		}
	}
	return out
}

// spread returns how long that many messages take to return.
func (q *deliveries) spread(messages int64) time.Duration {
	if q.backoff.Outage.Rate == 0 {
		return 0
	}
	seconds := float64(messages) / q.backoff.Outage.Rate
	return time.Duration(min(seconds, topology.LongestOutageTier.Seconds()) * float64(time.Second))
}

// begins tells that an outage begins.
func (o *outages) begins(ctx context.Context, q *deliveries) {
	failed, of := q.window.Last()
	q.describe(o.Log).WarnContext(ctx, "work queue is in outage: messages that would be dead letters wait",
		"failed", failed, "of", of)
	o.notify(q, "outage", fmt.Sprintf("%d of the last %s failed", failed, text.Count(of, "delivery")))
}

// ends tells that an outage has ended.
func (o *outages) ends(ctx context.Context, q *deliveries, lasted time.Duration) {
	failed, of := q.window.Last()
	took := text.Duration(lasted.Round(time.Second))
	q.describe(o.Log).WarnContext(ctx, "outage of a work queue has ended",
		"failed", failed, "of", of, "lasted", took, "waited", q.waited)
	o.notify(q, "outage_end", fmt.Sprintf("it lasted %s, and messages waited %s in place of dying",
		took, text.Count(q.waited, "time")))
}

// describe returns a logger that names the work queue.
func (q *deliveries) describe(log *slog.Logger) *slog.Logger {
	return log.With("queue", q.work.Name, "backoff", q.backoff.Name, "owner", q.work.Owner,
		"severity", q.work.WorstSeverity())
}

// notify sends a notice of an outage.
func (o *outages) notify(q *deliveries, event, what string) {
	o.tell(notify.Notice{
		Event: event, Topology: o.Topology.Name, Queue: q.work.Name, MovedTo: q.backoff.Outage.Tier.Queue,
		Owner: q.work.Owner, Severity: q.work.WorstSeverity(), Error: what,
	}, notify.Message{})
}

// state returns what is known about a work queue, as [retry.Rules.Knowing] says. Of one whose first
// message this is, or for which there is no place, nothing is known.
func (o *outages) state(queue string) (retry.State, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q, ok := o.queues[queue]; ok {
		return q.window.State(time.Now())
	}
	return retry.NotKnown, time.Time{}
}

// failed notes a message that came to the failed queue of b.
func (o *outages) failed(d retry.Decision, b topology.Backoff) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, noted := o.taken[b.FailedQueue]; !noted {
		o.taken[b.FailedQueue] = time.Now()
	}
	if q, ok := o.of(d, b); ok {
		q.window.Failed(d.Evidence)
	}
}

// queued returns how long it takes until what waits for the end of an outage of b has left its
// queue, as far as this process knows.
func (o *outages) queued(b topology.Backoff) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return min(max(0, time.Until(o.due[b.Name])), topology.LongestOutageTier)
}

// wait returns how long the next message waits for the end of an outage: as long as was decided, or
// longer if that many wait already that the rate would be exceeded. The messages of all work queues
// of a backoff come one after the other, as they leave its outage queue in the order in which they
// came.
func (o *outages) wait(d retry.Decision, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	q, ok := o.queues[d.Queue]
	if !ok {
		return d.Wait
	}
	q.waited++
	at := now.Add(d.Wait)
	if due := o.due[q.backoff.Name]; due.After(at) {
		at = due
	}
	o.due[q.backoff.Name] = at.Add(q.spread(q.processors)) // each processor has its share of the rate
	return min(at.Sub(now), topology.LongestOutageTier)
}
