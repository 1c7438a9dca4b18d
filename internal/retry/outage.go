package retry

import (
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// State is what is known about the deliveries of a work queue, for a message that would be dead.
type State int

// The states.
const (
	// NotKnown is that of a message whose queue is in no outage, as far as statistics show yet.
	NotKnown State = iota
	// Working is that of a queue that is in no outage, whatever they show.
	Working
	InOutage
)

// unsureSteps is for how many steps of a [Window] statistics must show no outage before a message
// is dead, since it would have been: an outage in which two messages a second fail shows in that
// time (TestNoOutageKills).
const unsureSteps = 12

// Unsure returns how long statistics with this step must show no outage before a message is dead.
func Unsure(step time.Duration) time.Duration { return unsureSteps * step }

// Evidence is what a message tells about the deliveries of its work queue.
type Evidence struct {
	// Failed says that a delivery failed for a reason that is retried.
	Failed bool
	// Delivered says that a consumer has had the message: it has not expired in its queue, say.
	Delivered bool
	// Told says that the consumer published the message and acknowledged it: the broker counts that
	// as an acknowledgement.
	Told bool
	// Previous is when the message failed before. Zero: never, as far as it tells.
	Previous time.Time
}

// Knowing returns rules that know about outages of work queues, from windows with this step. state
// returns what is known, and since when there have been statistics that show no outage. It must not
// block.
func (r Rules) Knowing(step time.Duration, state func(queue string) (State, time.Time)) Rules {
	r.state, r.unsure = state, Unsure(step)
	return r
}

// Behind returns rules that know how long it takes until what waits for the end of an outage of
// this backoff has left its queue: a message that comes to it waits at least as long. queued must
// not block.
func (r Rules) Behind(queued func() time.Duration) Rules {
	r.queued = queued
	return r
}

// step is what comes next for a message.
type step struct {
	// count is its next count, and attempts are those that count.
	count, attempts int64
	// waits says that it waits in the tier of that count.
	waits bool
	// unsure is since when it waits as nothing is known. Empty: something is.
	unsure string
}

// mark notes since when nothing is known.
func (s step) mark(h map[string]any) {
	delete(h, topology.HeaderUnsureSince)
	if s.unsure != "" {
		h[topology.HeaderUnsureSince] = s.unsure
	}
}

// outlast returns the next step of a message that would be dead now. While its queue is in outage
// it waits, and its attempt does not count. So it does until statistics must have shown an outage,
// if its failure was in one: one that was not known to this processor for all that time, or that
// shows meanwhile, begins the time anew. A message that no retry helps dies then.
func (r Rules) outlast(f failure, now time.Time) step {
	dead := step{count: topology.DeadLetterCount, attempts: f.attempt}
	if r.state == nil || r.backoff.Outage == nil || !f.within(r.backoff.Outage.Until, now) {
		return dead
	}
	waits := step{count: r.backoff.OutageCount(), attempts: f.attempt, waits: true}
	if !f.returned {
		waits.attempts--
	}
	switch state, none := r.state(f.origin); state {
	case InOutage:
		return waits
	case NotKnown:
		since, err := time.Parse(topology.HeaderTime, f.unsure)
		if waits.unsure = f.unsure; err != nil || none.IsZero() || since.Before(none) {
			since, waits.unsure = now, now.UTC().Format(topology.HeaderTime)
		}
		if now.Sub(since) < r.unsure {
			return waits
		}
	case Working:
	}
	return dead
}

// outlasts reports whether a message with this count waits for the end of an outage.
func (r Rules) outlasts(count int64) bool {
	return r.backoff.Outage != nil && count == r.backoff.OutageCount()
}

func (r Rules) tier(count int64) topology.Tier {
	if r.outlasts(count) {
		return r.backoff.Outage.Tier
	}
	return r.backoff.Tiers[count-1]
}

// wait returns how long a message waits: as long as in its tier, or only until an outage must be
// known, if that is sooner and none is known. One that waits for the end of an outage leaves behind
// those that came before it.
func (r Rules) wait(next step) time.Duration {
	delay := r.tier(next.count).Delay
	if !r.outlasts(next.count) {
		return delay
	}
	if next.unsure != "" {
		delay = min(delay, r.unsure)
	}
	if r.queued != nil {
		delay = max(delay, r.queued())
	}
	return delay
}

// evidence returns what a message tells about its work queue. One that has not failed again tells
// nothing.
func (r Rules) evidence(f failure) Evidence {
	if r.state == nil || f.returned {
		return Evidence{}
	}
	previous, _ := time.Parse(topology.HeaderTime, f.previous) // zero if there is none
	return Evidence{
		Failed: r.backoff.Retries(f.reason), Told: f.told, Previous: previous,
		Delivered: f.told || f.reason == topology.ReasonRejected || f.reason == topology.ReasonDeliveryLimit,
	}
}
