package topology_test

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// How long an outage may be: until the last tier is over, and with the key until the first return
// from the queue for outages after until.
func TestOutageText(t *testing.T) {
	t.Parallel()
	tiers := func(delays ...time.Duration) (b topology.Backoff) {
		for _, d := range delays {
			b.Tiers = append(b.Tiers, topology.Tier{Delay: d})
		}
		return b
	}
	until := func(b topology.Backoff, d time.Duration) topology.Backoff {
		b.Outage = &topology.Outage{Until: d}
		return b
	}
	standard := tiers(10*time.Second, time.Minute, 10*time.Minute)
	excluded := until(standard, 24*time.Hour)
	excluded.RetryOn = []topology.Reason{topology.ReasonExpired}
	for _, tc := range []struct {
		backoff topology.Backoff
		want    string
	}{
		{topology.Backoff{}, "any outage makes dead letters"},
		{tiers(0, 0), "any outage makes dead letters"},
		{standard, "an outage of 11m10s or more makes dead letters"},
		{until(standard, 24*time.Hour), "an outage of 1d1m10s or more makes dead letters (outage: until 1d)"},
		{until(standard, 21*time.Minute+10*time.Second), "an outage of 21m10s or more makes dead letters (outage: until 21m10s)"},
		{until(standard, time.Minute), "an outage of 11m10s or more makes dead letters (outage: until 1m)"},
		{until(tiers(), time.Minute), "an outage of 1m or more makes dead letters (outage: until 1m)"},
		{until(tiers(0), 90*time.Second+time.Millisecond), "an outage of 1m31s or more makes dead letters (outage: until 1m30.001s)"},
		{until(tiers(48*time.Hour), 72*time.Hour), "an outage of 3d or more makes dead letters (outage: until 3d)"},
		{excluded, "any outage makes dead letters"},
	} {
		if got := tc.backoff.OutageText(); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.backoff, got, tc.want)
		}
	}
}
