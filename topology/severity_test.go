package topology_test

import (
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

func TestTheWorstSeverityOfAWorkQueue(t *testing.T) {
	t.Parallel()
	rules := func(severities ...string) (out []topology.SeverityRule) {
		for _, s := range severities {
			out = append(out, topology.SeverityRule{Key: "#", Severity: s})
		}
		return out
	}
	for name, tc := range map[string]struct {
		queue topology.WorkQueue
		all   []string
		worst string
	}{
		"none": {topology.WorkQueue{}, nil, ""},
		"one":  {topology.WorkQueue{Severity: "info"}, []string{"info"}, "info"},
		"a worse rule": {
			topology.WorkQueue{Severity: "ticket", SeverityRules: rules("info", "page")},
			[]string{"page", "ticket", "info"},
			"page",
		},
		"milder rules": {
			topology.WorkQueue{Severity: "ticket", SeverityRules: rules("info", "info")},
			[]string{"ticket", "info"},
			"ticket",
		},
	} {
		if got := tc.queue.Severities(); !slices.Equal(got, tc.all) || tc.queue.WorstSeverity() != tc.worst {
			t.Errorf("%s: %v, the worst %q", name, got, tc.queue.WorstSeverity())
		}
	}
}
