package management_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A policy may have any number as its priority, also one that is not an int64.
func TestInspectPriorities(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	want := map[string]int64{
		"999999999": 999999999, "-5": -5, "1.5": 2, "-1.5": -1, "1e3": 1000, "0.0": 0,
		"9223372036854775807": math.MaxInt64, "9223372036854775808": math.MaxInt64, "1e30": math.MaxInt64,
		"-1e30": math.MinInt64,
	}
	for p := range want {
		target.Call(t, http.MethodPut, "policies/"+url.PathEscape(target.VHost)+"/p"+p, map[string]any{
			"pattern": "^x$", "apply-to": "queues", "priority": json.Number(p), "definition": map[string]any{"max-length": 5},
		})
	}
	got := map[string]int64{}
	for _, p := range inspect(t, manage(t, target)).Policies {
		got[p.Name[1:]] = p.Priority
	}
	for p, n := range want {
		if got[p] != n {
			t.Errorf("the priority %s is read as %d, not %d", p, got[p], n)
		}
	}
}
