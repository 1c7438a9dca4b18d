package retry_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// elsewhere is a topology with the backoffs a and b, and these queues.
func elsewhere(tiersOfA, tiersOfB int, queues ...topology.WorkQueue) topology.Compiled {
	c := shop("count", map[string]int{"a": tiersOfA, "b": tiersOfB})
	c.WorkQueues = queues
	return c
}

// redelivered is the message that a decision sends, as it is rejected in a queue after its wait.
func redelivered(d retry.Decision, queue string) retry.Message {
	h := maps.Clone(d.Headers)
	h["x-death"] = []any{
		map[string]any{"queue": queue, "reason": "rejected", "exchange": "shop.return", "routing-keys": []any{d.Key}},
		map[string]any{"queue": d.Tier.Queue, "reason": "expired", "exchange": d.Exchange, "routing-keys": []any{d.Key}},
	}
	return retry.Message{Exchange: "shop.failed", Key: topology.AddressKey(queue), Headers: h}
}

// first is a message that fails in a queue for the first time.
func first(queue string, headers map[string]any) retry.Message {
	h := map[string]any{"x-death": []any{map[string]any{
		"queue": queue, "reason": "rejected", "exchange": "events", "routing-keys": []any{"order.placed"},
	}}}
	maps.Copy(h, headers)
	return retry.Message{Exchange: "shop.failed", Key: topology.AddressKey(queue), Headers: h}
}

// What failed waits in the tier of its queue, comes to the other one, and goes on to count there.
// Its headers say where it came from, and its dead letter is one of the queue in which it died.
func TestRetryTo(t *testing.T) {
	t.Parallel()
	c := elsewhere(1, 2, topology.WorkQueue{Name: "billing", Backoff: "a", RetryTo: "slow"},
		topology.WorkQueue{Name: "slow", Backoff: "b"})
	// A publisher cannot forge where it came from.
	one := rulesOf(c, "a").Decide(first("billing", map[string]any{"retry-first-queue": "forged"}), moment(t))
	want := map[string]any{
		"CC": []any{"@slow"}, "count": int32(1), "retry-attempts": int64(1), "retry-queue": "slow",
		"retry-first-queue": "billing", "retry-exchange": "events", "retry-routing-key": "order.placed",
		"retry-reason": "rejected", "retry-first-failed-at": now, "retry-last-failed-at": now,
		"retry-history": []any{map[string]any{
			"at": now, "attempt": int64(1), "reason": "rejected", "tier": "1s", "queue": "billing",
		}},
	}
	if d := cmp.Diff(want, one.Headers); d != "" || one.Outcome != retry.Retried || one.Queue != "billing" ||
		one.Exchange != "shop.a.dlx" || one.Key != "order.placed" || one.Tier.Queue != "shop.a.retry.1s" {
		t.Errorf("the first failure: %+v\nheaders (-want +got):\n%s", one, d)
	}
	two := rulesOf(c, "b").Decide(redelivered(one, "slow"), moment(t))
	if two.Outcome != retry.Retried || two.Queue != "slow" || two.Attempts != 2 || two.Tier.Queue != "shop.b.retry.2s" ||
		!cmp.Equal(two.Headers["CC"], []any{"@slow"}) || two.Headers["retry-routing-key"] != "order.placed" {
		t.Errorf("the second failure: %+v", two)
	}
	three := rulesOf(c, "b").Decide(redelivered(two, "slow"), moment(t))
	if three.Outcome != retry.DeadLettered || three.Attempts != 3 || !cmp.Equal(three.Headers["CC"], []any{"@slow"}) ||
		three.Headers["retry-queue"] != "slow" || three.Headers["retry-first-queue"] != "billing" {
		t.Errorf("the dead letter: %+v", three)
	}
	var queues []any
	for _, v := range three.Headers["retry-history"].([]any) { //nolint:forcetypeassert // else the test fails
		queues = append(queues, v.(map[string]any)["queue"]) //nolint:forcetypeassert // as above
	}
	if d := cmp.Diff([]any{"billing", "slow", "slow"}, queues); d != "" {
		t.Errorf("the history names the queues (-want +got):\n%s", d)
	}
	if back := retry.Undo(three.Headers, "count"); len(back.Headers) != 0 {
		t.Errorf("a replay begins with %v", back.Headers)
	}
}

// A message that is dead in its first queue is one of that queue, whatever it retries to.
func TestRetryToIsForRetriesAlone(t *testing.T) {
	t.Parallel()
	c := elsewhere(1, 1, topology.WorkQueue{Name: "billing", Backoff: "a", RetryTo: "slow"},
		topology.WorkQueue{Name: "slow", Backoff: "b"})
	m := first("billing", map[string]any{"retry-permanent": true})
	m.Headers["x-death"] = nil // its consumer says why
	d := rulesOf(c, "a").Decide(m, moment(t))
	_, passed := d.Headers["retry-first-queue"]
	if d.Outcome != retry.DeadLettered || d.Key != "@billing" || d.Headers["retry-queue"] != "billing" || passed {
		t.Errorf("decided: %+v", d)
	}
}

// What no tier took keeps the way that was decided when it failed, whatever the file says now.
func TestWhatReturnedKeepsItsWay(t *testing.T) {
	t.Parallel()
	c := elsewhere(3, 3, topology.WorkQueue{Name: "billing", Backoff: "b", RetryTo: "slow"},
		topology.WorkQueue{Name: "slow", Backoff: "b"})
	for queue, before := range map[string]topology.Compiled{
		"billing": elsewhere(3, 3, topology.WorkQueue{Name: "billing", Backoff: "a"}),
		"slow": elsewhere(3, 3, topology.WorkQueue{Name: "billing", Backoff: "a", RetryTo: "slow"},
			topology.WorkQueue{Name: "slow"}),
	} {
		one := rulesOf(before, "a").Decide(first("billing", nil), moment(t))
		again := rulesOf(c, "b").Decide(retry.Message{Exchange: one.Exchange, Key: one.Key, Headers: one.Headers}, moment(t))
		if again.Outcome != retry.Retried || !cmp.Equal(again.Headers["CC"], []any{topology.AddressKey(queue)}) ||
			again.Headers["retry-queue"] != queue || again.Attempts != 1 {
			t.Errorf("to %s: %+v", queue, again)
		}
	}
}

// The failures in another queue are not deliveries of this one: an outage of it does not count
// them.
func TestRetryToAndOutages(t *testing.T) {
	t.Parallel()
	c := elsewhere(2, 4, topology.WorkQueue{Name: "billing", Backoff: "a", RetryTo: "slow"},
		topology.WorkQueue{Name: "slow", Backoff: "b"})
	knowing := func(backoff string) retry.Rules {
		working := func(string) (retry.State, time.Time) { return retry.Working, time.Time{} }
		return rulesOf(c, backoff).Knowing(time.Second, working)
	}
	one := knowing("a").Decide(first("billing", nil), moment(t))
	two := knowing("b").Decide(redelivered(one, "slow"), moment(t).Add(time.Minute))
	three := knowing("b").Decide(redelivered(two, "slow"), moment(t).Add(2*time.Minute))
	if !two.Evidence.Previous.IsZero() || !three.Evidence.Previous.Equal(moment(t).Add(time.Minute)) {
		t.Errorf("it failed before at %v, then at %v", two.Evidence.Previous, three.Evidence.Previous)
	}
}

// The law of retryTo: whatever queues retry to which, in circles too, and however the file changes
// between two failures, each failure counts, a message that always fails is dead after at most one
// delivery more than the longest backoff has tiers, and it dies in the queue that it failed in.
// While one file is in effect, its deliveries are those of [topology.Compiled.Schedule].
func TestCirclesOfRetryToEnd(t *testing.T) {
	t.Parallel()
	names := []string{"q0", "q1", "q2", "q3"}
	rapid.Check(t, func(t *rapid.T) {
		tiersOfA, tiersOfB := rapid.IntRange(0, 5).Draw(t, "a"), rapid.IntRange(0, 5).Draw(t, "b")
		draw := func(label string) topology.Compiled {
			var queues []topology.WorkQueue
			for _, name := range names {
				backoff := rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+", backoff of "+name)
				w := topology.WorkQueue{Name: name, Backoff: backoff}
				if to := rapid.SampledFrom(append(names, "")).Draw(t, label+", "+name+" retries to"); to != name {
					w.RetryTo = to
				}
				queues = append(queues, w)
			}
			return elsewhere(tiersOfA, tiersOfB, queues...)
		}
		c, changes := draw("file"), rapid.Bool().Draw(t, "the file changes")
		queue := names[0]
		m := first(queue, nil)
		schedule := c.Schedule(queue)
		for n := int64(1); ; n++ {
			if n > int64(max(tiersOfA, tiersOfB))+1 {
				t.Fatalf("it fails for the %dth time, in %s", n, queue)
			}
			w, _ := c.WorkQueue(queue)
			d := rulesOf(c, w.Backoff).Decide(m, moment(t))
			to, _ := d.Headers["retry-queue"].(string)
			if d.Attempts != n || !slices.Equal([]any{topology.AddressKey(to)}, d.Headers["CC"].([]any)) { //nolint:forcetypeassert // else the test fails
				t.Fatalf("the %dth failure: %+v", n, d)
			}
			if d.Outcome == retry.DeadLettered {
				if to != queue || d.Headers["count"] != int32(-1) {
					t.Fatalf("dead in %s: %+v", queue, d)
				}
				if !changes && int64(len(schedule.Tiers)) != n-1 {
					t.Fatalf("%d deliveries, and a schedule of %d tiers", n, len(schedule.Tiers))
				}
				return
			}
			if to != w.ReturnsTo() || n > 1 && to != names[0] && d.Headers["retry-first-queue"] == nil {
				t.Fatalf("from %s, which retries to %q: %+v", queue, w.RetryTo, d)
			}
			if !changes && schedule.Tiers[n-1] != d.Tier {
				t.Fatalf("waits in %v, and the schedule says %v", d.Tier, schedule.Tiers[n-1])
			}
			m, queue = redelivered(d, to), to
			if changes {
				c = draw(fmt.Sprintf("file %d", n))
			}
		}
	})
}
