package monitor

import (
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/dlxctl/dlxctl/topology"
)

func TestUnhealthyIsWhatANewStartCures(t *testing.T) {
	t.Parallel()
	top := topology.Compiled{Name: "shop", Backoffs: []topology.Backoff{{Name: "slow", FailedQueue: "shop.slow.failed"}}}
	for name, tc := range map[string]struct {
		happened func(*Probe)
		after    time.Duration
		healthy  bool
	}{
		"waits for messages":              {func(p *Probe) { p.Consuming() }, time.Hour, true},
		"waits for a confirm":             {func(p *Probe) { p.Consuming(); p.Taken() }, stuckAfter - time.Second, true},
		"waits for a confirm for minutes": {func(p *Probe) { p.Consuming(); p.Taken() }, stuckAfter + time.Second, false},
		"waits for the end of an alarm":   {func(p *Probe) { p.Consuming(); p.Taken(); p.Blocked(true) }, time.Hour, true},
		"all is confirmed": {func(p *Probe) {
			p.Consuming()
			p.Taken()
			p.Unroutable("", "", "no_address",
				time.Now())
		}, time.Hour, true},
		"tries to connect":        {func(p *Probe) { p.Idle(nil) }, stuckAfter - time.Second, true},
		"no longer tries":         {func(p *Probe) { p.Idle(nil) }, stuckAfter + time.Second, false},
		"began, and does nothing": {func(*Probe) {}, stuckAfter + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := New("")
			p := m.Watch(top)
			tc.happened(p[0])
			if wrong := m.Unhealthy(time.Now().Add(tc.after)); (len(wrong) == 0) != tc.healthy {
				t.Errorf("it says %q", wrong)
			}
			p.Close()
			if wrong := m.Unhealthy(time.Now().Add(24 * time.Hour)); wrong != nil {
				t.Errorf("with no processor it says %q", wrong)
			}
		})
	}
}

// A processor without a backoff has nothing to consume, and so it is ready.
func TestReadyWithoutABackoff(t *testing.T) {
	t.Parallel()
	m := New("")
	if m.Unready() == nil {
		t.Error("it is ready before a processor has started")
	}
	m.Watch(topology.Compiled{Name: "shop"})
	if wrong := m.Unready(); wrong != nil {
		t.Errorf("it says %q", wrong)
	}
}

// Topologies of the same name in two virtual hosts share their series. That one of
// the two failed queues is consumed must not hide that the other is not.
func TestOneOfTwoVHostsIsDown(t *testing.T) {
	t.Parallel()
	top := topology.Compiled{Name: "shop", Backoffs: []topology.Backoff{{Name: "slow", FailedQueue: "shop.slow.failed"}}}
	for _, ups := range [][]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		m := New("")
		for _, up := range ups {
			if p := m.Watch(top); up {
				p[0].Consuming()
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

// A processor without a monitor records nothing, and needs none.
func TestANilMonitorRecordsNothing(t *testing.T) {
	t.Parallel()
	var m *Monitor
	probes := m.Watch(topology.Compiled{Name: "shop", Backoffs: []topology.Backoff{{Name: "slow"}}})
	defer probes.Close()
	p := probes.Of("slow")
	p.Active()
	p.Consuming()
	p.Taken()
	p.Blocked(true)
	p.Retried("work", time.Minute, time.Now())
	p.DeadLettered("work", "page", topology.ReasonUnknown, time.Now())
	p.Unroutable("", "", "no_address", time.Now())
	p.Disconnected(nil)
	p.Idle(nil)
	if len(probes) != 0 {
		t.Errorf("it made %d probes", len(probes))
	}
}

// What is counted for each message costs no allocation.
func TestCountingAllocatesNothing(t *testing.T) { //nolint:paralleltest // allocations of other tests would be counted
	p := counted()
	now := time.Now()
	if n := testing.AllocsPerRun(1000, func() { p.Taken(); p.Active(); p.Retried("work", time.Minute, now) }); n != 0 {
		t.Errorf("%g allocations for each message", n)
	}
}

func BenchmarkCounting(b *testing.B) {
	p := counted()
	now := time.Now()
	for b.Loop() {
		p.Taken()
		p.Active()
		p.Retried("work", time.Minute, now)
	}
}

func counted() *Probe {
	return New("").Watch(topology.Compiled{
		Name:       "shop",
		WorkQueues: []topology.WorkQueue{{Name: "work", Backoff: "slow"}},
		Backoffs: []topology.Backoff{{
			Name: "slow", FailedQueue: "shop.slow.failed",
			Tiers: []topology.Tier{{Delay: time.Minute}},
		}},
	})[0]
}
