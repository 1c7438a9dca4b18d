package processor

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// probe watches the work on one failed queue. Its method moved is called by the
// relay of that queue alone, the others by anybody.
type probe struct {
	monitor  *Monitor
	topology string
	works    map[string]topology.Work
	loop     topology.Loop
	// Counters are looked up once: a message costs no more than an addition.
	retried map[retryKey]prometheus.Counter
	dead    map[deadKey]prometheus.Counter
	confirm prometheus.Observer
	trouble *slog.Logger // says the same only so often
	flush   func()       // says what trouble left out

	inFlight atomic.Int64
	up       atomic.Bool
	blocked  atomic.Bool
	beat     atomic.Int64 // when something last happened, in nanoseconds of Unix time

	mu  sync.Mutex
	why string // it is not up; empty before the first try
}

type (
	retryKey struct {
		queue string
		delay time.Duration
	}
	deadKey struct {
		queue  string
		reason topology.Reason
	}
)

// probes are those of one processor, in the order of its loops.
type probes []*probe

// watch gives probes for the loops of t, which are to be taken away by forget. A
// nil monitor gives some that nobody looks at.
func (m *Monitor) watch(t topology.Topology, log *slog.Logger) probes {
	if m == nil {
		m = NewMonitor("")
	}
	var all probes
	trouble, flush := limited(log)
	for _, l := range t.Loops {
		p := m.probe(t, l)
		p.trouble, p.flush = trouble, flush
		all = append(all, p)
	}
	m.sessions.WithLabelValues(t.Name) // from 0: rates and alerts miss the first of a series that begins at 1
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probes = append(m.probes, all...)
	return all
}

// probe gives a probe, and begins its counters at 0.
func (m *Monitor) probe(t topology.Topology, l topology.Loop) *probe {
	p := &probe{
		monitor: m, topology: t.Name, loop: l, works: map[string]topology.Work{},
		retried: map[retryKey]prometheus.Counter{}, dead: map[deadKey]prometheus.Counter{},
		confirm: m.confirm.WithLabelValues(t.Name, l.Backoff),
	}
	p.touch()
	for _, w := range t.Works {
		p.works[w.Queue] = w
		if w.Backoff != l.Backoff {
			continue
		}
		for _, s := range l.Steps {
			p.retries(w.Queue, s.Delay)
		}
		for _, r := range append(topology.Reasons(), topology.ReasonUnknown) {
			p.deaths(w.Queue, r)
		}
	}
	return p
}

// forget takes the probes away: their processor has ended.
func (all probes) forget() {
	if len(all) == 0 {
		return
	}
	all[0].flush() // it is the same for all
	m := all[0].monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probes = slices.DeleteFunc(m.probes, func(p *probe) bool { return slices.Contains(all, p) })
}

// of gives the probe of a loop.
func (all probes) of(l topology.Loop) *probe {
	return all[slices.IndexFunc(all, func(p *probe) bool { return p.loop.Backoff == l.Backoff })]
}

// lost says that there is no connection, and why.
func (p *probe) lost(err error) {
	p.monitor.sessions.WithLabelValues(p.topology).Inc()
	p.idle(err)
}

// block says whether the broker takes messages.
func (p *probe) block(blocked bool) {
	p.touch()
	p.blocked.Store(blocked)
}

func (p *probe) retries(queue string, delay time.Duration) prometheus.Counter {
	k := retryKey{queue, delay}
	c, ok := p.retried[k]
	if !ok {
		c = p.monitor.retried.WithLabelValues(p.topology, p.loop.Backoff, queue, topology.FormatDelay(delay))
		p.retried[k] = c
	}
	return c
}

func (p *probe) deaths(queue string, reason topology.Reason) prometheus.Counter {
	k := deadKey{queue, topology.Reason(reasonLabel(reason))}
	c, ok := p.dead[k]
	if !ok {
		w := p.work(queue)
		c = p.monitor.deadLettered.WithLabelValues(p.topology, p.loop.Backoff, queue, string(k.reason), w.Severity, w.Owner)
		p.dead[k] = c
	}
	return c
}

// touch says that something happens.
func (p *probe) touch() { p.beat.Store(time.Now().UnixNano()) }

// took counts a message that was taken over.
func (p *probe) took() {
	p.inFlight.Add(1)
	p.touch()
}

// moved counts a message whose copy is confirmed.
func (p *probe) moved(d Decision) {
	now := time.Now()
	p.inFlight.Add(-1)
	p.beat.Store(now.UnixNano())
	p.confirm.Observe(now.Sub(d.At).Seconds())
	switch d.Outcome {
	case Retried:
		p.retries(p.work(d.Queue).Queue, d.Step.Delay).Inc()
	case DeadLettered:
		p.deaths(p.work(d.Queue).Queue, d.Reason).Inc()
	case Parked:
		w := p.works[d.Queue] // none for a name that a message made up
		p.monitor.unroutable.WithLabelValues(p.topology, p.loop.Backoff, w.Queue, string(d.Cause), w.Severity, w.Owner).Inc()
	}
}

// consuming says that the failed queue is consumed.
func (p *probe) consuming() {
	p.touch()
	p.up.Store(true)
}

// idle says that the failed queue is not consumed, and why; nil is because all is
// done. What was in flight the broker delivers again.
func (p *probe) idle(err error) {
	p.touch()
	p.up.Store(false)
	p.inFlight.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.why = "it is empty, or the process stops"
	if err != nil {
		p.why = err.Error()
	}
}

// beating is a sink that tells a probe of each publish, so that a message that
// is refused again and again does not look like a relay that is stuck.
type beating struct {
	relay.Sink
	probe *probe
}

// Publish publishes.
func (b beating) Publish(exchange, key string, m amqp.Publishing) (uint64, error) {
	b.probe.touch()
	return b.Sink.Publish(exchange, key, m)
}
