package retry_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// A message that a person pulls is a dead letter without another attempt. What a processor noted
// stays, and what a publisher wrote under these names does not.
func TestPull(t *testing.T) {
	t.Parallel()
	c := elsewhere(1, 2, topology.WorkQueue{Name: "billing", Backoff: "a"})
	for name, tc := range map[string]struct {
		message retry.Message
		want    map[string]any
	}{
		"never failed, with forged headers": {
			retry.Message{Exchange: "events", Key: "order.placed", UserID: "ann", Expiration: "1000", Headers: map[string]any{
				"mine": "1", "retry-attempts": int64(7), "retry-error": "forged", "retry-error-type": "forged", "retry-after": "1h",
				"count": int64(5), "CC": []any{"also"}, "x-delivery-count": int64(2),
			}},
			map[string]any{
				"mine": "1", "retry-attempts": int64(0), "retry-error": "pulled by ann", "retry-original-count": int64(5),
				"retry-exchange": "events", "retry-routing-key": "order.placed", "retry-first-failed-at": now,
				"retry-user-id": "ann", "retry-expiration": "1000", "retry-cc": []any{"also"},
			},
		},
		"retried once": {
			retry.Message{Exchange: "shop.return", Key: "order.placed", Headers: map[string]any{
				"retry-queue": "billing", "retry-attempts": int64(1), "count": int64(1), "retry-error": "timeout",
				"retry-error-type": "Timeout", "retry-exchange": "events", "retry-routing-key": "order.placed",
				"retry-first-failed-at": "2026-01-01T00:00:00.000Z", "retry-last-failed-at": "2026-01-01T00:00:00.000Z",
				"retry-history": []any{map[string]any{"attempt": int64(1), "reason": "rejected"}}, "CC": []any{"@billing"},
				"x-death": []any{map[string]any{"queue": "shop.a.retry.1s", "reason": "expired", "exchange": "shop.a.dlx"}},
			}},
			map[string]any{
				"retry-attempts": int64(1), "retry-error": "pulled by ann; before that: timeout", "retry-error-type": "Timeout",
				"retry-exchange": "events", "retry-routing-key": "order.placed",
				"retry-first-failed-at": "2026-01-01T00:00:00.000Z",
				"retry-history":         []any{map[string]any{"attempt": int64(1), "reason": "rejected"}},
			},
		},
	} {
		got := rulesOf(c, "a").Pull(tc.message, "billing", "pulled by ann", moment(t))
		maps.Copy(tc.want, map[string]any{
			"retry-queue": "billing", "retry-reason": "pulled", "count": int32(-1), "CC": []any{"@billing"},
			"retry-last-failed-at": now,
		})
		if d := cmp.Diff(tc.want, got.Headers); d != "" || got.Outcome != retry.DeadLettered || got.Key != "order.placed" {
			t.Errorf("%s: %s to %s, headers (-want +got):\n%s", name, got.Outcome, got.Key, d)
		}
	}
}

// Where no processor counts, a pull writes no count and no address, and takes what the broker notes
// of a message that came back to its queue. Undo gives the message back as it was, with the
// publisher's own header count, whether the desk that undoes it knows a count header or not.
func TestPullWithoutACountHeader(t *testing.T) {
	t.Parallel()
	c := topology.Compiled{Name: "desk", WorkQueues: []topology.WorkQueue{{Name: "billing"}}}
	death := map[string]any{
		"queue": "billing", "reason": "rejected", "exchange": "events", "routing-keys": []any{"order.placed"},
	}
	got := retry.NewRules(c, topology.Backoff{}, 0).Pull(retry.Message{Key: "billing", Headers: map[string]any{
		"mine": "1", "count": int64(5), "retry-error": "forged", "x-death": []any{death},
	}}, "billing", "pulled by ann", moment(t))
	want := map[string]any{
		"mine": "1", "count": int64(5), "retry-attempts": int64(0), "retry-error": "pulled by ann",
		"retry-exchange": "events", "retry-routing-key": "order.placed", "retry-first-failed-at": now,
		"retry-last-failed-at": now, "retry-queue": "billing", "retry-reason": "pulled",
	}
	if d := cmp.Diff(want, got.Headers); d != "" || got.Outcome != retry.DeadLettered {
		t.Errorf("%s, headers (-want +got):\n%s", got.Outcome, d)
	}
	for _, countHeader := range []string{"", "count"} {
		back := retry.Undo(got.Headers, countHeader).Headers
		if d := cmp.Diff(map[string]any{"mine": "1", "count": int64(5)}, back); d != "" {
			t.Errorf("undone with the count header %q (-want +got):\n%s", countHeader, d)
		}
	}
}
