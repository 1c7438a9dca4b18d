package retry

import (
	"math"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

const (
	// staleSteps is after how many steps without statistics nothing is known.
	staleSteps = 4
	// openSteps is for how many steps failures wait for statistics that cover them.
	openSteps = 3
)

// Statistics are what the broker counts of a work queue, and how many processors share its
// failures.
type Statistics struct {
	// Delivered and Acknowledged are how many messages the queue has delivered, and how many of
	// them consumers have acknowledged, since the node has started. A rejection is not among them.
	Delivered, Acknowledged int64
	// Processors is how many consumers the failed queue has.
	Processors int64
}

// Window is what one processor knows about the last deliveries of a work queue: those that failed
// from the messages that it moves, and those that worked from the statistics of the broker. Each of
// several processors sees its share of the failures, and all see the same statistics: so they come
// to the same state, without a store.
//
// A message counts once, however often it fails: where its last failure is. It tells itself when it
// failed before, also at another processor, so that no list of messages is needed. Statistics are
// late: failures count only once those of their time must have come.
type Window struct {
	outage     topology.Outage
	step       time.Duration
	slots      []slot // the newest last, in which failures are noted
	at         time.Time
	last       Statistics
	processors float64
	owed       float64 // acknowledgements to come of failures that consumers told
	out        bool
}

// slot is what happened in a step: deliveries that failed, as one processor sees them, and those
// that worked.
type slot struct {
	begin          time.Time
	failed, worked float64
	// again are those of the failures that are counted in an earlier slot yet, by when it begins.
	again map[time.Time]float64
}

// NewWindow returns one that knows nothing yet. It needs statistics every step: as often as the
// broker collects them.
func NewWindow(o topology.Outage, step time.Duration, now time.Time) *Window {
	return &Window{outage: o, step: step, slots: []slot{{begin: now}}, processors: 1}
}

// Failed notes a message that came to the failed queue.
func (w *Window) Failed(e Evidence) {
	if e.Told {
		w.owed += w.processors
	}
	if !e.Failed {
		return
	}
	newest := &w.slots[len(w.slots)-1]
	before := w.slotOf(e.Previous)
	switch {
	case before == newest:
		return
	case before != nil: // maybe by another processor: on the average that is right
		if newest.again == nil {
			newest.again = map[time.Time]float64{}
		}
		newest.again[before.begin]++
	}
	newest.failed++
}

// slotOf returns the slot of a time. Nil: the time is before all.
func (w *Window) slotOf(at time.Time) *slot {
	for i, s := range slices.Backward(w.slots) {
		if !at.Before(s.begin) {
			return &w.slots[i]
		}
	}
	return nil
}

// Count notes statistics. Without any for failures that they should cover, nothing is known.
func (w *Window) Count(s Statistics, now time.Time) {
	begun := !w.at.IsZero()
	if begun && s.Delivered == 0 && len(w.slots) >= openSteps && w.slots[w.settled()].failed > 0 {
		return // the broker keeps none, also for what would be settled now
	}
	acknowledged := float64(s.Acknowledged - w.last.Acknowledged)
	if acknowledged < 0 { // the node has started again
		acknowledged = float64(s.Acknowledged)
	}
	w.at, w.last, w.processors = now, s, max(1, float64(s.Processors))
	if !begun { // what was acknowledged before is not known
		w.slots = []slot{{begin: now}}
		return
	}
	w.slots[len(w.slots)-1].worked = max(0, acknowledged-w.owed)
	w.owed = max(0, w.owed-acknowledged)
	w.slots = append(w.slots, slot{begin: now})
	w.trim()
	state := w.judge(w.settled())
	w.out = state == InOutage || w.out && state == NotKnown
}

// settled returns how many slots have failures that the statistics cover.
func (w *Window) settled() int { return max(0, len(w.slots)-openSteps) }

// trim drops the oldest slots that nothing depends on.
func (w *Window) trim() {
	settled, seen := w.settled(), 0.0
	for i, n := range slices.Backward(w.deliveries(settled)) {
		if seen >= float64(w.outage.Of) && i < settled {
			w.slots = slices.Clone(w.slots[i+1:])
			return
		}
		seen += n.failed + n.worked
	}
	if settled > 0 && w.slots[0].failed == 0 && w.slots[0].worked == 0 {
		w.slots = w.slots[1:] // as all slots of a queue that is idle
	}
}

// State returns what is known. An outage lasts until statistics show its end.
func (w *Window) State(now time.Time) State {
	switch {
	case w.out:
		return InOutage
	case w.at.IsZero() || now.Sub(w.at) > staleSteps*w.step:
		return NotKnown
	case w.judge(w.settled()) == Working && w.judge(len(w.slots)) == Working:
		return Working
	default: // what failed just now may be the beginning of an outage
		return NotKnown
	}
}

// Last returns how many of the last deliveries failed.
func (w *Window) Last() (failed, of int) {
	f, n := w.sum(w.settled())
	return int(math.Round(f)), int(math.Round(n))
}

// deliveries returns the deliveries of each slot, each message once, with the failures of the first
// slots only.
func (w *Window) deliveries(settled int) []slot {
	out := make([]slot, len(w.slots))
	place := map[time.Time]int{}
	for i, s := range w.slots {
		out[i].worked, place[s.begin] = s.worked, i
		if i >= settled {
			continue
		}
		out[i].failed = s.failed
		for begin, n := range s.again {
			if before, ok := place[begin]; ok {
				out[before].failed -= n
			}
		}
	}
	for i := range out {
		out[i].failed = max(0, out[i].failed) * w.processors
	}
	return out
}

// sum returns how many of the last deliveries failed, with the failures of the first slots only.
func (w *Window) sum(settled int) (failed, seen float64) {
	for _, s := range slices.Backward(w.deliveries(settled)) {
		n := s.failed + s.worked
		if rest := float64(w.outage.Of) - seen; n > rest { // which of them were the last is not known
			s.failed, n = s.failed*rest/n, rest
		}
		failed, seen = failed+s.failed, seen+n
	}
	return failed, seen
}

// judge returns what the deliveries say, with the failures of the first slots only, whatever those
// have done that were not seen.
func (w *Window) judge(settled int) State {
	const inexact = 1e-6 // of a sum of floating-point numbers
	of := float64(w.outage.Of)
	failed, seen := w.sum(settled)
	switch least := w.outage.Failing*of - inexact; {
	case failed >= least:
		return InOutage
	case failed+of-seen < least:
		return Working
	default:
		return NotKnown
	}
}
