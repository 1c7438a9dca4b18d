package processor

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/dlxctl/dlxctl/topology"
)

func TestUnhealthyIsWhatANewStartCures(t *testing.T) {
	t.Parallel()
	top := topology.Topology{Name: "shop", Loops: []topology.Loop{{Backoff: "slow", Failed: "shop.slow.failed"}}}
	for name, tc := range map[string]struct {
		happened func(*probe)
		after    time.Duration
		healthy  bool
	}{
		"waits for messages":              {func(p *probe) { p.consuming() }, time.Hour, true},
		"waits for a confirm":             {func(p *probe) { p.consuming(); p.took() }, stuckAfter - time.Second, true},
		"waits for a confirm for minutes": {func(p *probe) { p.consuming(); p.took() }, stuckAfter + time.Second, false},
		"waits for the end of an alarm":   {func(p *probe) { p.consuming(); p.took(); p.blocked.Store(true) }, time.Hour, true},
		"all is confirmed":                {func(p *probe) { p.consuming(); p.took(); p.moved(Decision{Outcome: Parked}) }, time.Hour, true},
		"tries to connect":                {func(p *probe) { p.idle(nil) }, stuckAfter - time.Second, true},
		"no longer tries":                 {func(p *probe) { p.idle(nil) }, stuckAfter + time.Second, false},
		"began, and does nothing":         {func(*probe) {}, stuckAfter + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := NewMonitor("")
			p := m.watch(top, slog.New(slog.DiscardHandler))
			tc.happened(p[0])
			if wrong := m.Unhealthy(time.Now().Add(tc.after)); (len(wrong) == 0) != tc.healthy {
				t.Errorf("it says %q", wrong)
			}
			p.forget()
			if wrong := m.Unhealthy(time.Now().Add(24 * time.Hour)); wrong != nil {
				t.Errorf("with no processor it says %q", wrong)
			}
		})
	}
}

// Topologies of the same name in two virtual hosts share their series. That one of
// the two failed queues is consumed must not hide that the other is not.
func TestOneOfTwoVHostsIsDown(t *testing.T) {
	t.Parallel()
	top := topology.Topology{Name: "shop", Loops: []topology.Loop{{Backoff: "slow", Failed: "shop.slow.failed"}}}
	for _, ups := range [][]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		m := NewMonitor("")
		for _, up := range ups {
			if p := m.watch(top, slog.New(slog.DiscardHandler)); up {
				p[0].consuming()
			}
		}
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == metricConsumer })
		if got, want := families[i].GetMetric()[0].GetGauge().GetValue(), number(ups[0] && ups[1]); got != want {
			t.Errorf("with %v, %s is %g, want %g", ups, metricConsumer, got, want)
		}
	}
}

// What is counted for each message costs no allocation.
func TestCountingAllocatesNothing(t *testing.T) { //nolint:paralleltest // allocations of other tests would be counted
	p := counted()
	d := Decision{Outcome: Retried, Queue: "work", Step: topology.Step{Delay: time.Minute}, At: time.Now()}
	if n := testing.AllocsPerRun(1000, func() { p.took(); p.touch(); p.moved(d) }); n != 0 {
		t.Errorf("%g allocations for each message", n)
	}
}

func BenchmarkCounting(b *testing.B) {
	p := counted()
	d := Decision{Outcome: Retried, Queue: "work", Step: topology.Step{Delay: time.Minute}, At: time.Now()}
	for b.Loop() {
		p.took()
		p.touch()
		p.moved(d)
	}
}

func counted() *probe {
	return NewMonitor("").watch(topology.Topology{
		Name:  "shop",
		Works: []topology.Work{{Queue: "work", Backoff: "slow"}},
		Loops: []topology.Loop{{Backoff: "slow", Failed: "shop.slow.failed", Steps: []topology.Step{{Delay: time.Minute}}}},
	}, slog.New(slog.DiscardHandler))[0]
}
