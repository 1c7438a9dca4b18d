package retry_test

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// said returns what becomes of a message that a consumer of billing published to the exchange for
// failures, with some headers.
func said(frame int, headers map[string]any) retry.Decision {
	b := topology.Backoff{
		Name: "standard", RetryExchange: "shop.standard.dlx", RetryOn: []topology.Reason{topology.ReasonRejected},
		RetryUntil: time.Hour, Tiers: []topology.Tier{{Delay: time.Second, Queue: "shop.standard.retry.1s"}},
	}
	c := topology.Compiled{
		Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
	}
	m := retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: headers, Size: sizeOf}
	return retry.NewRules(c, b, frame).Decide(m, time.Unix(0, 0))
}

// sizeOf returns about how large headers are.
func sizeOf(v map[string]any) int {
	size := 0
	for name, v := range v {
		size += len(name) + 10
		switch v := v.(type) {
		case string:
			size += len(v)
		case []any:
			for _, e := range v {
				entry, _ := e.(map[string]any)
				size += 5 + sizeOf(entry)
			}
		}
	}
	return size
}

// What a consumer says is shortened, and never in the middle of a character.
func TestWhatIsSaidIsShortened(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 50_000)
	got := said(0, map[string]any{"retry-error": "x" + long, "retry-error-type": long, "retry-error-stack": []byte(long)})
	for name, want := range map[string]int{"retry-error": 1023, "retry-error-type": 200, "retry-error-stack": 8192} {
		text, _ := got.Headers[name].(string)
		if len(text) != want || !utf8.ValidString(text) {
			t.Errorf("%s has %d bytes, want %d", name, len(text), want)
		}
	}
	if got.Outcome != retry.Retried || got.Reason != topology.ReasonRejected {
		t.Errorf("%s, %s", got.Outcome, got.Reason)
	}
}

// A copy that says nothing is as good as a rejection, where the message shows that its consumer
// published it: by the exchange of failures, without a death that the broker has written since.
func TestACopyThatSaysNothing(t *testing.T) {
	t.Parallel()
	died := func(queue string) []any { return []any{map[string]any{"queue": queue, "reason": "expired"}} }
	for name, tc := range map[string]struct {
		exchange string
		deaths   any
		reason   topology.Reason
		outcome  retry.Outcome
	}{
		"on its first attempt": {"shop.failed", nil, topology.ReasonRejected, retry.DeadLettered},
		"on a retry": {
			"shop.failed", died("shop.standard.retry.1s"), topology.ReasonRejected, retry.DeadLettered,
		},
		"by the broker":             {"shop.failed", died("billing"), topology.ReasonExpired, retry.DeadLettered},
		"by the broker, of another": {"shop.failed", died("elsewhere"), topology.ReasonUnknown, retry.Retried},
		"to the failed queue":       {"", nil, topology.ReasonUnknown, retry.Retried},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := topology.Backoff{
				Name: "standard", RetryExchange: "shop.standard.dlx", RetryOn: []topology.Reason{topology.ReasonDeliveryLimit},
				Tiers: []topology.Tier{{Delay: time.Second, Queue: "shop.standard.retry.1s"}},
			}
			c := topology.Compiled{
				Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
				WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
			}
			m := retry.Message{Exchange: tc.exchange, Key: "@billing", Headers: map[string]any{"x-death": tc.deaths}}
			got := retry.NewRules(c, b, 0).Decide(m, time.Unix(0, 0))
			if got.Reason != tc.reason || got.Outcome != tc.outcome {
				t.Errorf("%s, %s", got.Outcome, got.Reason)
			}
		})
	}
}

// What does not fit in a frame costs what was said, and not the attempts.
func TestWhatIsSaidGivesWay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		frame        int
		stack, error bool
	}{{20_000, true, true}, {10_000, false, true}, {3_300, false, false}} {
		got := said(tc.frame, map[string]any{
			"retry-error": strings.Repeat("e", 1000), "retry-error-type": "T", "retry-error-stack": strings.Repeat("s", 8000),
		})
		_, stack := got.Headers["retry-error-stack"]
		_, text := got.Headers["retry-error"]
		if got.Outcome != retry.Retried || stack != tc.stack || text != tc.error || got.Headers["retry-error-type"] != "T" {
			t.Errorf("frame %d: %s with the stack %t and the error %t", tc.frame, got.Outcome, stack, text)
		}
	}
}

// Values of another type say nothing: the message is as good as rejected.
func TestWhatIsSaidHasItsType(t *testing.T) {
	t.Parallel()
	for _, v := range []any{nil, false, int64(1), 2.5, []any{"a"}, map[string]any{"a": "b"}, time.Unix(0, 0), ""} {
		got := said(0, map[string]any{
			"retry-error": v, "retry-error-type": v, "retry-error-stack": v, "retry-permanent": v, "retry-routing-key": v,
		})
		if got.Outcome != retry.Retried || got.Reason != topology.ReasonRejected || got.Said != (retry.Said{}) {
			t.Errorf("%v (%T): %s, %s, %+v", v, v, got.Outcome, got.Reason, got.Said)
		}
		for _, name := range []string{"retry-error", "retry-error-type", "retry-error-stack", "retry-permanent"} {
			if kept, ok := got.Headers[name]; ok {
				t.Errorf("%v (%T): %s is kept as %v", v, v, name, kept)
			}
		}
	}
	got := said(0, map[string]any{"retry-permanent": true})
	if got.Outcome != retry.DeadLettered || got.Reason != topology.ReasonPermanent {
		t.Errorf("permanent: %s, %s", got.Outcome, got.Reason)
	}
}

// In the unroutable queue the processor's reason comes first, and what the consumer said after it.
func TestWhatIsSaidOfAnUnroutableMessage(t *testing.T) {
	t.Parallel()
	got := said(2_600, map[string]any{
		"retry-error": "no answer", "retry-error-type": "T", "mine": strings.Repeat("m", 500),
	})
	text, _ := got.Headers["retry-error"].(string)
	if _, kind := got.Headers["retry-error-type"]; got.Outcome != retry.Unroutable || kind ||
		!strings.HasSuffix(text, "; the consumer said: no answer") {
		t.Errorf("%s with %q and the headers %v", got.Outcome, text, got.Headers)
	}
}

// asking returns what becomes of a message that failed before, with so many attempts, and for the
// first time so long ago, whose consumer asks for a wait.
func asking(after any, attempts int64, ago time.Duration) retry.Decision {
	b := topology.Backoff{
		Name: "standard", RetryExchange: "shop.standard.dlx", RetryUntil: time.Hour,
		Tiers: []topology.Tier{
			{Delay: 10 * time.Second, Queue: "shop.standard.retry.10s"},
			{Delay: time.Minute, Queue: "shop.standard.retry.1m"},
			{Delay: 30 * time.Second, Queue: "shop.standard.retry.30s"},
		},
	}
	c := topology.Compiled{
		Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
	}
	now := time.Unix(1_000_000, 0)
	h := map[string]any{"retry-after": after}
	if attempts >= 0 {
		h["x-death"] = []any{map[string]any{"queue": "shop.standard.retry.1m", "reason": "expired"}}
		h["count"], h["retry-attempts"], h["retry-queue"] = int32(2), attempts, "billing"
		h["retry-first-failed-at"] = now.Add(-ago).UTC().Format(topology.HeaderTime)
	}
	return retry.NewRules(c, b, 0).Decide(retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: h}, now)
}

// Short tiers do not go round at full speed: each wait is an attempt.
func TestShortWaitsAreAttempts(t *testing.T) {
	t.Parallel()
	if got := said(0, map[string]any{"retry-after": "5m"}); got.Headers["retry-attempts"] != int64(0) {
		t.Errorf("after a tier of a second: %v", got.Headers)
	}
	for _, delay := range []time.Duration{0, 999 * time.Millisecond} {
		b := topology.Backoff{
			Name: "standard", RetryExchange: "shop.standard.dlx", RetryUntil: time.Hour, Tiers: []topology.Tier{{Delay: delay}},
		}
		c := topology.Compiled{
			Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
			WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
		}
		m := retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: map[string]any{"retry-after": "5m"}}
		if got := retry.NewRules(c, b, 0).Decide(m, time.Now()); got.Headers["retry-attempts"] != int64(1) {
			t.Errorf("after a tier of %s: %v", delay, got.Headers)
		}
	}
}

// A wait that a consumer asks for is the shortest tier that is long enough, and an attempt. A wait
// that no tier is long enough for is the longest, and no attempt, until retryUntil. What is no
// wait is kept, and the message waits as after a rejection.
func TestAConsumerAsksForAWait(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after    any
		attempts int64 // before; -1: it never failed
		ago      time.Duration
		count    int32
		counted  int64
		unread   string
	}{
		"seconds":                       {int32(25), -1, 0, 3, 1, ""},
		"seconds as a text":             {"25", -1, 0, 3, 1, ""},
		"a text with units":             {"30s", -1, 0, 3, 1, ""},
		"as long as a tier":             {int64(60), -1, 0, 2, 1, ""},
		"less than any":                 {uint8(1), 2, time.Minute, 1, 3, ""},
		"longer than any":               {"5m", -1, 0, 2, 0, ""},
		"longer than any, again":        {"4m30s", 0, time.Minute, 2, 0, ""},
		"longer than any, later":        {"5m", 1, 59 * time.Minute, 2, 1, ""},
		"longer than any, too late":     {"5m", 1, time.Hour, 2, 2, ""},
		"longer than can be counted":    {"99999999999999999999", -1, 0, 2, 0, ""},
		"negative":                      {int64(-5), -1, 0, 1, 1, "-5"},
		"no time":                       {"soon", -1, 0, 1, 1, "soon"},
		"a part":                        {10.5, -1, 0, 3, 1, ""},
		"no number":                     {math.NaN(), -1, 0, 1, 1, "NaN"},
		"a list":                        {[]any{int32(25)}, -1, 0, 1, 1, "[25]"},
		"no attempt is left":            {"10s", 3, time.Minute, -1, 4, ""},
		"no attempt is left for longer": {"5m", 3, time.Minute, -1, 4, ""},
		"days":                          {"1d", -1, 0, 2, 0, ""},
		"days and hours":                {" 0.5d12h ", -1, 0, 2, 0, ""},
		"a part of a millisecond":       {"29.9999s", -1, 0, 3, 1, ""},
		"an unknown unit":               {"5 minutes", -1, 0, 1, 1, "5 minutes"},
		"nothing":                       {"", -1, 0, 1, 1, ""},
		"an unknown unit, at last":      {[]byte("1w"), 3, time.Minute, -1, 4, "1w"},
		"a long text":                   {strings.Repeat("é", 200), -1, 0, 1, 1, strings.Repeat("é", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := asking(tc.after, tc.attempts, tc.ago)
			kept, _ := got.Headers["retry-after"].(string)
			if got.Headers["count"] != tc.count || got.Headers["retry-attempts"] != tc.counted || kept != tc.unread ||
				got.Said.Unread != tc.unread {
				t.Errorf("%s with the headers %v, want count %d and %d attempts", got.Outcome, got.Headers, tc.count, tc.counted)
			}
		})
	}
}

// A message that came by the exchange NAME.return and says where its publisher sent it has failed
// there, also if a desk has sent it. From another exchange its publisher may have written that.
func TestWherePublishersSentWhatADeskSent(t *testing.T) {
	t.Parallel()
	c := elsewhere(1, 2, topology.WorkQueue{Name: "billing", Backoff: "a"})
	for _, tc := range []struct{ by, exchange, key string }{
		{"shop.return", "events", "order.placed"}, {"orders", "orders", "k"},
	} {
		h := map[string]any{"retry-exchange": "events", "retry-routing-key": "order.placed", "desk-run": "r1"}
		m := retry.Message{Exchange: tc.by, Key: "k", Headers: maps.Clone(h)}
		pulled := rulesOf(c, "a").Pull(m, "billing", "", moment(t))
		h["x-death"] = []any{map[string]any{
			"queue": "billing", "reason": "rejected", "exchange": tc.by, "routing-keys": []any{"k", "@billing"},
		}}
		failed := rulesOf(c, "a").Decide(retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: h}, moment(t))
		for _, got := range []retry.Decision{failed, pulled} {
			if got.Headers["retry-exchange"] != tc.exchange || got.Headers["retry-routing-key"] != tc.key || got.Key != tc.key {
				t.Errorf("by %s: %s, %v", tc.by, got.Key, got.Headers)
			}
		}
	}
}
