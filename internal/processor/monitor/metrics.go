// Package monitor shows what the processors of one process do: as metrics for
// Prometheus, as answers to checks of health and readiness, and as logs that do not
// repeat themselves without bound.
package monitor

import (
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Metric describes a metric of dlxctl. Names and labels are a contract: alerts
// and dashboards rely on them.
type Metric struct {
	Name string
	// Type is counter, gauge or histogram.
	Type   string
	Labels []string
	Help   string
}

// Names of the metrics.
const (
	metricRetried      = "dlxctl_messages_retried_total"
	metricDeadLettered = "dlxctl_messages_dead_lettered_total"
	metricUnroutable   = "dlxctl_messages_unroutable_total"
	metricExpired      = "dlxctl_messages_dropped_total"
	metricInFlight     = "dlxctl_in_flight"
	metricHeld         = "dlxctl_held_messages"
	metricConfirm      = "dlxctl_publish_confirm_seconds"
	metricLate         = "dlxctl_delayed_late_seconds"
	metricConsumer     = "dlxctl_consumer_up"
	metricBlocked      = "dlxctl_connection_blocked"
	metricOutage       = "dlxctl_queue_in_outage"
	metricUnread       = "dlxctl_statistics_unread"
	metricBackoff      = "dlxctl_backoff_info"
	metricSessions     = "dlxctl_sessions_lost_total"
	metricSent         = "dlxctl_notices_sent_total"
	metricDropped      = "dlxctl_notices_dropped_total"
	metricBuild        = "dlxctl_build_info"
)

// Metrics returns the metrics of dlxctl, without those of the Go runtime and the
// process.
func Metrics() []Metric {
	return []Metric{
		{
			metricRetried, "counter",
			[]string{"topology", "backoff", "queue", "tier"},
			"Messages put into a tier (outage: until one ends). Queue is the work queue they failed in, or (other) if the file lacks it.",
		},
		{
			metricDeadLettered, "counter",
			[]string{"topology", "backoff", "queue", "reason", "severity", "owner"},
			"Messages put into the dead-letter queue of their work queue. Reason is why they were dead-lettered last: " + reasons() + ".",
		},
		{
			metricUnroutable, "counter",
			[]string{"topology", "backoff", "queue", "reason", "severity", "owner"},
			"Messages put into the unroutable queue. Reason is no_address, unknown_queue, headers_too_large, refused or bad_delay. Backoff may be a delay. Queue may be empty.",
		},
		{
			metricExpired, "counter",
			[]string{"topology", "backoff", "queue", "owner"},
			"Messages deleted because their time was over, where the backoff has afterExpiry: drop.",
		},
		{
			metricInFlight, "gauge",
			[]string{"topology", "backoff"},
			"Messages consumed from the failed queue whose copy is not confirmed yet.",
		},
		{
			metricHeld, "gauge",
			[]string{"topology", "backoff", "queue", "reason"},
			"Messages that stay in the failed queue, or a delay's. Reason is too_large, deadly (publishing it ends the connection) or refused (even as unroutable).",
		},
		{
			metricConfirm, "histogram",
			[]string{"topology", "backoff"},
			"Seconds from publishing the copy of a message until the broker confirmed it, pauses after refusals included.",
		},
		{
			metricLate, "histogram",
			[]string{"topology", "delay"},
			"Seconds from when a delayed message was due until the broker confirmed its copy. Only messages with x-delay or x-delay-until.",
		},
		{
			metricConsumer, "gauge",
			[]string{"topology", "backoff", "queue"},
			"1 while the failed queue is consumed by this process, else 0. Backoff may be a delay, with its intake queue, due queue or timer.",
		},
		{
			metricBlocked, "gauge",
			[]string{"topology"},
			"1 while the broker blocks publishing because of a memory or disk alarm, else 0.",
		},
		{
			metricOutage, "gauge",
			[]string{"topology", "backoff", "queue", "severity", "owner"},
			"1 while the work queue is in outage, as far as this process knows, else 0. Only queues whose backoff has outage.",
		},
		{
			metricUnread, "gauge",
			[]string{"topology", "backoff"},
			"1 while statistics do not tell this process of outages, else 0. Only backoffs with outage.",
		},
		{
			metricBackoff, "gauge",
			[]string{"topology", "backoff", "tiers"},
			"1, with the delays of the backoff in the file that this process runs with.",
		},
		{
			metricSessions, "counter",
			[]string{"topology"},
			"Times the connections to the broker were lost or could not be made.",
		},
		{
			metricSent, "counter",
			[]string{"topology", "target"},
			"Messages whose notice a target accepted. Target is its number under notify and its host; of --notify the host alone, without a topology.",
		},
		{
			metricDropped, "counter",
			[]string{"topology", "target", "reason"},
			"Messages whose notice was not sent. Reason is full (too many came), refused (by the target), failed (it could not be reached) or stopped.",
		},
		{metricBuild, "gauge", []string{"version", "goversion"}, "1, with the version of dlxctl and of Go."},
	}
}

func definition(name string) Metric {
	all := Metrics()
	return all[slices.IndexFunc(all, func(m Metric) bool { return m.Name == name })]
}

// Monitor shows what the processors of one process do, as metrics and as their
// health. Any number of processors may share it. New makes one; a nil Monitor
// can be watched with, and records nothing.
type Monitor struct {
	registry     *prometheus.Registry
	retried      *prometheus.CounterVec
	deadLettered *prometheus.CounterVec
	unroutable   *prometheus.CounterVec
	expired      *prometheus.CounterVec
	confirm      *prometheus.HistogramVec
	late         *prometheus.HistogramVec
	sessions     *prometheus.CounterVec
	sent         *prometheus.CounterVec
	dropped      *prometheus.CounterVec

	mu        sync.Mutex
	probes    []*Probe
	started   bool // a processor has, with or without backoffs
	stopping  bool
	unsettled int64 // messages that processors left in flight when they ended
}

// New returns a monitor that shows no processor yet. The version is that of the
// program.
func New(version string) *Monitor {
	m := &Monitor{
		registry: prometheus.NewRegistry(), retried: counter(metricRetried), deadLettered: counter(metricDeadLettered),
		unroutable: counter(metricUnroutable), expired: counter(metricExpired), sessions: counter(metricSessions),
		sent: counter(metricSent), dropped: counter(metricDropped),
	}
	d := definition(metricConfirm)
	m.confirm = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: d.Name, Help: d.Help,
		// A broker on the same machine answers within a millisecond, a quorum
		// across sites within a second; what is refused waits for half a minute.
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, d.Labels)
	d = definition(metricLate)
	m.late = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: d.Name, Help: d.Help,
		// A random delay is half a second late, as levels have whole seconds. More is a busy
		// processor, or one that was away.
		Buckets: []float64{.05, .1, .25, .5, .75, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
	}, d.Labels)
	d = definition(metricBuild)
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(
		m.retried, m.deadLettered, m.unroutable, m.expired, m.confirm, m.late, m.sessions, m.sent, m.dropped,
		build, (*levels)(m),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func counter(name string) *prometheus.CounterVec {
	d := definition(name)
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

// Notices counts what became of the notices for one target.
type Notices struct {
	sent    prometheus.Counter
	dropped *prometheus.CounterVec
}

// Notices returns the counter of a target, whose series begin at 0. The topology is empty for the
// webhook of --notify. The name must hold no secret.
func (m *Monitor) Notices(topology, target string) Notices {
	n := Notices{
		sent:    m.sent.WithLabelValues(topology, target),
		dropped: m.dropped.MustCurryWith(prometheus.Labels{"topology": topology, "target": target}),
	}
	for _, reason := range []string{"full", "refused", "failed", "stopped"} {
		n.dropped.WithLabelValues(reason)
	}
	return n
}

// Sent counts messages whose notice a target took.
func (n Notices) Sent(messages int) { n.sent.Add(float64(messages)) }

// Dropped counts messages whose notice was given up, and why.
func (n Notices) Dropped(messages int, reason string) {
	n.dropped.WithLabelValues(reason).Add(float64(messages))
}

// levels collects the gauges, which are read at each scrape and counted nowhere.
// Processors of topologies with the same name, in several virtual hosts, share a
// series: it says that the failed queue is consumed if each of them does.
type levels Monitor

// Describe names the gauges.
func (l *levels) Describe(out chan<- *prometheus.Desc) {
	for _, name := range []string{
		metricInFlight, metricHeld, metricConsumer, metricBlocked, metricOutage, metricUnread, metricBackoff,
	} {
		out <- desc(name)
	}
}

func desc(name string) *prometheus.Desc {
	d := definition(name)
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}

// Collect reads the gauges.
func (l *levels) Collect(out chan<- prometheus.Metric) {
	type key struct{ topology, backoff, queue string }
	inFlight, up, blocked := map[key]int64{}, map[key]float64{}, map[string]float64{}
	held, outages, unread := map[key]map[string]int{}, map[[5]string]float64{}, map[[2]string]float64{}
	backoffs := map[[3]string]bool{}
	l.mu.Lock()
	for _, p := range l.probes {
		k := key{p.topology, p.backoff, p.failed}
		if before, ok := up[k]; !ok || before == 1 {
			up[k] = number(p.up.Load())
		}
		blocked[p.topology] = max(blocked[p.topology], number(p.blocked.Load()))
		if held[k] == nil {
			held[k] = map[string]int{}
		}
		for _, reason := range []string{HeldTooLarge, HeldDeadly, HeldRefused} {
			held[k][reason] += p.heldFor(reason)
		}
		if p.delays {
			continue
		}
		backoffs[[3]string{p.topology, p.backoff, p.loop.DelaysText()}] = true
		inFlight[k] += p.inFlight.Load()
		if now := p.statistics.Load(); now != nil {
			series := [2]string{p.topology, p.backoff}
			unread[series] = max(unread[series], number(!*now))
		}
		for w, out := range p.outagesNow() {
			series := [5]string{p.topology, p.backoff, w.queue, w.severity, w.owner}
			outages[series] = max(outages[series], number(out))
		}
	}
	l.mu.Unlock()
	gauge := func(name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc(name), prometheus.GaugeValue, value, labels...)
	}
	for k, v := range up {
		gauge(metricConsumer, v, k.topology, k.backoff, k.queue)
	}
	for k, n := range inFlight {
		gauge(metricInFlight, float64(n), k.topology, k.backoff)
	}
	for k, reasons := range held {
		for reason, n := range reasons {
			gauge(metricHeld, float64(n), k.topology, k.backoff, k.queue, reason)
		}
	}
	for series, out := range outages {
		gauge(metricOutage, out, series[:]...)
	}
	for series, v := range unread {
		gauge(metricUnread, v, series[:]...)
	}
	for series := range backoffs {
		gauge(metricBackoff, 1, series[:]...)
	}
	for name, v := range blocked {
		gauge(metricBlocked, v, name)
	}
}

// Why a message stays in a failed queue.
const (
	// HeldTooLarge: its body has more bytes than the broker accepts.
	HeldTooLarge = "too_large"
	// HeldDeadly: publishing it ends the channel or the connection.
	HeldDeadly = "deadly"
	// HeldRefused: no queue accepts it, and the unroutable queue does not either. It is tried again.
	HeldRefused = "refused"
)

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// reasons lists the values of the label reason.
func reasons() string {
	names := text.Each(topology.AllReasons(), func(r topology.Reason) string { return string(r) })
	return text.Or(append(names, otherReason))
}

// otherReason stands for every reason that no processor gives.
const otherReason = "other"

// ReasonLabel returns r if the processor gives that reason, and "other" if not: what a
// forged x-death says must not make a new series each time.
func ReasonLabel(r topology.Reason) string {
	if slices.Contains(topology.AllReasons(), r) {
		return string(r)
	}
	return otherReason
}
