package retry

import (
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// State is what is known about the deliveries of a work queue.
type State int

// The states. NotKnown is also that of a queue of which too few deliveries were seen.
const (
	NotKnown State = iota
	Working
	InOutage
)

// unsureSteps is for how many steps of a [Window] a message waits at most, after its last tier,
// while nothing is known about its work queue, or for one wait, if that is longer. Statistics of
// the broker are 12 seconds old at most where a step is 5, and a window believes them after 3 more.
const unsureSteps = 6

// Evidence is what a message tells about the deliveries of its work queue.
type Evidence struct {
	// Failed says that a delivery failed for a reason that is retried.
	Failed bool
	// Told says that the consumer published the message and acknowledged it: the broker counts that
	// as an acknowledgement.
	Told bool
	// Previous is when the message failed before. Zero: never, as far as it tells.
	Previous time.Time
}

// Knowing returns rules that know about outages of work queues, from windows with this step. state
// must not block.
func (r Rules) Knowing(step time.Duration, state func(queue string) State) Rules {
	r.state, r.unsure = state, unsureSteps*step
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
// it waits, and its attempt does not count. While that is not known it waits too, but not for
// long: a message that no retry helps must die.
func (r Rules) outlast(f failure, now time.Time) step {
	dead := step{count: topology.DeadLetterCount, attempts: f.attempt}
	if r.state == nil || r.backoff.Outage == nil || !f.within(r.backoff.Outage.Until, now) {
		return dead
	}
	waits := step{count: r.backoff.OutageCount(), attempts: f.attempt, waits: true}
	if !f.returned {
		waits.attempts--
	}
	switch r.state(f.origin) {
	case InOutage:
		return waits
	case NotKnown:
		since, err := time.Parse(topology.HeaderTime, f.unsure)
		if waits.unsure = f.unsure; err != nil {
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

// tier returns the one of a count.
func (r Rules) tier(count int64) topology.Tier {
	if r.outlasts(count) {
		return r.backoff.Outage.Tier
	}
	return r.backoff.Tiers[count-1]
}

// evidence returns what a message tells about its work queue. One that has not failed again tells
// nothing.
func (r Rules) evidence(f failure) Evidence {
	if r.state == nil || f.returned {
		return Evidence{}
	}
	previous, _ := time.Parse(topology.HeaderTime, f.previous) // zero if there is none
	return Evidence{Failed: r.backoff.Retries(f.reason), Told: f.told, Previous: previous}
}
