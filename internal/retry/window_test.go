package retry_test

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// step is that of the windows.
const step = 5 * time.Second

// feed feeds a window, step by step.
type feed struct {
	*retry.Window

	now time.Time
	s   retry.Statistics
}

// newFeed returns one whose window has got its first statistics, as at the start of a processor.
func newFeed(processors int64) *feed {
	f := &feed{now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
	f.s = retry.Statistics{Processors: processors, Delivered: 7, Acknowledged: 5}
	f.Window = retry.NewWindow(topology.Outage{Failing: 0.8, Of: 50}, step, f.now)
	f.Count(f.s, f.now)
	return f
}

// step lets a number of messages fail that failed the last time before that many steps, 0 for
// never, and others be acknowledged. Then it counts.
func (f *feed) step(failed, before, acknowledged int) retry.State {
	for range failed {
		e := retry.Evidence{Failed: true}
		if before > 0 {
			e.Previous = f.now.Add(-time.Duration(before) * step)
		}
		f.Failed(e)
	}
	f.s.Acknowledged += int64(acknowledged)
	f.s.Delivered += int64(failed + acknowledged)
	f.now = f.now.Add(step)
	f.Count(f.s, f.now)
	return f.State(f.now)
}

// steps expects these states.
func (f *feed) steps(t *testing.T, failed, before, acknowledged int, want ...retry.State) {
	t.Helper()
	for i, w := range want {
		if got := f.step(failed, before, acknowledged); got != w {
			t.Fatalf("step %d: state %d, want %d", i+1, got, w)
		}
	}
}

const (
	unknown = retry.NotKnown
	working = retry.Working
	outage  = retry.InOutage
)

// When everything fails, that is known once the statistics must have shown what worked, and over
// once they show it. Until then it is not known.
func TestWindowKnowsAnOutage(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 0, 0, 100, working)
	f.steps(t, 30, 0, 0, working) // of the last 50, 20 worked
	f.steps(t, 30, 0, 0, unknown, unknown, outage)
	f.steps(t, 60, 1, 0, outage, outage, outage)
	f.steps(t, 0, 0, 5, outage)
	f.steps(t, 0, 0, 6, working) // 11 of 50 worked, if the last failures came before
	f.steps(t, 0, 0, 50, working)
}

// Ten messages that always fail, among thousands that do not, are no outage at any moment, and
// neither are they when they are all that is left.
func TestWindowKnowsPoison(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 10, 0, 1000, working, working)
	f.steps(t, 10, 1, 0, working, working, working, working, working)
	// On a queue without other traffic it is not known: the message waits once more.
	f = newFeed(1)
	f.steps(t, 10, 0, 0, unknown)
	f.steps(t, 10, 1, 0, unknown, unknown, unknown, unknown, unknown)
}

// A message counts once, however often it fails, and where it failed last.
func TestWindowCountsAMessageOnce(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 39, 0, 0, unknown)
	for range 20 {
		f.steps(t, 39, 1, 0, unknown)
	}
	if failed, of := f.Last(); failed != 39 || of != 39 {
		t.Errorf("%d of %d failed", failed, of)
	}
	f.steps(t, 1, 0, 0, unknown, unknown, outage)
}

// A processor that starts during an outage counts messages that failed before it has started.
func TestWindowAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 60, 5, 0, unknown, unknown, outage)
}

// Each of two processors sees half of the failures, whichever of them saw a message before.
func TestWindowOfTwoProcessors(t *testing.T) {
	t.Parallel()
	f := newFeed(2)
	f.steps(t, 30, 0, 0, unknown, unknown, outage)
	f = newFeed(2)
	f.steps(t, 10, 0, 5, unknown)
	for range 20 {
		f.steps(t, 10, 1, 0, unknown) // 20 messages in all, and not 40
	}
	if failed, of := f.Last(); failed != 20 || of != 25 {
		t.Errorf("%d of %d failed", failed, of)
	}
}

// The acknowledgement of a message whose consumer said why it failed is no success, whether it
// shows early or late. A permanent failure is neither.
func TestWindowOfConsumersThatSayWhy(t *testing.T) {
	t.Parallel()
	for _, late := range []int{0, 1, 2} {
		f := newFeed(1)
		for step := range 6 {
			for range 20 {
				f.Failed(retry.Evidence{Failed: true, Told: true})
				f.Failed(retry.Evidence{Told: true})
			}
			acknowledged := 0
			if step >= late {
				acknowledged = 40
			}
			f.step(0, 0, acknowledged)
		}
		if got := f.State(f.now); got != outage {
			failed, of := f.Last()
			t.Errorf("late by %d: state %d, %d of %d failed", late, got, failed, of)
		}
	}
}

// Without statistics nothing is known, but for an outage, which lasts until they show its end.
func TestWindowWithoutStatistics(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	w := retry.NewWindow(topology.Outage{Failing: 0.8, Of: 50}, step, begin)
	if got := w.State(begin); got != unknown {
		t.Errorf("before the first: %d", got)
	}
	f := newFeed(1)
	f.steps(t, 0, 0, 100, working)
	if got := f.State(f.now.Add(time.Minute)); got != unknown {
		t.Errorf("after a minute without any: %d", got)
	}
	f.steps(t, 100, 0, 0, unknown)
	f.steps(t, 0, 0, 0, unknown, outage)
	if got := f.State(f.now.Add(time.Hour)); got != outage {
		t.Errorf("after an hour of an outage without any: %d", got)
	}
	f.s.Acknowledged = 0 // the node has started again
	f.steps(t, 0, 0, 60, working)
}

// A broker that counts no deliveries says nothing.
func TestWindowOfABrokerThatDoesNotCount(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	for range 20 {
		for range 100 {
			f.Failed(retry.Evidence{Failed: true})
		}
		f.now = f.now.Add(step)
		f.Count(retry.Statistics{Processors: 1}, f.now)
	}
	if got := f.State(f.now); got != unknown {
		t.Errorf("state %d", got)
	}
}
