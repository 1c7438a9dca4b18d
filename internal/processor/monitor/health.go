package monitor

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dlxctl/dlxctl/internal/text"
)

// stuckAfter is how long nothing may happen before a processor counts as stuck.
// It is beyond every wait that processor and relay make on purpose: a broker that
// is slow to confirm is given a quarter of an hour before they reconnect.
const stuckAfter = 20 * time.Minute

// Handler serves /metrics, /healthz and /readyz.
func (m *Monitor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { respond(w, m.Unhealthy(time.Now())) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { respond(w, m.Unready()) })
	return mux
}

// respond writes ok, or what is wrong with status 503.
func respond(w http.ResponseWriter, wrong []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(wrong) == 0 {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, strings.Join(wrong, "\n")+"\n")
}

// Unready says why not every failed queue is consumed. It gives nothing if all
// are.
func (m *Monitor) Unready() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.stopping:
		return []string{"stopping"}
	case !m.started:
		return []string{"no processor has started"}
	}
	var wrong []string
	for _, p := range m.probes {
		if !p.up.Load() {
			wrong = append(wrong, fmt.Sprintf("%s: %s %s is not consumed: %s", p.topology, p.kind(), p.failed, p.whyNot()))
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// Unhealthy says what is stuck, so that only a new start of the process can help:
// messages are in flight or a connection is to be made, and nothing has happened
// for long. A broker that is away, or that takes no messages because of an
// alarm, is not such a fault: the processor waits, and a new one would wait too.
func (m *Monitor) Unhealthy(now time.Time) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var wrong []string
	for _, p := range m.probes {
		quiet := now.Sub(time.Unix(0, p.active.Load()))
		waits := p.up.Load() && p.inFlight.Load() == 0 // for messages, as it should
		if quiet > stuckAfter && !waits && !p.blocked.Load() {
			wrong = append(wrong, fmt.Sprintf("%s: %s %s: %d messages are in flight and nothing has happened for %s",
				p.topology, p.kind(), p.failed, p.inFlight.Load(), text.Took(quiet)))
		}
	}
	return wrong
}

// kind says what the queue of the probe is.
func (p *Probe) kind() string {
	if p.delays {
		return "queue of a delay"
	}
	return "failed queue"
}

// Stopping makes the monitor say that the process is not ready: it takes no more
// messages.
func (m *Monitor) Stopping() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
}
