package simulate

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

// backoff returns a backoff with these tiers.
func backoff(delays ...time.Duration) topology.Backoff {
	b := topology.Backoff{Name: "standard"}
	for _, d := range delays {
		b.Tiers = append(b.Tiers, topology.Tier{Delay: d, Queue: "shop.standard.retry." + topology.FormatDelay(d)})
	}
	return b
}

// draw draws an outage: with and without a limit of the consumers, and the key outage.
func draw(t *rapid.T) Input {
	millis := func(name string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Millisecond
	}
	var delays []time.Duration
	for range rapid.IntRange(0, 4).Draw(t, "tiers") {
		delays = append(delays, millis("delay", 0, 20_000))
	}
	rate := float64(rapid.IntRange(5, 40).Draw(t, "rate"))
	in := Input{Backoff: backoff(delays...), Rate: rate, Outage: millis("outage", 4000, 60_000)}
	if rapid.Bool().Draw(t, "limited") {
		in.Capacity = in.Rate * (1 + float64(rapid.IntRange(1, 40).Draw(t, "capacity"))/10)
	}
	if rapid.Bool().Draw(t, "key") {
		o := topology.DefaultOutage()
		o.Until = millis("until", 1, 90_000)
		if rapid.Bool().Draw(t, "spread") {
			o.Rate = in.Rate * float64(rapid.IntRange(5, 30).Draw(t, "returning")) / 10
		}
		in.Backoff.Outage = &o
	}
	return in
}

// What single messages do is what the flow says.
func TestTheFlowIsThatOfSingleMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		got, want := Run(in), single(in)
		if got.Estimate {
			t.Skip("the numbers are estimates")
		}
		arrived := in.Rate * in.Outage.Seconds()
		near := func(what string, got, want int64, slack float64) {
			if math.Abs(float64(got-want)) > slack {
				t.Errorf("%s: %d, and of single messages %d (%.1f arrived)", what, got, want, arrived)
			}
		}
		slack := 3 + float64(len(in.Backoff.Tiers)) + 0.01*arrived
		near("dead", got.Dead, want.Dead, slack)
		near("waiting", got.Waiting, want.Waiting, slack)
		near("backlog", got.Backlog, want.Backlog, slack)
		near("deliveries", got.Deliveries, want.Deliveries, slack*float64(1+want.Deliveries)/(1+arrived))
		between := func(change float64) time.Duration {
			other := in
			other.Outage += duration(change / in.Rate).Truncate(time.Millisecond)
			return Run(other).Done
		}
		gap := duration(slack / in.Rate)
		if in.Capacity > 0 { // a message more or less comes to the longest tier
			gap += in.Backoff.OutageDelay()
		}
		if short, long := between(-1), between(1); want.Done < short-gap || want.Done > long+gap {
			t.Errorf("done after %s, and of single messages after %s", got.Done, want.Done)
		}
	})
}

// At every moment each message that has arrived is done, dead, waiting for a retry or in the work
// queue, and none is there twice.
func TestNoMessageIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		r := Run(in)
		f := r.flow
		before, dead := 0.0, 0.0
		for i, at := range f.points {
			done, waiting := 0.0, 0.0
			for k := range f.taken {
				done += f.taken[k][i] - f.failed[k][i]
			}
			for _, tier := range r.Tiers {
				level := tier.level(i)
				if level < -trace {
					t.Fatalf("%f messages wait in %s after %fs", level, tier.Queue, at)
				}
				waiting += level
			}
			if lost := in.Rate*at - done - f.dead[i] - waiting - f.backlog(i); math.Abs(lost) > trace {
				t.Fatalf("%f messages are missing after %fs", lost, at)
			}
			if done < before-trace || f.dead[i] < dead-trace || f.backlog(i) < -trace {
				t.Fatalf("after %fs: done %f and before %f, dead %f and before %f, backlog %f",
					at, done, before, f.dead[i], dead, f.backlog(i))
			}
			before, dead = done, f.dead[i]
		}
		for _, tier := range r.Tiers {
			if left := tier.level(len(f.points) - 1); left > trace {
				t.Fatalf("%f messages wait in %s in the end", left, tier.Queue)
			}
		}
	})
}

// Without a limit of the consumers, those messages are dead that arrived long enough before the end
// of the outage, and each attempt is made by those that arrived before that.
func TestDeadLettersAreThoseOfTheRestOfTheOutage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		in.Capacity = 0
		if in.Backoff.Outage != nil {
			in.Backoff.Outage.Rate = 0
		}
		want := in.Rate * max(0, in.Outage-in.Backoff.OutageLimit()).Seconds()
		r := Run(in)
		if math.Abs(float64(r.Dead)-want) > 0.51 {
			t.Errorf("%d are dead, not %f", r.Dead, want)
		}
		deliveries := in.Rate*in.Outage.Seconds() - want // those that succeed
		for _, age := range ages(in.Backoff) {
			deliveries += in.Rate * max(0, in.Outage-age).Seconds()
		}
		if math.Abs(float64(r.Deliveries)-deliveries) > 0.51 {
			t.Errorf("%d deliveries, not %f", r.Deliveries, deliveries)
		}
	})
}

// ages returns how long after its arrival a message is delivered that fails each time.
func ages(b topology.Backoff) []time.Duration {
	out := []time.Duration{0}
	for _, t := range b.Tiers {
		out = append(out, out[len(out)-1]+t.Delay)
	}
	for out[len(out)-1] < b.OutageLimit() {
		out = append(out, out[len(out)-1]+b.OutageDelay())
	}
	return out
}

// One tier more never makes more dead letters, nor does the key outage, nor a shorter outage.
func TestMoreTiersMakeFewerDeadLetters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		if r := Run(in); r.Estimate {
			t.Skip("the numbers are estimates")
		}
		dead := Run(in).Dead
		less := func(what string, other Input) {
			if got := Run(other).Dead; float64(got-dead) > slack(in) {
				t.Errorf("%d are dead with %s, and %d without", got, what, dead)
			}
		}
		longer := in
		delay := time.Duration(rapid.IntRange(0, 20_000).Draw(t, "another")) * time.Millisecond
		longer.Backoff.Tiers = append(slices.Clone(in.Backoff.Tiers), topology.Tier{Delay: delay, Queue: "another"})
		if in.Backoff.Outage == nil { // with the key, the longest tier is another
			less("another tier", longer)
			keyed := in
			key := topology.DefaultOutage()
			keyed.Backoff.Outage = &key
			less("the key", keyed)
		}
		shorter := in
		shorter.Outage = in.Outage * 3 / 4
		less("a shorter outage", shorter)
	})
}

// slack returns by how many messages a number may be wrong, because time goes in steps: with a
// limit of what the consumers do, or of what returns, by a hundredth of the messages.
func slack(in Input) float64 {
	out := 1.0
	if in.Capacity > 0 || in.Backoff.Outage != nil && in.Backoff.Outage.Rate > 0 {
		out += in.Rate * in.Outage.Seconds() / 100
	}
	return out
}

// Without a limit the number of steps is of no importance. With one, it is for a hundredth of the
// messages at most.
func TestStepsAreSmallEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t)
		one, other := Run(in), run(in, 3*steps)
		for _, pair := range [][2]int64{{one.Dead, other.Dead}, {one.Waiting, other.Waiting}, {one.Backlog, other.Backlog}} {
			if math.Abs(float64(pair[0]-pair[1])) > slack(in) {
				t.Errorf("%+v, and with three times the steps %+v", one, other)
			}
		}
	})
}

// message is one message: when it comes to the work queue, after how many attempts.
type message struct {
	at, first float64
	attempt   int
	late      bool // it was published after the outage
}

// single computes an outage message by message.
func single(in Input) Result {
	var r Result
	length, free, released := in.Outage.Seconds(), 0.0, math.Inf(-1)
	var queue, waiting []moment
	back := &returning{}
	published := 0
	for {
		m := message{at: (float64(published) + 0.5) / in.Rate}
		m.late = m.at > length
		if back.Len() > 0 && (*back)[0].at <= m.at {
			m = heap.Pop(back).(message)
		} else if published++; m.late && back.Len() == 0 {
			break
		}
		served := m.at
		if in.Capacity > 0 {
			served = max(m.at, free)
			free = served + 1/in.Capacity
		}
		queue = append(queue, moment{m.at, 1}, moment{served, -1})
		if m.late {
			continue
		}
		r.Deliveries++
		r.Done = max(r.Done, duration(served))
		if served > length {
			continue
		}
		if m.attempt == 0 {
			m.first = served
		}
		switch {
		case m.attempt < len(in.Backoff.Tiers):
			m.at = served + in.Backoff.Tiers[m.attempt].Delay.Seconds()
		case in.Backoff.Outage != nil && served-m.first+1e-9 < in.Backoff.Outage.Until.Seconds():
			m.at = served + in.Backoff.OutageDelay().Seconds()
			if rate := in.Backoff.Outage.Rate; rate > 0 {
				m.at = max(m.at, released+1/rate)
				released = m.at
			}
		default:
			r.Dead++
			continue
		}
		m.attempt++
		waiting = append(waiting, moment{served, 1}, moment{m.at, -1})
		heap.Push(back, m)
	}
	r.Backlog, r.Waiting = most(queue), most(waiting)
	return r
}

// moment is when a message comes to a place or leaves it.
type moment struct {
	at     float64
	change int64
}

// most returns how many messages are in a place at the peak.
func most(list []moment) (peak int64) {
	slices.SortStableFunc(list, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.change, b.change))
	})
	now := int64(0)
	for _, m := range list {
		now += m.change
		peak = max(peak, now)
	}
	return peak
}

// returning is a heap of messages, the earliest first.
type returning []message

func (m returning) Len() int           { return len(m) }
func (m returning) Less(i, k int) bool { return m[i].at < m[k].at }
func (m returning) Swap(i, k int)      { m[i], m[k] = m[k], m[i] }
func (m *returning) Push(x any)        { *m = append(*m, x.(message)) }
func (m *returning) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
