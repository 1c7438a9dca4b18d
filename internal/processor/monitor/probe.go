package monitor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dlxctl/dlxctl/topology"
)

// otherQueue is the label of queues that the file does not name: names that messages
// make up must not make a new series each time.
const otherQueue = "(other)"

// Probe records what happens at one failed queue. The relay of that queue alone
// calls Retried, DeadLettered and Unroutable; any goroutine may call the other
// methods. A nil Probe records nothing.
type Probe struct {
	monitor  *Monitor
	topology string
	backoff  string
	failed   string // the failed queue
	// workQueues is written by the relay alone, with mu. Other goroutines read it with mu.
	workQueues map[string]topology.WorkQueue
	loop       topology.Backoff
	adopted    int  // how many of workQueues the file does not name
	delays     bool // the queue is one of a delay: of the gauges, consumer_up and held_messages have it
	// Counters are looked up once: a message costs no more than an addition.
	retried map[retryKey]prometheus.Counter
	dead    map[deadKey]prometheus.Counter
	confirm prometheus.Observer
	late    prometheus.Observer // of a delay

	inFlight atomic.Int64
	left     atomic.Int64 // messages in flight when the queue was consumed last, if it is not consumed now
	up       atomic.Bool
	blocked  atomic.Bool
	active   atomic.Int64 // when something last happened, in nanoseconds of Unix time
	// statistics tells whether those that tell of outages could be read. Nil: nothing reads them.
	statistics atomic.Pointer[bool]

	mu     sync.Mutex
	reason string         // why the queue is not consumed; empty before the first try
	held   map[string]int // how many messages stay in the failed queue, by reason
	// outages are the work queues of which it is known whether they are in outage.
	outages map[string]bool
}

type (
	retryKey struct {
		queue string
		delay time.Duration
	}
	deadKey struct {
		queue, severity string
		reason          topology.Reason
	}
	outageKey struct{ queue, severity, owner string }
)

// Probes are those of one processor, one for each backoff and one for each queue of a delay.
type Probes []*Probe

// Watch returns probes for the backoffs and delays of t. The caller removes them with Close. A
// nil Monitor returns none.
func (m *Monitor) Watch(t topology.Compiled) Probes {
	if m == nil {
		return nil
	}
	var all Probes
	for _, l := range t.Backoffs {
		all = append(all, m.newProbe(t, l))
	}
	for _, d := range t.Delays {
		for _, queue := range d.Read() {
			p := &Probe{monitor: m, topology: t.Name, backoff: d.Name, failed: queue, delays: true, held: map[string]int{}}
			p.late = m.late.WithLabelValues(t.Name, d.Name)
			p.Active()
			for _, cause := range []string{"bad_delay", "headers_too_large", "refused"} {
				p.nowhere("", "", cause)
			}
			all = append(all, p)
		}
	}
	m.sessions.WithLabelValues(t.Name) // from 0: rates and alerts miss the first of a series that begins at 1
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probes, m.started = append(m.probes, all...), true
	return all
}

// newProbe returns a probe whose counters begin at 0.
func (m *Monitor) newProbe(t topology.Compiled, l topology.Backoff) *Probe {
	p := &Probe{
		monitor: m, topology: t.Name, backoff: l.Name, failed: l.FailedQueue, loop: l,
		workQueues: map[string]topology.WorkQueue{},
		retried:    map[retryKey]prometheus.Counter{}, dead: map[deadKey]prometheus.Counter{},
		confirm: m.confirm.WithLabelValues(t.Name, l.Name), held: map[string]int{}, outages: map[string]bool{},
	}
	p.Active()
	for _, w := range t.WorkQueues {
		p.workQueues[w.Name] = w
		if w.Backoff == l.Name {
			p.begin(w.Name, l)
		}
	}
	p.begin(otherQueue, l)
	for _, cause := range []string{"no_address", "unknown_queue"} {
		p.nowhere("", "", cause)
	}
	return p
}

// begin lets the counters of a queue begin at 0.
func (p *Probe) begin(queue string, l topology.Backoff) {
	for _, s := range l.Tiers {
		p.retries(queue, s.Delay)
	}
	if l.Outage != nil {
		p.retries(queue, outageTier)
	}
	for _, severity := range p.workQueue(queue).Severities() {
		for _, r := range topology.AllReasons() {
			p.deaths(queue, severity, r)
		}
		if queue == otherQueue {
			severity = "" // of a name that a message made up
		}
		for _, cause := range []string{"headers_too_large", "refused"} { // of a message that names a queue
			p.nowhere(queue, severity, cause)
		}
	}
}

// mostAdopted is how many queues have series of their own that the file does not name: a client
// that may declare queues could make any number.
const mostAdopted = 1000

// Adopt begins to count a queue by its own name that exists and that a match of the file covers.
// A name that no label may have counts among the others. The relay calls it.
func (p *Probe) Adopt(w topology.WorkQueue) {
	if p == nil || p.adopted == mostAdopted || !utf8.ValidString(w.Name) {
		return
	}
	if _, known := p.workQueues[w.Name]; !known {
		p.adopted++
		p.mu.Lock()
		p.workQueues[w.Name] = w
		p.mu.Unlock()
		p.begin(w.Name, p.loop)
	}
}

// Close removes the probes from their monitor: their processor has ended. What was in flight is
// left to the next one.
func (all Probes) Close() {
	if len(all) == 0 {
		return
	}
	m := all[0].monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range all {
		m.unsettled += p.left.Load()
	}
	m.probes = slices.DeleteFunc(m.probes, func(p *Probe) bool { return slices.Contains(all, p) })
}

// Of returns the probe of a backoff; nil if there is none.
func (all Probes) Of(backoff string) *Probe {
	for _, p := range all {
		if p.backoff == backoff && !p.delays {
			return p
		}
	}
	return nil
}

// OfQueue returns the probe of a queue of a delay; nil if there is none.
func (all Probes) OfQueue(queue string) *Probe {
	for _, p := range all {
		if p.failed == queue && p.delays {
			return p
		}
	}
	return nil
}

// Active records that something happens.
func (p *Probe) Active() {
	if p != nil {
		p.active.Store(time.Now().UnixNano())
	}
}

// Disconnected records that there is no connection, and why.
func (p *Probe) Disconnected(err error) {
	if p == nil {
		return
	}
	p.monitor.sessions.WithLabelValues(p.topology).Inc()
	p.Idle(err)
}

// Blocked records whether the broker accepts no messages because of an alarm.
func (p *Probe) Blocked(blocked bool) {
	if p == nil {
		return
	}
	p.Active()
	p.blocked.Store(blocked)
}

// Consuming records that the failed queue is consumed.
func (p *Probe) Consuming() {
	if p == nil {
		return
	}
	p.Active()
	p.left.Store(0) // the broker delivers them again
	p.up.Store(true)
}

// Idle records that the failed queue is not consumed, and why; nil means that all is
// done. What was in flight is unsettled, until the queue is consumed again or the probe is closed.
func (p *Probe) Idle(err error) {
	if p == nil {
		return
	}
	p.Active()
	p.up.Store(false)
	p.left.Add(p.inFlight.Swap(0))
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.held) // the next relay finds them again
	p.reason = "it is empty, or the process is stopping"
	if err != nil {
		p.reason = err.Error()
	}
}

// Taken records that a message was consumed from the failed queue.
func (p *Probe) Taken() {
	if p == nil {
		return
	}
	p.inFlight.Add(1)
	p.Active()
}

// Passed records a message of a delay whose copy is confirmed.
func (p *Probe) Passed() {
	if p == nil {
		return
	}
	p.inFlight.Add(-1)
	p.Active()
}

// Late records how late a message of a delay came, whose publisher had said when it is due.
func (p *Probe) Late(by time.Duration) {
	if p != nil {
		p.late.Observe(by.Seconds())
	}
}

// Retried records a message of a work queue whose copy in a tier is confirmed. It was
// published at that time.
func (p *Probe) Retried(queue string, delay time.Duration, published time.Time) {
	if p == nil {
		return
	}
	p.confirmed(published)
	p.retries(p.workQueue(queue).Name, delay).Inc()
}

// Outlasts records a message of a work queue that would be dead, and waits for the end of an
// outage.
func (p *Probe) Outlasts(queue string, published time.Time) {
	if p == nil {
		return
	}
	p.confirmed(published)
	p.retries(p.workQueue(queue).Name, outageTier).Inc()
}

// Outage records whether a work queue is in outage. A queue whose name no label may have has no
// gauge.
func (p *Probe) Outage(queue string, out bool) {
	if p == nil || !utf8.ValidString(queue) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outages[queue] = out
}

// Forget records that nothing is known of a work queue any more.
func (p *Probe) Forget(queue string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.outages, queue)
}

// Statistics records whether those that tell of outages could be read.
func (p *Probe) Statistics(read bool) {
	if p == nil {
		return
	}
	p.statistics.Store(&read)
}

// DeadLettered records a message of a work queue whose copy in the dead-letter queue is
// confirmed.
func (p *Probe) DeadLettered(queue, severity string, reason topology.Reason, published time.Time) {
	if p == nil {
		return
	}
	p.confirmed(published)
	p.deaths(p.workQueue(queue).Name, severity, reason).Inc()
}

// Unroutable records a message whose copy in the unroutable queue is confirmed. The
// work queue that it names may not exist, and the severity is then empty.
func (p *Probe) Unroutable(queue, severity, cause string, published time.Time) {
	if p == nil {
		return
	}
	p.confirmed(published)
	p.nowhere(queue, severity, cause).Inc()
}

// NotDelayed records that a message of a delay is in the unroutable queue, after [Probe.Passed].
func (p *Probe) NotDelayed(cause string) {
	if p != nil {
		p.nowhere("", "", cause).Inc()
	}
}

// Dropped records a message of a work queue that was deleted, as its time was over.
func (p *Probe) Dropped(queue string) {
	if p == nil {
		return
	}
	p.inFlight.Add(-1)
	p.Active()
	w := p.workQueue(queue)
	p.monitor.expired.WithLabelValues(p.topology, p.backoff, w.Name, w.Owner).Inc()
}

// Held records that a message stays in the failed queue, n of 1, or no longer does, n of -1. The
// reason is HeldTooLarge, HeldDeadly or HeldRefused.
func (p *Probe) Held(reason string, n int) {
	if p == nil {
		return
	}
	p.Active() // it waits on purpose
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[reason] += n
}

func (p *Probe) confirmed(published time.Time) {
	now := time.Now()
	p.inFlight.Add(-1)
	p.active.Store(now.UnixNano())
	p.confirm.Observe(now.Sub(published).Seconds())
}

// outageTier stands for the delay of the tier in which messages wait for the end of an outage.
const outageTier = -1

// retries returns the counter of a tier. Its label has the form of the name of the tier's retry
// queue, "3s500ms", so that both can be compared.
func (p *Probe) retries(queue string, delay time.Duration) prometheus.Counter {
	k := retryKey{queue, delay}
	c, ok := p.retried[k]
	if !ok {
		tier := topology.FormatDelay(delay)
		if delay == outageTier {
			tier = "outage"
		}
		c = p.monitor.retried.WithLabelValues(p.topology, p.backoff, queue, tier)
		p.retried[k] = c
	}
	return c
}

func (p *Probe) deaths(queue, severity string, reason topology.Reason) prometheus.Counter {
	k := deadKey{queue, severity, topology.Reason(ReasonLabel(reason))}
	c, ok := p.dead[k]
	if !ok {
		w := p.workQueue(queue)
		c = p.monitor.deadLettered.WithLabelValues(p.topology, p.backoff, queue, string(k.reason), severity, w.Owner)
		p.dead[k] = c
	}
	return c
}

// nowhere returns the counter of unroutable messages that name a queue.
func (p *Probe) nowhere(queue, severity, cause string) prometheus.Counter {
	w := p.workQueues[queue] // the zero value for a name that a message made up
	return p.monitor.unroutable.WithLabelValues(p.topology, p.backoff, w.Name, cause, severity, w.Owner)
}

// workQueue returns a work queue, and a substitute for one that the file does not name.
func (p *Probe) workQueue(queue string) topology.WorkQueue {
	if w, ok := p.workQueues[queue]; ok {
		return w
	}
	return topology.WorkQueue{Name: otherQueue, Severity: topology.SeverityTicket}
}

// heldFor returns how many messages stay in the failed queue for a reason.
func (p *Probe) heldFor(reason string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[reason]
}

// outagesNow returns the work queues of which it is known whether they are in outage.
func (p *Probe) outagesNow() map[outageKey]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[outageKey]bool{}
	for queue, out := range p.outages {
		w := p.workQueues[queue]
		now[outageKey{queue, w.WorstSeverity(), w.Owner}] = out
	}
	return now
}

// whyNot returns why the queue is not consumed.
func (p *Probe) whyNot() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == "" {
		return "connecting"
	}
	return p.reason
}
