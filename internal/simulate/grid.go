package simulate

import (
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

const (
	// steps is how many points an outage has at least, and as many has what follows it.
	steps = 400
	// mostCells limits the steps where there are many attempts, or short waits: then there are
	// fewer, at least fewSteps.
	mostCells = 200_000
	fewSteps  = 100
)

// run computes the whole outage, and what follows until nothing waits.
func (f *flow) run() {
	length := f.in.Outage
	f.until(0, length)
	f.end = len(f.points) - 1
	last, end := f.end, length
	for k, tier := range f.in.Backoff.Tiers {
		if f.failed[k][last] > 0 {
			end = max(end, length+max(tier.Delay, time.Millisecond))
		}
	}
	if o := f.in.Backoff.Outage; o != nil && f.held[last] > f.back[last] {
		wait := f.in.Backoff.OutageDelay()
		if o.Rate > 0 {
			wait += duration(min((f.held[last]-f.back[last])/o.Rate, topology.LongestOutageTier.Seconds()))
			wait = min(wait, topology.LongestOutageTier)
		}
		end = max(end, length+wait)
	}
	f.until(length, end)
}

// until computes the curves from one time to another.
func (f *flow) until(from, to time.Duration) {
	n := fewSteps // the bends tell all
	if o := f.in.Backoff.Outage; f.in.Capacity > 0 || o != nil && o.Rate > 0 {
		n = f.steps
	}
	if shortest := f.shortest(); shortest > 0 && from < f.in.Outage { // later nothing fails
		n = max(n, int((to-from)/shortest)+1)
	}
	n = max(fewSteps, min(n, mostCells/len(f.came)))
	times := []time.Duration{to}
	for i := range n {
		part := float64(to-from) / float64(n) * float64(i)
		times = append(times, (from + time.Duration(part)).Truncate(time.Millisecond))
	}
	times = append(times, f.bends()...)
	slices.Sort(times)
	for _, c := range f.curves() {
		*c = slices.Grow(*c, len(times))
	}
	for _, t := range slices.Compact(times) {
		if t > from && t <= to {
			f.step(t.Seconds())
		}
	}
}

// shortest returns the shortest wait that needs steps which are shorter: what comes back for it is
// not yet computed. Zero: none.
func (f *flow) shortest() (delay time.Duration) {
	if f.in.Backoff.Outage != nil {
		delay = f.in.Backoff.OutageDelay()
	}
	for _, t := range f.in.Backoff.Tiers {
		if f.in.Capacity > 0 && t.Delay > 0 && (delay == 0 || t.Delay < delay) {
			delay = t.Delay
		}
	}
	return delay
}

// bends returns the times at which the flow changes without a limit of the consumers: when each
// tier gives back its first message, and when its last.
func (f *flow) bends() []time.Duration {
	var out []time.Duration
	sum := time.Duration(0)
	for _, tier := range f.in.Backoff.Tiers {
		sum += tier.Delay
		out = append(out, sum, f.in.Outage+tier.Delay)
	}
	if f.in.Backoff.Outage != nil {
		delay := f.in.Backoff.OutageDelay()
		for range min(mostCells/len(f.came), int(f.in.Outage/delay)) {
			sum += delay
			out = append(out, sum)
		}
		out = append(out, f.in.Outage+delay, f.in.Backoff.OutageLimit())
	}
	return out
}

// duration returns a number of seconds as a duration.
func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
