package simulate

import (
	"slices"
	"time"
)

// trace is an amount of messages that is none, but for what is lost in rounding.
const trace = 1e-6

// queues returns the retry queues. Equal delays share one.
func (f *flow) queues() []Tier {
	var out []Tier
	for k, t := range f.in.Backoff.Tiers {
		level := func(i int) float64 { return f.failed[k][i] - f.came[k+1][i] }
		at := slices.IndexFunc(out, func(o Tier) bool { return o.Queue == t.Queue && o.Delay == t.Delay })
		if at < 0 {
			out = append(out, Tier{Queue: t.Queue, Delay: t.Delay, level: level})
			continue
		}
		others := out[at].level
		out[at].level = func(i int) float64 { return others(i) + level(i) }
	}
	if o := f.in.Backoff.Outage; o != nil {
		out = append(out, Tier{
			Queue: o.Tier.Queue, Delay: f.in.Backoff.OutageDelay(), outage: true,
			level: func(i int) float64 { return f.held[i] - f.back[i] },
		})
	}
	return out
}

// backlog returns how many messages wait in the work queue.
func (f *flow) backlog(i int) float64 { return f.all[i] - f.left[i] }

// speed returns how many deliveries there are per second before a point.
func (f *flow) speed(i int) float64 {
	if i == 0 {
		return 0
	}
	return (f.left[i] - f.left[i-1]) / (f.points[i] - f.points[i-1])
}

// done returns when consumers take the last message for the last time: of those that have come back
// and of those that had arrived by the end of the outage.
func (f *flow) done() time.Duration {
	i := len(f.points) - 1
	for ; i > f.end; i-- {
		returned := func(c curve) bool { return c[i] > c[i-1]+trace }
		if slices.ContainsFunc(f.came[1:], returned) {
			break
		}
	}
	last := len(f.points) - 1
	at := slices.IndexFunc(f.left[i:], func(left float64) bool { return left >= f.all[i]-trace })
	if at < 0 {
		return duration(f.points[last] + (f.all[i]-f.left[last])/f.in.Capacity).Round(time.Millisecond)
	}
	return duration(f.points[i+at]).Round(time.Millisecond)
}

// backlogUntil returns when the work queue is empty again.
func (f *flow) backlogUntil() time.Duration {
	last := len(f.points) - 1
	if n := f.backlog(last); n > trace {
		if f.in.Capacity <= f.in.Rate {
			return Never
		}
		return duration(f.points[last] + n/(f.in.Capacity-f.in.Rate)).Round(time.Millisecond)
	}
	for i := last; i > 0; i-- {
		if f.backlog(i-1) > trace {
			return duration(f.points[i]).Round(time.Millisecond)
		}
	}
	return Never
}
