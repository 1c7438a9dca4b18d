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
	// lateSteps are those whose deliveries statistics may not have, at most, nor in which order they
	// were: those of the broker are 12 seconds old at most where a step is 5.
	lateSteps = 3
	// forget is what remains of failures that were told, a step later.
	forget = 0.8
)

// Statistics are what the broker counts of a work queue, and how many processors share its
// failures.
type Statistics struct {
	// Delivered and Acknowledged are how many messages the queue has delivered, and how many of
	// them consumers have acknowledged, since the node has started. A rejection is not among them.
	Delivered, Acknowledged int64
	// Told is how many messages consumers have published to the failed queue and so acknowledged, of
	// all its work queues, and Share the part of it that is of this one.
	Told  int64
	Share float64
	// Processors is how many consumers the failed queue has.
	Processors int64
	// Consumed is how many messages it has delivered. While the broker counts none, it may keep no
	// statistics, which would show no outage. The broker collects them at its own pace: those with
	// the same number may be the same.
	Consumed int64
}

// Window is what one processor knows about the last deliveries of a work queue: those that failed
// from the messages that it moves, and those that worked from the statistics of the broker. Each of
// several processors sees its share of the failures, and all see the same statistics: so they come
// to the same state, without a store.
//
// A message counts once, however often it fails: where its last failure is. It tells itself when it
// failed before, also at another processor, so that no list of messages is needed. Statistics are
// late: what happened in the last steps counts as a whole, and must look like an outage for as many
// steps to be one.
type Window struct {
	outage     topology.Outage
	step       time.Duration
	slots      []slot    // the newest last, in which failures are noted
	read       time.Time // when there were statistics last
	clear      time.Time // since when they show no outage, without a break. Zero: they show nothing
	last       Statistics
	processors float64
	told       float64 // of the failures that this processor saw lately, those that consumers told
	failing    int     // for how many steps it has looked like an outage
	out        bool
	worked     bool // statistics have shown that there was no outage
	counting   counting
}

// slot is what happened in a step: deliveries that failed, as one processor sees them, and those
// that worked.
type slot struct {
	begin  time.Time
	failed float64
	// again are those of the failures that are counted in an earlier slot yet, by when it begins.
	again map[time.Time]float64
	// worked are acknowledgements, told those of failures that consumers told.
	worked, told float64
}

// delivered is what a slot says.
type delivered struct{ failed, worked float64 }

// NewWindow returns one that knows nothing yet. It needs statistics every step: as often as the
// broker collects them.
func NewWindow(o topology.Outage, step time.Duration, now time.Time) *Window {
	return &Window{outage: o, step: step, slots: []slot{{begin: now}}, processors: 1}
}

// Failed notes a message that came to the failed queue.
func (w *Window) Failed(e Evidence) {
	w.counting.saw(e)
	if e.Told {
		w.told++
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

// Told returns about how many failures this processor saw lately that consumers told.
func (w *Window) Told() float64 { return w.told }

// slotOf returns the slot of a time. Nil: the time is before all.
func (w *Window) slotOf(at time.Time) *slot {
	for i, s := range slices.Backward(w.slots) {
		if !at.Before(s.begin) {
			return &w.slots[i]
		}
	}
	return nil
}

// Count notes statistics.
func (w *Window) Count(s Statistics, now time.Time) {
	w.told *= forget
	if w.counting.compare(s, now) { // they show nothing, as if there were none
		blind := NewWindow(w.outage, w.step, now)
		blind.told, blind.counting = w.told, w.counting
		*w = *blind
		return
	}
	first := w.read.IsZero()
	switch {
	case s.Consumed == 0:
		w.clear = time.Time{}
	case w.clear.IsZero(), now.Sub(w.read) > staleSteps*w.step:
		w.clear = now
	}
	w.read = now
	if s.Delivered == 0 {
		return // none is counted yet
	}
	last := w.last
	w.last, w.processors = s, max(1, float64(s.Processors))
	if first { // what was acknowledged before is not known
		w.slots = []slot{{begin: now}}
		return
	}
	if s.Delivered >= last.Delivered && s.Acknowledged >= last.Acknowledged && s.Told >= last.Told {
		newest := &w.slots[len(w.slots)-1]
		newest.worked = float64(s.Acknowledged - last.Acknowledged)
		newest.told = float64(s.Told-last.Told) * s.Share
	} // or else a node has started again, and what it had counted since the last time is not known
	w.slots = append(w.slots, slot{begin: now})
	w.trim()
	switch w.judge() {
	case InOutage:
		w.failing, w.clear = w.failing+1, now
		w.out = w.out || w.failing >= lateSteps
	case Working:
		w.failing, w.out, w.worked = 0, false, true
	case NotKnown:
		w.failing = 0
	}
	if w.out {
		w.clear = now
	}
}

// trim drops the oldest slots that nothing depends on.
func (w *Window) trim() {
	seen := 0.0
	all := w.deliveries()
	for i, n := range slices.Backward(all) {
		if seen >= float64(w.outage.Of) && i < len(all)-2*lateSteps {
			w.slots = slices.Clone(w.slots[i+1:])
			return
		}
		seen += n.failed + n.worked
	}
	if len(all) > 2*lateSteps && all[0] == (delivered{}) { // as all slots of a queue that is idle
		w.slots[1].failed += w.once()[0]
		w.slots = w.slots[1:]
	}
}

// Uncounted reports whether the broker does not count what the consumers of the queue get, so that
// nothing is known, and no outage ends or begins.
func (w *Window) Uncounted() bool { return w.counting.lacks }

// Out reports whether the queue is in outage. An outage lasts until statistics show its end.
func (w *Window) Out() bool { return w.out }

// SawBegin reports whether statistics have shown a time without an outage: so one that is found now
// has begun now. A processor that has just started may meet one that has lasted.
func (w *Window) SawBegin() bool { return w.worked }

// State returns what is known for a message that fails now, and since when there have been
// statistics that show no outage. Zero: there are none.
func (w *Window) State(now time.Time) (State, time.Time) {
	switch {
	case w.out, w.failing > 0:
		return InOutage, time.Time{}
	case w.read.IsZero() || now.Sub(w.read) > staleSteps*w.step:
		return NotKnown, time.Time{}
	default:
		return NotKnown, w.clear
	}
}

// Last returns how many of the last deliveries failed.
func (w *Window) Last() (failed, of int) {
	f, n := w.sum()
	return int(math.Round(f)), int(math.Round(n))
}

// deliveries returns the deliveries of each slot, each message once.
func (w *Window) deliveries() []delivered {
	out := make([]delivered, len(w.slots))
	w.work(out)
	debt := 0.0 // of a slot in which other processors saw more than this one: on the average it is right
	for i, n := range w.once() {
		n -= debt
		out[i].failed, debt = max(0, n)*w.processors, max(0, -n)
	}
	return out
}

// once returns how many messages failed last in each slot, as far as this processor sees them.
func (w *Window) once() []float64 {
	out := make([]float64, len(w.slots))
	place := map[time.Time]int{}
	for i, s := range w.slots {
		place[s.begin], out[i] = i, s.failed
		for begin, n := range s.again {
			if before, ok := place[begin]; ok {
				out[before] -= n
			}
		}
	}
	return out
}

// work sets how many deliveries worked in each slot: what was acknowledged and not told. The broker
// counts the two at different times. So where consumers told more than was acknowledged, the rest
// is taken from the slots before, and in the last slots nothing has worked while consumers told
// any.
func (w *Window) work(out []delivered) {
	debt, told := 0.0, 0.0
	for i, s := range slices.Backward(w.slots) {
		n := s.worked - s.told - debt
		out[i].worked, debt = max(0, n), max(0, -n)
		if i >= w.newest() {
			told += s.told
		}
	}
	if told > 0 {
		for i := range out[w.newest():] {
			out[w.newest()+i].worked = 0
		}
	}
}

// newest returns where those slots begin that statistics may not cover yet.
func (w *Window) newest() int { return max(0, len(w.slots)-1-lateSteps) }

// sum returns how many of the last deliveries failed. Which of the last steps came first is not
// known, and neither is the order in a step.
func (w *Window) sum() (failed, seen float64) {
	all := w.deliveries()
	newest := w.newest()
	for _, s := range all[newest+1:] {
		all[newest].failed, all[newest].worked = all[newest].failed+s.failed, all[newest].worked+s.worked
	}
	for _, s := range slices.Backward(all[:newest+1]) {
		n := s.failed + s.worked
		if rest := float64(w.outage.Of) - seen; n > rest {
			s.failed, n = s.failed*rest/n, rest
		}
		failed, seen = failed+s.failed, seen+n
	}
	return failed, seen
}

// judge returns what the deliveries say, whatever those have done that were not seen.
func (w *Window) judge() State {
	const inexact = 1e-6 // of a sum of floating-point numbers
	of := float64(w.outage.Of)
	failed, seen := w.sum()
	switch least := w.outage.Failing*of - inexact; {
	case failed >= least:
		return InOutage
	case failed+of-seen < least:
		return Working
	default:
		return NotKnown
	}
}
