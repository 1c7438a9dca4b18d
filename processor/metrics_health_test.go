package processor

import (
	"log/slog"
	"testing"
	"time"

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
