package simulate

import "github.com/dlxctl/dlxctl/topology"

// flow is the messages of a work queue as curves over time: each has, for each point in time, how
// many messages have come to a place or left it since the outage began. Between two points a curve
// is a straight line. Where a message waits for a while, the curve of what comes back is that of
// what left, later: so neither a tier nor its end needs a point of its own.
//
// Attempts count from 0. With an outage key, the last one is of messages that have waited for the
// end of the outage: they come back to it again and again.
type flow struct {
	in     Input
	last   int       // the first attempt after whose failure no tier takes the message
	steps  int       // how many points the outage has at least, and what follows it
	end    int       // the point at which the outage ends
	points []float64 // seconds since the outage began

	came, taken, failed []curve // by attempt: to the work queue, to consumers, rejected by them
	// dead are dead letters, held came to the queue for the end of an outage, and back left it.
	dead, held, back curve
	all, left        curve // all attempts: to the work queue, to consumers
	every            []*curve

	tiers   []later // what comes back, by the attempt before
	release later   // held, after the wait
	longest later   // held, after the longest wait that a rate may bring
	dying   later   // first failures, when they are too old to wait
	first   int     // the last point before what consumers take now came to the work queue
}

// curve is how many messages there have been, at each point.
type curve []float64

// newFlow returns a flow at the begin of an outage.
func newFlow(in Input, steps int) *flow {
	n := len(in.Backoff.Tiers)
	f := &flow{in: in, last: n, steps: steps}
	attempts := n + 1
	if in.Backoff.Outage != nil {
		attempts++
	}
	f.came, f.taken, f.failed = make([]curve, attempts), make([]curve, attempts), make([]curve, attempts)
	for k, tier := range in.Backoff.Tiers {
		f.tiers = append(f.tiers, later{of: &f.failed[k], by: tier.Delay.Seconds(), settled: in.Capacity > 0})
	}
	if in.Backoff.Outage != nil {
		f.release = later{of: &f.held, by: in.Backoff.OutageDelay().Seconds()}
		f.longest = later{of: &f.held, by: topology.LongestOutageTier.Seconds()}
		f.dying = later{of: &f.failed[0], by: in.Backoff.OutageLimit().Seconds()}
	}
	f.grow(0)
	return f
}

// grow adds a point, at which all curves are where they were.
func (f *flow) grow(at float64) {
	f.points = append(f.points, at)
	for _, c := range f.curves() {
		level := 0.0
		if len(*c) > 0 {
			level = (*c)[len(*c)-1]
		}
		*c = append(*c, level)
	}
}

func (f *flow) curves() []*curve {
	if f.every == nil {
		f.every = []*curve{&f.dead, &f.held, &f.back, &f.all, &f.left}
		for k := range f.came {
			f.every = append(f.every, &f.came[k], &f.taken[k], &f.failed[k])
		}
	}
	return f.every
}

// step computes the curves up to a time.
func (f *flow) step(at float64) {
	i := len(f.points)
	f.grow(at)
	f.arrive(i)
	f.consume(i)
	f.finish(i)
}

// arrive computes what has come to the work queue.
func (f *flow) arrive(i int) {
	f.come(0, i, f.in.Arrived(f.points[i]))
	for k := range f.tiers {
		f.come(k+1, i, f.tiers[k].at(f.points))
	}
	if o := f.in.Backoff.Outage; o != nil {
		f.back[i] = max(f.back[i], f.release.at(f.points))
		if o.Rate > 0 {
			spread := f.back[i-1] + o.Rate*(f.points[i]-f.points[i-1])
			f.back[i] = min(f.back[i], max(spread, f.longest.at(f.points)))
		}
		f.come(f.last+1, i, f.back[i])
	}
	f.all[i] = 0
	for _, c := range f.came {
		f.all[i] += c[i]
	}
}

// come adds what has come for an attempt. Without a limit consumers take it at once.
func (f *flow) come(attempt, i int, level float64) {
	f.came[attempt][i] = max(f.came[attempt][i], level)
	if f.in.Capacity == 0 {
		f.take(attempt, i, f.came[attempt][i])
	}
}

// take notes what consumers have taken of an attempt. They reject it until the outage ends.
func (f *flow) take(attempt, i int, level float64) {
	f.taken[attempt][i] = level
	if f.points[i] <= f.in.Outage.Seconds() {
		f.failed[attempt][i] = level
	}
}

// consume computes what consumers have taken: the messages that came first, and of those that came
// at the same time the same share.
func (f *flow) consume(i int) {
	f.left[i] = f.all[i]
	if f.in.Capacity == 0 {
		return
	}
	f.left[i] = min(f.all[i], f.left[i-1]+f.in.Capacity*(f.points[i]-f.points[i-1]))
	for f.first+1 < i && f.all[f.first+1] <= f.left[i] {
		f.first++
	}
	share := 1.0
	if grown := f.all[f.first+1] - f.all[f.first]; grown > 0 {
		share = min(1, (f.left[i]-f.all[f.first])/grown)
	}
	for k, c := range f.came {
		f.take(k, i, c[f.first]+share*(c[f.first+1]-c[f.first]))
	}
}

// finish computes what becomes of failures that no tier takes. With an outage key, a message that
// is too old is dead once it has come back.
func (f *flow) finish(i int) {
	ended := f.failed[f.last][i]
	if f.in.Backoff.Outage == nil || f.in.Backoff.OutageLimit() == f.in.Backoff.Wait() {
		f.dead[i] = ended
		return
	}
	again := f.failed[f.last+1]
	f.dead[i] = min(f.dying.at(f.points), f.dead[i-1]+again[i]-again[i-1])
	f.held[i] = ended + again[i] - f.dead[i]
}

// later reads a curve as it was some time ago. Time only goes on.
type later struct {
	of    *curve
	by    float64
	point int // the last one before that time
	// settled: the last step is not looked at, as the level before it decides about the one after.
	settled bool
}

// at returns the level before the last of the points.
func (l *later) at(points []float64) float64 {
	c, last := *l.of, len(points)-1
	t := points[last] - l.by
	if l.settled {
		t = min(t, points[last-1])
	}
	if t <= 0 {
		return 0
	}
	for l.point+1 < last && points[l.point+1] <= t {
		l.point++
	}
	a, b := points[l.point], points[l.point+1]
	return c[l.point] + (c[l.point+1]-c[l.point])*min(1, (t-a)/(b-a))
}
