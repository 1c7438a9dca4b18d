package retry_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// came returns a message as it fails after its tier.
func came(d retry.Decision, said map[string]any) retry.Message {
	m := failedAgain(d)
	m.Exchange, m.Key = "shop.failed", "@billing"
	m.Headers["x-death"] = m.Headers["x-death"].([]any)[1:] // its consumer publishes it
	maps.Copy(m.Headers, said)
	return m
}

// pastOf returns the history of a decision.
func pastOf(d retry.Decision) []any {
	list, _ := d.Headers["retry-history"].([]any)
	return list
}

// The history of a message is its last twenty failures, the oldest first.
func TestTheHistoryIsTheLastFailures(t *testing.T) {
	t.Parallel()
	rules := rulesOf(shop("count", map[string]int{"a": 30}), "a")
	at := moment(t)
	forged := map[string]any{"retry-history": []any{map[string]any{"at": "forged"}}}
	d := rules.Decide(retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: forged}, at)
	want := []any{map[string]any{"at": now, "attempt": int64(1), "reason": "rejected", "tier": "1s"}}
	for i := 2; d.Outcome == retry.Retried; i++ {
		if diff := cmp.Diff(want, pastOf(d)); diff != "" {
			t.Fatalf("after %d failures (-want +got):\n%s", i-1, diff)
		}
		at = at.Add(time.Second)
		kind := fmt.Sprintf("Error%d", i)
		d = rules.Decide(came(d, map[string]any{"retry-error-type": kind}), at)
		entry := map[string]any{
			"at": at.UTC().Format(topology.HeaderTime), "attempt": int64(i), "reason": "rejected", "error-type": kind,
			"tier": topology.FormatDelay(time.Duration(i) * time.Second),
		}
		if i == 31 {
			delete(entry, "tier")
		}
		if want = append(want, entry); len(want) > 20 {
			want = want[1:]
		}
	}
	if diff := cmp.Diff(want, pastOf(d)); diff != "" || d.Attempts != 31 {
		t.Errorf("the dead letter (-want +got):\n%s", diff)
	}
}

// A consumer publishes what it likes: what no processor would write is not kept.
func TestTheHistoryHasNoOtherEntries(t *testing.T) {
	t.Parallel()
	rules := rulesOf(shop("count", map[string]int{"a": 3}), "a")
	first := rules.Decide(retry.Message{Exchange: "shop.failed", Key: "@billing"}, moment(t))
	entry := pastOf(first)[0]
	for name, list := range map[string]any{
		"no list": "x", "no tables": []any{"x", nil, int64(1), entry},
		"another field":  []any{map[string]any{"at": now, "more": "x"}, entry},
		"a long text":    []any{map[string]any{"error-type": strings.Repeat("x", 101)}, entry},
		"another type":   []any{map[string]any{"reason": []any{"rejected"}}, map[string]any{"attempt": "1"}, entry},
		"a deeper table": []any{map[string]any{"tier": map[string]any{"a": "b"}}, entry},
	} {
		d := rules.Decide(came(first, map[string]any{"retry-history": list}), moment(t))
		want := 2
		if name == "no list" {
			want = 1
		}
		if got := pastOf(d); len(got) != want || want == 2 && !cmp.Equal(got[0], entry) {
			t.Errorf("%s: the history is %v", name, got)
		}
	}
}

// What does not fit in a frame costs the oldest failures, then the whole history, and then what was
// said last.
func TestTheHistoryGivesWay(t *testing.T) {
	t.Parallel()
	for frame, want := range map[int]int{0: 5, 20_000: 5, 6_000: 5, 3_500: 2, 3_300: 0} {
		headers := map[string]any{
			"retry-error": strings.Repeat("e", 500), "retry-error-type": "T", "retry-error-stack": strings.Repeat("s", 8000),
			"x-death": []any{map[string]any{"queue": "shop.standard.retry.1s"}}, "count": int64(1), "retry-queue": "billing",
			"retry-attempts": int64(1), "retry-history": []any{
				map[string]any{"error-type": strings.Repeat("1", 90)},
				map[string]any{"error-type": strings.Repeat("2", 90)},
				map[string]any{"error-type": strings.Repeat("3", 90)},
				map[string]any{"error-type": strings.Repeat("4", 90)},
			},
		}
		d := said(frame, headers)
		_, there := d.Headers["retry-history"]
		if got := pastOf(d); len(got) != want || there != (want > 0) || d.Headers["retry-error"] == nil ||
			d.Headers["retry-attempts"] != int64(2) {
			t.Errorf("frame %d: %d failures, %d bytes, headers %v", frame, len(got), sizeOf(d.Headers), d.Headers)
		}
	}
}

// A message that goes to the unroutable queue keeps its history, and no forged one.
func TestTheHistoryOfAnUnroutableMessage(t *testing.T) {
	t.Parallel()
	rules := rulesOf(shop("count", map[string]int{"a": 3}), "a")
	forged := map[string]any{"retry-history": []any{map[string]any{"at": now}}}
	d := rules.Decide(retry.Message{Exchange: "shop.failed", Key: "nowhere", Headers: forged}, moment(t))
	if d.Outcome != retry.Unroutable || pastOf(d) != nil {
		t.Errorf("%s with the history %v", d.Outcome, pastOf(d))
	}
	m := came(rules.Decide(retry.Message{Exchange: "shop.failed", Key: "@billing"}, moment(t)), nil)
	d = rules.ToUnroutable(m, retry.Decision{Cause: retry.Refused}, "it is full", moment(t))
	if len(pastOf(d)) != 1 {
		t.Errorf("the history is %v", pastOf(d))
	}
}
