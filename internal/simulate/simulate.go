// Package simulate computes what an outage does: while all deliveries of a work queue fail, how
// many messages become dead letters, how many wait in which tier, and when the last one is done.
//
// The package is pure, and random nothing: it computes with amounts of messages that flow evenly,
// not with single ones. Tests compare it with single messages, and with a broker.
package simulate

import (
	"math"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// Input is an outage of a work queue.
type Input struct {
	// Backoff is that of the queue. The zero value is none: a rejected message is dead.
	Backoff topology.Backoff
	// Rate is how many messages arrive in the queue per second.
	Rate float64
	// Capacity is how many messages its consumers take per second at most. Zero: any number.
	Capacity float64
	// Outage is how long each delivery fails, in whole milliseconds, more than zero.
	Outage time.Duration
	// Arrived returns how many messages have arrived up to so many seconds after the outage began,
	// which never gets less. Nil: Rate says it.
	Arrived func(at float64) float64
}

// Never is the time of what does not happen.
const Never time.Duration = -1

// Result is what an outage does. Times are since it began. Numbers of messages are those that have
// arrived by its end, except a backlog, which has later ones too.
type Result struct {
	// Dead is how many messages become dead letters.
	Dead int64 `json:"dead"`
	// Waiting is how many messages wait in retry queues at the peak.
	Waiting int64 `json:"waiting"`
	// WaitingAt is when that peak is.
	WaitingAt time.Duration `json:"waitingAt"`
	// Tiers are the retry queues, in the order of the attempts.
	Tiers []Tier `json:"tiers"`
	// Backlog is how many messages wait in the work queue at the peak: none without a capacity.
	Backlog int64 `json:"backlog"`
	// BacklogUntil is when the work queue is empty again. Null: never, or no message waited there.
	BacklogUntil time.Duration `json:"backlogUntil" jsondoc:"known"`
	// Done is when the last message is done or dead.
	Done time.Duration `json:"done"`
	// Deliveries is how many deliveries to consumers there are.
	Deliveries int64 `json:"deliveries"`
	// DeliveriesPeak is how many deliveries there are in a second at the peak.
	DeliveriesPeak int64 `json:"deliveriesPeak"`
	// Estimate says that Dead is an estimate: the outage is longer than until, and the capacity or
	// the rate of the key delays messages.
	Estimate bool `json:"estimate"`

	flow *flow
}

// Tier is a retry queue.
type Tier struct {
	Queue string `json:"queue"`
	// Delay is how long a message waits in it.
	Delay time.Duration `json:"delay"`
	// Peak is how many messages wait in it at the peak.
	Peak int64 `json:"peak"`

	level  func(i int) float64
	outage bool // it is for the end of an outage
}

// Run computes what an outage does.
func Run(in Input) Result {
	return run(in, steps)
}

// run does so in at least so many steps.
func run(in Input, steps int) Result {
	if in.Arrived == nil {
		in.Arrived = func(at float64) float64 { return at * in.Rate }
	}
	if !in.Backoff.Retries(topology.ReasonRejected) {
		in.Backoff.Tiers, in.Backoff.Outage = nil, nil
	}
	f := newFlow(in, steps)
	f.run()
	last := len(f.points) - 1
	r := Result{flow: f, Tiers: f.queues(), Dead: whole(f.dead[last]), BacklogUntil: Never}
	deliveries := f.came[0][f.end]
	for _, c := range f.came[1:] {
		deliveries += c[last]
	}
	r.Deliveries = whole(deliveries)
	if o := in.Backoff.Outage; o != nil {
		held := in.Backoff.OutageLimit() > in.Backoff.Wait()
		r.Estimate = held && in.Outage > o.Until && (in.Capacity > 0 || o.Rate > 0)
	}
	r.peaks()
	r.Done = f.done()
	r.BacklogUntil = f.backlogUntil()
	return r
}

// peaks finds the most of everything.
func (r *Result) peaks() {
	f := r.flow
	var waiting, backlog, deliveries float64
	tiers := make([]float64, len(r.Tiers))
	for i := range f.points {
		now := 0.0
		for k, t := range r.Tiers {
			level := t.level(i)
			now += level
			tiers[k] = max(tiers[k], level)
		}
		if now > waiting+trace {
			waiting, r.WaitingAt = now, duration(f.points[i]).Round(time.Millisecond)
		}
		backlog = max(backlog, f.backlog(i))
		deliveries = max(deliveries, f.speed(i))
	}
	for k := range tiers {
		r.Tiers[k].Peak = whole(tiers[k])
	}
	r.Waiting, r.Backlog, r.DeliveriesPeak = whole(waiting), whole(backlog), whole(deliveries)
}

// kept reports whether messages wait for the end of the outage, so that the key changes something.
func (r Result) kept() bool {
	return slices.ContainsFunc(r.Tiers, func(t Tier) bool { return t.outage && t.Peak > 0 })
}

// whole returns an amount as a number of messages.
func whole(amount float64) int64 { return int64(math.Round(amount)) }
