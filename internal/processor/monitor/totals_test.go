package monitor

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// The totals are the sums of the counters, over topologies, queues and reasons.
func TestTotals(t *testing.T) {
	t.Parallel()
	m := New("")
	if got := m.Totals(); got != (Totals{}) {
		t.Errorf("at the start the totals are %+v", got)
	}
	for _, name := range []string{"shop", "mail"} {
		all := m.Watch(topology.Compiled{
			Name:       name,
			WorkQueues: []topology.WorkQueue{{Name: "work", Backoff: "slow"}},
			Backoffs:   []topology.Backoff{{Name: "slow", Tiers: []topology.Tier{{Delay: time.Minute}, {Delay: time.Hour}}}},
		})
		p := all[0]
		p.Consuming()
		for range 5 {
			p.Taken()
		}
		p.Disconnected(nil)
		p.Consuming() // the broker delivers them again
		for range 10 {
			p.Taken()
		}
		now := time.Now()
		p.Retried("work", time.Minute, now)
		p.Retried("work", time.Hour, now)
		p.Retried("made up", time.Hour, now)
		p.DeadLettered("work", "page", topology.ReasonRejected, now)
		p.DeadLettered("work", "page", topology.ReasonUnknown, now)
		p.Unroutable("", "", "no_address", now)
		p.Idle(nil)
		p.Disconnected(nil)
		all.Close()
	}
	if got, want := m.Totals(), (Totals{Retried: 6, DeadLettered: 4, Unroutable: 2, Unsettled: 8}); got != want {
		t.Errorf("the totals are %+v, want %+v", got, want)
	}
	m.Replaced()
	if got := m.Totals().Unsettled; got != 0 {
		t.Errorf("%d messages are unsettled, which other processors have taken over", got)
	}
}
