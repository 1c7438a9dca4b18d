package retry_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// What expires in the hold, while its queue is replaced under its name, has failed in that queue,
// as the publisher sent it, or as it came back from a retry.
func TestAMessageExpiresInTheHoldOfItsQueue(t *testing.T) {
	t.Parallel()
	c := elsewhere(2, 0, topology.WorkQueue{Name: "billing", Backoff: "a"})
	death := map[string]any{
		"queue": topology.ReplacementHoldName("shop", "billing"), "reason": "expired", "exchange": "events",
		"routing-keys": []any{"order.placed"}, "original-expiration": "100",
	}
	m := retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: map[string]any{"x-death": []any{death}}}
	first := rulesOf(c, "a").Decide(m, moment(t))
	for name, want := range map[string]any{
		"retry-reason": "expired", "retry-queue": "billing", "retry-exchange": "events",
		"retry-routing-key": "order.placed", "retry-expiration": "100", "retry-attempts": int64(1),
	} {
		if first.Headers[name] != want {
			t.Errorf("the first time, %s is %v, not %v", name, first.Headers[name], want)
		}
	}
	back := maps.Clone(first.Headers)
	again := maps.Clone(death)
	again["exchange"], again["routing-keys"] = "shop.return", []any{"@billing"}
	back["x-death"] = []any{again, map[string]any{"queue": "shop.a.retry.1s", "reason": "expired"}, death}
	m.Headers = back
	second := rulesOf(c, "a").Decide(m, moment(t))
	for name, want := range map[string]any{
		"retry-reason": "expired", "retry-exchange": "events", "retry-routing-key": "order.placed",
		"retry-attempts": int64(2),
	} {
		if second.Headers[name] != want {
			t.Errorf("the second time, %s is %v, not %v", name, second.Headers[name], want)
		}
	}
}

// expiring returns what is decided about the failure after so many attempts of a message of billing
// with an expiration, which failed first so long ago. Its backoff has a tier of a second and one of
// two.
func expiring(
	t *testing.T, after topology.AfterExpiry, reason, expiration string, attempts int64, ago time.Duration,
) retry.Decision {
	t.Helper()
	c := elsewhere(2, 0, topology.WorkQueue{Name: "billing", Backoff: "a"})
	c.Backoffs[0].AfterExpiry = after
	death := map[string]any{
		"queue": "billing", "reason": reason, "exchange": "events", "routing-keys": []any{"order.placed"},
	}
	m := retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: map[string]any{"x-death": []any{death}}}
	if attempts == 0 {
		m.Headers["retry-expiration"] = "1" // a publisher's header means nothing
		if expiration != "" {
			death["original-expiration"] = expiration
		}
	} else {
		death["exchange"] = "shop.return"
		m.Headers = map[string]any{
			"count": attempts, "retry-queue": "billing", "retry-expiration": expiration,
			"retry-first-failed-at": moment(t).Add(-ago).Format(topology.HeaderTime),
			"x-death":               []any{death, map[string]any{"queue": "shop.a.retry.1s", "reason": "expired"}},
		}
	}
	return rulesOf(c, "a").Decide(m, moment(t))
}

// What expired, or expires before its next wait ends, is what afterExpiry says. What would be dead
// anyway is a dead letter, with its own reason.
func TestAfterExpiry(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for _, c := range []struct {
		reason, expiration string
		attempts           int64
		ago                time.Duration
		ignored            retry.Outcome
		over               bool
	}{
		{"expired", "", 0, 0, retry.Retried, true},
		{"expired", "60000", 1, second, retry.Retried, true},
		{"expired", "", 2, second, retry.DeadLettered, true},
		{"rejected", "", 0, 0, retry.Retried, false},
		{"rejected", "1001", 0, 0, retry.Retried, false},
		{"rejected", "1000", 0, 0, retry.Retried, true},
		{"rejected", "0", 0, 0, retry.Retried, true},
		{"rejected", "4000", 1, second, retry.Retried, false},
		{"rejected", "3000", 1, second, retry.Retried, true},
		{"rejected", "3000", 1, -second, retry.Retried, false}, // clocks differ
		{"rejected", "99999999999999", 1, second, retry.Retried, false},
		{"rejected", "-1", 1, second, retry.Retried, false},
		{"rejected", "soon", 1, second, retry.Retried, false},
		{"rejected", "1", 2, second, retry.DeadLettered, false},
	} {
		for after, over := range map[topology.AfterExpiry]retry.Outcome{
			"": c.ignored, topology.ExpiryDead: retry.DeadLettered, topology.ExpiryDropped: retry.Dropped,
		} {
			d := expiring(t, after, c.reason, c.expiration, c.attempts, c.ago)
			want, reason := c.ignored, c.reason
			if c.over && after != "" {
				want, reason = over, "expired"
			}
			at := fmt.Sprintf("%+v, afterExpiry %q", c, after)
			if d.Outcome != want || string(d.Reason) != reason || d.Headers["retry-reason"] != reason {
				t.Errorf("%s: %s for the reason %s, with the header %v", at, d.Outcome, d.Reason, d.Headers["retry-reason"])
			}
			past, _ := d.Headers["retry-history"].([]any)
			if last, _ := past[len(past)-1].(map[string]any); last["reason"] != c.reason {
				t.Errorf("%s: the history says %v", at, last["reason"])
			}
			if count := d.Headers["count"]; (count == int32(-1)) != (want != retry.Retried) || d.Attempts != c.attempts+1 {
				t.Errorf("%s: count is %v after %d attempts", at, count, d.Attempts)
			}
		}
	}
}

// A message that no tier took has not failed again: it stays what it was.
func TestAfterExpiryOfWhatReturned(t *testing.T) {
	t.Parallel()
	c := elsewhere(2, 2, topology.WorkQueue{Name: "billing", Backoff: "a"})
	c.Backoffs[0].AfterExpiry = topology.ExpiryDropped
	m := returned("shop.b.dlx", map[string]any{
		"count": int32(1), "retry-attempts": int64(1), "retry-queue": "billing", "CC": []any{"@billing"},
		"retry-reason": "expired", "retry-expiration": "1", "retry-first-failed-at": "2020-01-01T00:00:00.000Z",
	})
	if d := rulesOf(c, "a").Decide(m, moment(t)); d.Outcome != retry.Retried {
		t.Errorf("it is %s", d.Outcome)
	}
}
