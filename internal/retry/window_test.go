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
	f.s = retry.Statistics{Processors: processors, Consumed: 1, Delivered: 7, Acknowledged: 5}
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
	f.s.Consumed++
	f.now = f.now.Add(step)
	f.Count(f.s, f.now)
	return f.known()
}

// known returns what is known: that the queue is in outage, that for all there is to see it is in
// none, or nothing.
func (f *feed) known() retry.State { return knows(f.Window, f.now) }

func knows(w *retry.Window, now time.Time) retry.State {
	state, since := w.State(now)
	if state == retry.NotKnown && !since.IsZero() {
		return none
	}
	return state
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
	none    = retry.Working
	outage  = retry.InOutage
)

// When everything fails, that is known once the statistics must have shown what worked, and over
// once they show it. From the first look of it on, no message dies.
func TestWindowKnowsAnOutage(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 0, 0, 100, none)
	f.steps(t, 30, 0, 0, none, none) // 60 of 160
	f.steps(t, 30, 0, 0, outage)     // 90 of 90
	f.out(t, false)
	f.steps(t, 60, 1, 0, outage, outage)
	f.out(t, true)
	f.steps(t, 0, 0, 5, outage)
	f.steps(t, 0, 0, 20, none) // 25 of 85
	f.steps(t, 0, 0, 50, none)
}

// out expects that it is an outage, or none.
func (f *feed) out(t *testing.T, want bool) {
	t.Helper()
	if got := f.Out(); got != want {
		t.Errorf("an outage: %t", got)
	}
}

// An outage in which a tenth of many deliveries work is known, too.
func TestWindowKnowsAnOutageInWhichSomeWork(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 0, 0, 500, none, none, none)
	for range 5 {
		f.step(450, 0, 50)
	}
	f.out(t, true)
}

// Messages that always fail, among thousands that do not, are not an outage, however late
// statistics are, and neither are ten of them when they are all that is left.
func TestWindowKnowsPoison(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 10, 0, 1000, none, none)
	f.steps(t, 10, 1, 0, none, none, none, none, none)
	f = newFeed(1)
	for range 20 { // a queue with bursts
		for _, acknowledged := range []int{0, 0, 3000, 0, 0, 0, 0} {
			failed := 0
			if acknowledged > 0 {
				failed = 20
			}
			f.step(failed, 0, acknowledged)
			f.out(t, false)
		}
		f.step(60, 0, 0)
		f.step(0, 0, 0)
		f.step(0, 0, 10000)
		f.out(t, false)
	}
}

// A message counts once, however often it fails, and where it failed last.
func TestWindowCountsAMessageOnce(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 39, 0, 0, none)
	for range 20 {
		f.steps(t, 39, 1, 0, none)
	}
	if failed, of := f.Last(); failed != 39 || of != 39 {
		t.Errorf("%d of %d failed", failed, of)
	}
	f.steps(t, 1, 0, 0, outage)
}

// A processor that starts during an outage counts messages that failed before it has started.
func TestWindowAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	f.steps(t, 60, 5, 0, outage, outage, outage)
	f.out(t, true)
}

// An outage is seen to begin if statistics have shown before that there was none: not by a
// processor that has just started.
func TestWindowSeesAnOutageBegin(t *testing.T) {
	t.Parallel()
	saw := func(t *testing.T, f *feed, want bool) {
		t.Helper()
		for range 10 {
			f.step(60, 0, 0)
		}
		f.out(t, true)
		if got := f.SawBegin(); got != want {
			t.Errorf("it saw the outage begin: %t", got)
		}
	}
	f := newFeed(1)
	saw(t, f, false)
	for f.known() == outage {
		f.step(0, 0, 100)
	}
	f.out(t, false)
	saw(t, f, true)
}

// Each of two processors sees half of the failures, whichever of them saw a message before.
func TestWindowOfTwoProcessors(t *testing.T) {
	t.Parallel()
	f := newFeed(2)
	f.steps(t, 15, 0, 0, none, outage)
	f = newFeed(2)
	f.steps(t, 10, 0, 5, none)
	for range 20 {
		f.steps(t, 10, 1, 0, none) // 20 messages in all, and not 40
	}
	if failed, of := f.Last(); failed != 20 || of != 25 {
		t.Errorf("%d of %d failed", failed, of)
	}
}

// The acknowledgement of a message whose consumer said why it failed is not a success, whichever of
// the two numbers shows early, whatever this processor saw of them.
func TestWindowOfConsumersThatSayWhy(t *testing.T) {
	t.Parallel()
	for _, late := range []int{-3, -1, 0, 1, 3} {
		f := newFeed(2)
		f.s.Share = 1
		for n := range 20 {
			for range 20 {
				f.Failed(retry.Evidence{Failed: true, Told: true})
			}
			if n < 18 {
				f.s.Told += 100 // this processor sees a fifth of them
			}
			if n-late >= 0 && n-late < 18 {
				f.s.Acknowledged += 100
			}
			if late < 0 && n == 0 {
				f.s.Acknowledged += int64(-late) * 100
			}
			f.step(0, 0, 0)
		}
		f.out(t, true)
		for range 5 {
			f.step(0, 0, 100)
		}
		f.out(t, false)
	}
}

// Without statistics nothing is known, but for an outage, which lasts until they show its end. When
// they come again, what was before them is not known.
func TestWindowWithoutStatistics(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	w := retry.NewWindow(topology.Outage{Failing: 0.8, Of: 50}, step, begin)
	if got := knows(w, begin); got != unknown {
		t.Errorf("before the first: %d", got)
	}
	f := newFeed(1)
	f.steps(t, 0, 0, 100, none)
	if got := knows(f.Window, f.now.Add(time.Minute)); got != unknown {
		t.Errorf("after a minute without any: %d", got)
	}
	f.now = f.now.Add(time.Minute)
	f.steps(t, 0, 0, 0, none)
	if _, since := f.State(f.now); !since.Equal(f.now) {
		t.Errorf("what is known since %s is known at %s", since, f.now)
	}
	f.steps(t, 200, 0, 0, none, outage, outage, outage)
	f.out(t, true)
	if got := knows(f.Window, f.now.Add(time.Hour)); got != outage {
		t.Errorf("after an hour of an outage without any: %d", got)
	}
	f.s.Acknowledged, f.s.Delivered = 300, 300 // the node has started again
	f.steps(t, 0, 0, 0, outage)
	f.steps(t, 0, 0, 200, none)
}

// A broker that counts no deliveries shows nothing, and so no time without an outage. Once it
// counts, what has failed is known.
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
	if got := f.known(); got != unknown {
		t.Errorf("state %d", got)
	}
	f.Count(f.s, f.now)
	if got := f.known(); got != outage {
		t.Errorf("once it counts: state %d", got)
	}
}

// Of a queue whose deliveries the broker does not count, all or most, nothing is known, neither an
// outage nor that there is none. That a person looks at the queue changes nothing. Once an
// acknowledgement is counted, its deliveries are.
func TestWindowOfAQueueThatIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"never": 0, "since its consumers speak AMQP 1.0": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFeed(1)
			f.s.Delivered, f.s.Acknowledged = 0, 0
			f.Window = retry.NewWindow(topology.Outage{Failing: 0.8, Of: 50}, step, f.now)
			f.step(0, 0, before)
			f.step(0, 0, 0)
			again := func(n, counted int) {
				for range n {
					f.Failed(retry.Evidence{Failed: true, Delivered: true, Previous: f.now})
				}
				f.s.Delivered += int64(counted)
				f.step(0, 0, 0)
			}
			for range 6 {
				again(40, 0)
			}
			for range 10 {
				again(100, 30)
				if state := f.known(); state != unknown || f.Out() || !f.Uncounted() {
					t.Fatalf("state %d, in outage %t, not counted %t", state, f.Out(), f.Uncounted())
				}
			}
			f.step(0, 0, 1)
			f.steps(t, 0, 0, 50, none)
			if f.Uncounted() {
				t.Error("it is not counted, after an acknowledgement")
			}
		})
	}
}

// A broker that collects statistics each minute, of each channel at another time, lacks nothing.
func TestWindowOfStatisticsThatAreCollectedSeldom(t *testing.T) {
	t.Parallel()
	f := newFeed(1)
	for n := range 120 {
		switch f.Failed(retry.Evidence{Failed: true, Delivered: true, Previous: f.now.Add(-2 * step)}); n % 12 {
		case 6:
			f.s.Consumed += 12
		case 11:
			f.s.Delivered, f.s.Acknowledged = f.s.Delivered+112, f.s.Acknowledged+100
		}
		f.now = f.now.Add(step)
		if f.Count(f.s, f.now); f.Uncounted() {
			t.Fatalf("after %d readings what consumers get is not counted", n)
		}
	}
}

// An outage whose deliveries are counted late is known, and one of messages that have waited in the
// failed queue for long, or expire in their work queue.
func TestWindowOfAQueueThatIsCounted(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]retry.Evidence{
		"late": {Failed: true, Delivered: true}, "later": {Failed: true, Delivered: true},
		"old": {Failed: true, Delivered: true}, "expired": {Failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFeed(1)
			f.steps(t, 0, 0, 100, none)
			for n := range 20 {
				e.Previous = f.now.Add(-time.Second)
				if name == "old" || n == 0 {
					e.Previous = f.now.Add(-time.Hour)
				}
				for range 60 {
					f.Failed(e)
				}
				switch {
				case name == "late" && n >= 3, name == "later" && n > 10:
					f.s.Delivered += 60
				case name == "later" && n == 10:
					f.s.Delivered += 60 * 8
				}
				f.step(0, 0, 0)
			}
			f.out(t, true)
		})
	}
}
