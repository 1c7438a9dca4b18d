package monitor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// The table of docs/metrics.md is the code's.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `dlxctl_") {
			table = append(table, strings.TrimSpace(line))
		}
	}
	var want []string
	for _, m := range Metrics() {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help))
	}
	if got, want := strings.Join(table, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("the table of docs/metrics.md is\n%s\nand should be\n%s", got, want)
	}
}

// Each series of counted messages begins at 0, also those of queues that the file does not name:
// rates and alerts miss the first message of a series that begins at 1.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	m := New("")
	all := m.Watch(topology.Compiled{
		Name: "shop",
		WorkQueues: []topology.WorkQueue{{
			Name: "work", Backoff: "slow", Owner: "team", Severity: "page",
			SeverityRules: []topology.SeverityRule{{Key: "#", Severity: "info"}},
		}},
		Backoffs: []topology.Backoff{{Name: "slow", Tiers: []topology.Tier{{Delay: time.Minute}}}},
		Delays:   []topology.Delay{{Name: "later", Intake: "in", Due: "due"}},
	})
	p, delayed := all[0], all[1]
	notices := m.Notices("shop", "1 https://host")
	before := series(t, m)
	if len(before) == 0 {
		t.Fatal("there are no counters")
	}
	now := time.Now()
	for _, queue := range []string{"work", "of a newer file"} {
		p.Retried(queue, time.Minute, now)
		for _, r := range []topology.Reason{"rejected", "delivery_limit", "expired", "maxlen", "permanent", "unknown"} {
			for _, severity := range p.workQueue(queue).Severities() {
				p.DeadLettered(queue, severity, r, now)
			}
		}
		for _, cause := range []string{"headers_too_large", "refused"} {
			for _, severity := range p.workQueues[queue].Severities() {
				p.Unroutable(queue, severity, cause, now)
			}
		}
	}
	p.Unroutable("", "", "no_address", now)
	p.Unroutable("made up", "", "unknown_queue", now)
	for _, cause := range []string{"bad_delay", "headers_too_large", "refused"} {
		delayed.NotDelayed(cause)
	}
	p.Disconnected(nil)
	notices.Sent(1)
	for _, reason := range []string{"full", "refused", "failed", "stopped"} {
		notices.Dropped(1, reason)
	}
	for name, value := range series(t, m) {
		if first, ok := before[name]; !ok || first != 0 {
			t.Errorf("%s is %v, and was not 0 before", name, value)
		}
	}
}

// The tiers are those of the file of each processor that runs, once for topologies of one name.
func TestTheTiersOfTheFile(t *testing.T) {
	t.Parallel()
	m := New("")
	with := func(tiers ...topology.Tier) Probes {
		return m.Watch(topology.Compiled{Name: "shop", Backoffs: []topology.Backoff{{Name: "slow", Tiers: tiers}}})
	}
	minute := topology.Tier{Delay: time.Minute}
	with(minute, minute)
	with(minute, minute)
	with(minute).Close()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == metricBackoff {
			if got := fmt.Sprint(f.GetMetric()); strings.Count(got, "slow") != 1 || !strings.Contains(got, "1m ×2") {
				t.Errorf("the series are %s", got)
			}
			return
		}
	}
	t.Error("there is no series")
}

// A scrape may come while a relay adopts queues of a match that outages are known of: without a
// lock, Go ends the process.
func TestAScrapeWhileQueuesAreAdopted(t *testing.T) {
	t.Parallel()
	m := New("")
	p := m.Watch(topology.Compiled{
		Name:     "shop",
		Backoffs: []topology.Backoff{{Name: "slow", Outage: &topology.Outage{}}},
	})[0]
	p.Outage("svc.0", true)
	adopted := make(chan struct{})
	go func() {
		defer close(adopted)
		for i := range 100 {
			p.Adopt(topology.WorkQueue{Name: fmt.Sprint("svc.", i), Severity: "page", Owner: "team"})
		}
	}()
	for done := false; !done; {
		select {
		case <-adopted:
			done = true
		default:
		}
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if got := fmt.Sprint(f.GetMetric()); done && f.GetName() == metricOutage &&
				(!strings.Contains(got, `"page"`) || !strings.Contains(got, `"team"`)) {
				t.Errorf("the series is %s", got)
			}
		}
	}
}

// A name that is not UTF-8, as RabbitMQ accepts it over AMQP 1.0, cannot be a label: its queue
// counts among the others.
func TestANameThatCannotBeALabel(t *testing.T) {
	t.Parallel()
	const name = "svc.caf\xe9"
	m := New("")
	p := m.Watch(topology.Compiled{
		Name:     "shop",
		Backoffs: []topology.Backoff{{Name: "slow", Outage: &topology.Outage{}}},
	})[0]
	p.Adopt(topology.WorkQueue{Name: name})
	p.Outage(name, true)
	p.Retried(name, time.Second, time.Now())
	if _, err := m.registry.Gather(); err != nil {
		t.Error(err)
	}
}

// The label reason has the reasons that the processor gives, and one value for all others.
func TestReasonLabels(t *testing.T) {
	t.Parallel()
	for r, want := range map[topology.Reason]string{
		"permanent": "permanent", "unknown": "unknown", "": "other", "forged": "other",
	} {
		if got := ReasonLabel(r); got != want {
			t.Errorf("the label of the reason %q is %q, not %q", r, got, want)
		}
	}
}

// series returns the counters of a monitor that are its own, by name and labels.
func series(t *testing.T, m *Monitor) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if s.GetCounter() != nil && strings.HasPrefix(f.GetName(), "dlxctl_") {
				out[f.GetName()+fmt.Sprint(s.GetLabel())] = s.GetCounter().GetValue()
			}
		}
	}
	return out
}
