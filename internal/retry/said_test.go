package retry_test

import (
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
		Tiers: []topology.Tier{{Delay: time.Second, Queue: "shop.standard.retry.1s"}},
	}
	c := topology.Compiled{
		Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
	}
	m := retry.Message{Exchange: "shop.failed", Key: "@billing", Headers: headers, Size: func(h map[string]any) int {
		size := 0
		for name, v := range h {
			text, _ := v.(string)
			size += len(name) + len(text) + 10
		}
		return size
	}}
	return retry.NewRules(c, b, frame).Decide(m, time.Unix(0, 0))
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

// Values of another type say nothing. A failure of which nothing is said has no known reason.
func TestWhatIsSaidHasItsType(t *testing.T) {
	t.Parallel()
	for _, v := range []any{nil, false, int64(1), 2.5, []any{"a"}, map[string]any{"a": "b"}, time.Unix(0, 0), ""} {
		got := said(0, map[string]any{
			"retry-error": v, "retry-error-type": v, "retry-error-stack": v, "retry-permanent": v, "retry-routing-key": v,
		})
		if got.Outcome != retry.Retried || got.Reason != topology.ReasonUnknown || got.Said != (retry.Said{}) {
			t.Errorf("%v (%T): %s, %s, %+v", v, v, got.Outcome, got.Reason, got.Said)
		}
		for _, name := range []string{"retry-error", "retry-error-type", "retry-error-stack", "retry-permanent"} {
			if kept, ok := got.Headers[name]; ok {
				t.Errorf("%v (%T): %s is kept as %v", v, v, name, kept)
			}
		}
	}
	if got := said(0, map[string]any{"retry-permanent": true}); got.Outcome != retry.DeadLettered || got.Reason != topology.ReasonPermanent {
		t.Errorf("permanent: %s, %s", got.Outcome, got.Reason)
	}
}

// In the unroutable queue the processor's reason comes first, and what the consumer said after it.
func TestWhatIsSaidOfAnUnroutableMessage(t *testing.T) {
	t.Parallel()
	got := said(2_600, map[string]any{"retry-error": "no answer", "retry-error-type": "T", "mine": strings.Repeat("m", 500)})
	text, _ := got.Headers["retry-error"].(string)
	if _, kind := got.Headers["retry-error-type"]; got.Outcome != retry.Unroutable || kind ||
		!strings.HasSuffix(text, "; the consumer said: no answer") {
		t.Errorf("%s with %q and the headers %v", got.Outcome, text, got.Headers)
	}
}
