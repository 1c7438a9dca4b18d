package retry_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	before = "2026-11-21T08:00:00.000Z"
	now    = "2026-11-21T08:30:00.000Z"
)

func moment(t interface{ Fatal(args ...any) }) time.Time {
	at, err := time.Parse(time.RFC3339, now)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// shop is a topology with the queue billing, whose backoffs have so many tiers each.
func shop(countHeader string, tiers map[string]int) topology.Compiled {
	c := topology.Compiled{Name: "shop", CountHeader: countHeader, WorkQueues: []topology.WorkQueue{{Name: "billing"}}}
	for _, name := range slices.Sorted(maps.Keys(tiers)) {
		b := topology.Backoff{
			Name: name, FailedQueue: topology.FailedQueueName("shop", name),
			RetryExchange: topology.RetryExchangeName("shop", name),
		}
		for i := range tiers[name] {
			delay := time.Duration(i+1) * time.Second
			b.Tiers = append(b.Tiers, topology.Tier{Delay: delay, Queue: topology.RetryQueueName("shop", name, delay)})
		}
		c.Backoffs = append(c.Backoffs, b)
	}
	return c
}

func rulesOf(c topology.Compiled, backoff string) retry.Rules {
	b, _ := c.Backoff(backoff)
	return retry.NewRules(c, b, 0)
}

// returned is a message of billing that the processor gave a second retry and that no tier took.
func returned(exchange string, headers map[string]any) retry.Message {
	h := map[string]any{
		"count": int32(2), "CC": []any{"@billing"}, "retry-queue": "billing", "retry-exchange": "events",
		"retry-routing-key": "order.placed", "retry-first-failed-at": before, "retry-last-failed-at": before,
		"retry-reason": "expired", "retry-attempts": int64(2), "retry-cc": []any{"x.y"}, "retry-user-id": "shopper",
		"retry-expiration": "60000", "mine": "kept",
	}
	maps.Copy(h, headers)
	return retry.Message{Exchange: exchange, Key: "order.placed", Headers: h}
}

// A message that came back through the retry exchange has not failed again: it is a dead letter
// with the history that it had. To another backoff it came for the attempt that it has.
func TestAMessageThatReturnedHasNotFailedAgain(t *testing.T) {
	t.Parallel()
	c, dead := shop("count", map[string]int{"a": 3, "b": 3}), int32(-1)
	count := func(v any) map[string]any { return map[string]any{"count": v} }
	chosen := func(v any) map[string]any { return map[string]any{"count": int32(3), "retry-attempts": v} }
	for name, tc := range map[string]struct {
		message retry.Message
		outcome retry.Outcome
		count   any
	}{
		"its own retry exchange":         {returned("shop.a.dlx", nil), retry.DeadLettered, dead},
		"that of another backoff":        {returned("shop.b.dlx", nil), retry.Retried, int32(2)},
		"that of a backoff of no file":   {returned("shop.gone.dlx", nil), retry.Retried, int32(2)},
		"another backoff, out of tiers":  {returned("shop.b.dlx", count(int32(4))), retry.Retried, int32(2)},
		"a tier that retry-after chose":  {returned("shop.a.dlx", chosen(int64(2))), retry.Retried, int32(2)},
		"the same, of another backoff":   {returned("shop.b.dlx", chosen(int64(2))), retry.Retried, int32(2)},
		"another backoff, a dead letter": {returned("shop.b.dlx", count(dead)), retry.DeadLettered, dead},
		"another backoff, no count":      {returned("shop.b.dlx", count("2")), retry.DeadLettered, dead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := rulesOf(c, "a").Decide(tc.message, moment(t))
			want := maps.Clone(tc.message.Headers)
			want["count"] = tc.count
			if diff := cmp.Diff(want, d.Headers); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if d.Outcome != tc.outcome || d.Exchange != "shop.a.dlx" || d.Key != "order.placed" || d.Queue != "billing" ||
				d.Attempts != 2 || d.Reason != topology.ReasonExpired || d.FirstFailedAt != before {
				t.Errorf("decided: %+v", d)
			}
		})
	}
}

// Without attempts that are left, what returned is a dead letter, also where retry-after had chosen
// its tier.
func TestWhatReturnedOutOfAttempts(t *testing.T) {
	t.Parallel()
	c := shop("count", map[string]int{"a": 3, "b": 3})
	for _, exchange := range []string{"shop.a.dlx", "shop.b.dlx"} {
		m := returned(exchange, map[string]any{"count": int32(3), "retry-attempts": int64(4)})
		if d := rulesOf(c, "a").Decide(m, moment(t)); d.Outcome != retry.DeadLettered || d.Attempts != 4 {
			t.Errorf("from %s: %+v", exchange, d)
		}
	}
	m := returned("shop.a.dlx", map[string]any{"count": int32(3), "retry-attempts": nil})
	if d := rulesOf(c, "a").Decide(m, moment(t)); d.Outcome != retry.DeadLettered || d.Attempts != 3 {
		t.Errorf("without attempts: %+v", d)
	}
}

// A message that waited in a tier that is in no file any more goes on by its attempts.
func TestATierThatRetryAfterChoseIsGone(t *testing.T) {
	t.Parallel()
	m := returned("shop.failed", map[string]any{
		"count": int32(3), "retry-attempts": int64(1),
		"x-death": []any{
			map[string]any{"queue": "billing", "reason": "rejected", "exchange": "shop.return"},
			map[string]any{"queue": "shop.a.retry.3s", "reason": "expired", "exchange": "shop.a.dlx"},
		},
	})
	m.Key = "@billing"
	rules := rulesOf(shop("count", map[string]int{"a": 2}), "a")
	if d := rules.Decide(m, moment(t)); d.Outcome != retry.Retried || d.Attempts != 2 || d.Headers["count"] != int32(2) {
		t.Errorf("decided: %+v", d)
	}
}

// A failure is never taken for a message that returned: its exchange is that of failures, whatever
// headers the publisher has set, and whatever exchange the publisher used.
func TestAFailureIsNotAMessageThatReturned(t *testing.T) {
	t.Parallel()
	rules := rulesOf(shop("count", map[string]int{"a": 3}), "a")
	for _, exchange := range []string{
		"shop.failed", "events", "", "shop.a.dlx.next", "shop.dlx", "shop..dlx", "other.a.dlx", "shop.a.b.dlx",
	} {
		forged := returned(exchange, map[string]any{"count": int32(-1), "retry-attempts": int64(900)})
		forged.Key = "@billing"
		if d := rules.Decide(forged, moment(t)); d.Outcome != retry.Retried || d.Attempts != 1 || d.FirstFailedAt != now {
			t.Errorf("by the exchange %q: %s with %d attempts", exchange, d.Outcome, d.Attempts)
		}
		forged.Key = "order.placed" // CC addresses no failure
		if d := rules.Decide(forged, moment(t)); d.Outcome != retry.Unroutable || d.Cause != retry.NoAddress {
			t.Errorf("by the exchange %q, without an address: %s", exchange, d.Outcome)
		}
	}
}

// What came back without a history that a processor wrote is a dead letter too, and without an
// address it is unroutable.
func TestWhatReturnedWithoutAHistory(t *testing.T) {
	t.Parallel()
	rules := rulesOf(shop("count", map[string]int{"a": 3}), "a")
	for name, count := range map[string]any{
		"absent": nil, "zero": int64(0), "negative": int64(-7), "huge": int64(1) << 40, "text": "1", "bool": true,
		"float": 1.0, "a tier's": int64(1),
	} {
		m := retry.Message{Exchange: "shop.a.dlx", Key: "@billing", Headers: map[string]any{"count": count}}
		if d := rules.Decide(m, moment(t)); d.Outcome != retry.DeadLettered || d.Attempts != 1 ||
			d.Headers["count"] != int32(-1) || d.Reason != topology.ReasonUnknown || d.Key != "@billing" {
			t.Errorf("%s: %+v", name, d)
		}
		m.Key = "order.placed"
		if d := rules.Decide(m, moment(t)); d.Outcome != retry.Unroutable || d.Cause != retry.NoAddress {
			t.Errorf("%s, without an address: %+v", name, d)
		}
	}
}

// The law of what returns: on any broker, and with processors of any two files, each message gets
// into a tier, a dead-letter queue or the unroutable queue, and comes back at most once for each
// backoff and file on the way, plus once for a tier that retry-after chose, and once for a file
// with another count header than the broker's.
func TestNothingReturnsWithoutEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.SampledFrom([]string{"count", "count", "tries"})
		tiers := rapid.IntRange(0, 4)
		draw := func(label string) topology.Compiled {
			return shop(header.Draw(t, label), map[string]int{"a": tiers.Draw(t, label+", a"), "b": tiers.Draw(t, label+", b")})
		}
		applied := draw("applied")
		files := []topology.Compiled{draw("file 0"), draw("file 1")}
		backoff := rapid.SampledFrom([]string{"a", "b"})
		current := backoff.Draw(t, "current backoff")
		at := backoff.Draw(t, "it is in the failed queue of")
		exchange := rapid.SampledFrom([]string{"shop.failed", "shop.a.dlx", "shop.b.dlx"}).Draw(t, "exchange")
		m := returned(exchange, map[string]any{
			"count": rapid.SampledFrom([]any{
				nil, int64(0), int64(-1), int64(-7), int64(1) << 40, "1", true, int32(1), int32(2), int32(3), int32(4),
			}).Draw(t, "count"),
			"retry-attempts": rapid.SampledFrom([]any{nil, int64(0), int64(1), int64(3), "1"}).Draw(t, "attempts"),
			"retry-after":    rapid.SampledFrom([]any{nil, "1s", "1h"}).Draw(t, "it asks for a wait"),
		})
		if m.Exchange == "shop.failed" {
			m.Key = "@billing"
		}
		returns := 0
		for {
			file := rapid.SampledFrom(files).Draw(t, "the processor has")
			d := rulesOf(file, at).Decide(m, moment(t))
			if d.Outcome == retry.Unroutable {
				break
			}
			b, _ := applied.Backoff(at)
			count, ok := topology.Integer(d.Headers[applied.CountHeader])
			if ok && (count == topology.DeadLetterCount || count > 0 && count <= int64(len(b.Tiers))) {
				break
			}
			returns++
			m = retry.Message{Exchange: d.Exchange, Key: d.Key, Headers: d.Headers}
			at = current
			if returns > 6 {
				t.Fatalf("it returns without end: %+v", m)
			}
		}
		same := !slices.ContainsFunc(files, func(c topology.Compiled) bool { return c.CountHeader != applied.CountHeader })
		if same && returns > 2 {
			t.Fatalf("it returned %d times", returns)
		}
	})
}

// The error of a dead letter that came back says what to do.
func TestADeadLetterThatReturnedIsUnroutable(t *testing.T) {
	t.Parallel()
	m := returned("shop.a.dlx", map[string]any{"count": int32(-1)})
	d := rulesOf(shop("count", map[string]int{"a": 3}), "a").Decide(m, moment(t))
	if d.Outcome != retry.Unroutable || d.Cause != retry.Refused || d.Queue != "billing" || d.Attempts != 2 ||
		!strings.Contains(fmt.Sprint(d.Headers["retry-error"]), "run 'dlxctl apply'") {
		t.Errorf("decided: %+v", d)
	}
}
