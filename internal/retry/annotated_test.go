package retry_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// Annotations are shown of a message that its consumer rejected and of which it says nothing else,
// shortened. Whatever they are, the message goes where it goes without them, with the same headers
// but for its history.
func TestAnnotationsAreShownAndDecideNothing(t *testing.T) {
	t.Parallel()
	died := func(reason string) map[string]any {
		return map[string]any{"x-death": []any{map[string]any{
			"queue": "billing", "reason": reason, "exchange": "events", "routing-keys": []any{"k"},
		}}}
	}
	both := map[string]any{topology.AnnotatedError: "no answer", topology.AnnotatedErrorType: "Timeout"}
	long := strings.Repeat("é", 50_000)
	for name, tc := range map[string]struct {
		exchange string
		headers  map[string]any
		says     map[string]any
		want     retry.Annotated
	}{
		"both": {"shop.failed", died("rejected"), both, retry.Annotated{Error: "no answer", Type: "Timeout"}},
		"as bytes": {
			"shop.failed", died("rejected"),
			map[string]any{topology.AnnotatedError: []byte("no")},
			retry.Annotated{Error: "no"},
		},
		"of other types": {
			"shop.failed", died("rejected"),
			map[string]any{topology.AnnotatedError: int64(1), topology.AnnotatedErrorType: []any{both}},
			retry.Annotated{},
		},
		"long": {
			"shop.failed", died("rejected"),
			map[string]any{topology.AnnotatedError: long, topology.AnnotatedErrorType: long},
			retry.Annotated{Error: long[:1024], Type: long[:200]},
		},
		"without a rejection": {"shop.failed", died("expired"), both, retry.Annotated{}},
		"of a consumer that says more": {
			"shop.failed", map[string]any{"retry-error": "bad row", "retry-routing-key": "k"}, both, retry.Annotated{},
		},
		"of a consumer that publishes a copy": {
			"shop.failed", map[string]any{"retry-routing-key": "k"}, both, retry.Annotated{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decide := func(headers map[string]any) retry.Decision {
				b := topology.Backoff{
					Name: "standard", RetryExchange: "shop.standard.dlx", RetryOn: []topology.Reason{topology.ReasonRejected},
					Tiers: []topology.Tier{{Delay: time.Second, Queue: "shop.standard.retry.1s"}},
				}
				c := topology.Compiled{
					Name: "shop", CountHeader: "count", Backoffs: []topology.Backoff{b},
					WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
				}
				return retry.NewRules(c, b, 0).Decide(retry.Message{
					Exchange: tc.exchange, Key: "@billing", Headers: headers, Size: sizeOf,
				}, time.Unix(0, 0))
			}
			without := decide(tc.headers)
			with := maps.Clone(tc.headers)
			maps.Copy(with, tc.says)
			got := decide(with)
			if got.Annotated != tc.want {
				t.Errorf("shown: %.40q, want %.40q", got.Annotated, tc.want)
			}
			history, _ := got.Headers[topology.HeaderHistory].([]any)
			entry, _ := history[len(history)-1].(map[string]any)
			if kind, _ := entry[topology.HistoryAnnotated].(string); kind != tc.want.Type {
				t.Errorf("the history has %.40q, want %.40q", kind, tc.want.Type)
			}
			for name, v := range tc.says {
				if !reflect.DeepEqual(got.Headers[name], v) {
					t.Errorf("%s is changed", name)
				}
				delete(got.Headers, name)
			}
			delete(got.Headers, topology.HeaderHistory)
			delete(without.Headers, topology.HeaderHistory)
			got.Annotated = retry.Annotated{}
			if d := cmp.Diff(without, got); d != "" {
				t.Errorf("annotations change the decision (-without +with):\n%s", d)
			}
		})
	}
}
