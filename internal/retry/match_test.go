package retry_test

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// The queue of a failure under the address that names none is the one of the broker's record, if
// the file names it, a match covers it, or it exists: a newer file may have the match. The
// dead-letter queue is that of the match.
func TestTheQueueOfAMatch(t *testing.T) {
	t.Parallel()
	b := topology.Backoff{Name: "standard", RetryExchange: "shop.standard.dlx", Tiers: []topology.Tier{{Queue: "tier"}}}
	c := topology.Compiled{
		Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
		Matches: []topology.Match{
			{Pattern: `^svc\.`, Backoff: "standard", DeadLetterQueue: "shop.dead", Owner: "first"},
			{Pattern: "svc", Backoff: "standard", DeadLetterQueue: "other.dead", Owner: "second"},
		},
	}
	rules := retry.NewRules(c, b, 0).Including(func(queue string) bool { return queue != "svc.gone" && queue != "no" })
	death := func(queue string, again bool) map[string]any {
		newest := map[string]any{"queue": queue, "reason": "rejected", "exchange": "e", "routing-keys": []any{"k"}}
		h := map[string]any{"x-last-death-queue": queue, "x-death": []any{newest}}
		if again {
			newest["exchange"] = "shop.return"
			h["x-death"] = []any{newest, map[string]any{"queue": "shop.standard.retry.1s"}}
			h["count"], h["retry-queue"], h["retry-routing-key"] = int64(1), queue, "k"
		}
		return h
	}
	const failed = "shop.failed"
	for name, tc := range map[string]struct {
		exchange, key string
		headers       map[string]any
		outcome       retry.Outcome
		queue, cc     string
		owner         string
	}{
		"covered":            {failed, "@", death("svc.a", false), retry.Retried, "svc.a", "@svc.a", "first"},
		"dead":               {failed, "@", death("svc.a", true), retry.DeadLettered, "svc.a", "@shop.dead", "first"},
		"by the second":      {failed, "@", death("my.svc", true), retry.DeadLettered, "my.svc", "@other.dead", "second"},
		"named":              {failed, "@", death("billing", true), retry.DeadLettered, "billing", "@billing", ""},
		"its own address":    {failed, "@svc.a", death("svc.a", false), retry.Retried, "svc.a", "@svc.a", "first"},
		"of a newer file":    {failed, "@", death("other", false), retry.Retried, "other", "@other", ""},
		"not covered":        {failed, "@", death("no", false), retry.Unroutable, "no", "", ""},
		"gone":               {failed, "@", death("svc.gone", false), retry.Unroutable, "svc.gone", "", "first"},
		"no record":          {failed, "@", map[string]any{"x-last-death-queue": int64(1)}, retry.Unroutable, "", "", ""},
		"another exchange":   {"elsewhere", "@", death("svc.a", false), retry.Unroutable, "", "", ""},
		"a record that lies": {failed, "@billing", death("svc.a", false), retry.Retried, "billing", "@billing", ""},
	} {
		got := rules.Decide(retry.Message{Exchange: tc.exchange, Key: tc.key, Headers: tc.headers}, time.Now())
		cc := ""
		if list, ok := got.Headers["CC"].([]any); ok && len(list) == 1 {
			cc, _ = list[0].(string)
		}
		if got.Key == "@billing" { // the message does not tell the key of its publisher
			cc = got.Key
		}
		owner := rules.WorkQueue(got.Queue).Owner
		if got.Outcome != tc.outcome || got.Queue != tc.queue || cc != tc.cc || owner != tc.owner {
			t.Errorf("%s: %s of %q to %q %q: %s", name, got.Outcome, got.Queue, got.Key, cc, got.Error)
		}
	}
}
