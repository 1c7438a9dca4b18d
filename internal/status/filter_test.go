package status_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/status"
	"github.com/dlxctl/dlxctl/topology"
)

// Of the queues that do not exist, those that the filter chooses are named. None is said only if
// the filter leaves out no queue.
func TestMissingQueues(t *testing.T) {
	t.Parallel()
	top := shop(t)
	audit := status.Filter{Queues: []string{"audit"}}
	for name, tc := range map[string]struct {
		missing []string // nil: all
		filter  status.Filter
		text    string
	}{
		"all":             {nil, status.Filter{}, "none of the 9 queues of the file exists"},
		"all, one family": {nil, audit, "these queues of the file do not exist: audit and shop.dead"},
		"one family": {
			[]string{"audit", "shop.dead"}, audit, "these queues of the file do not exist: audit and shop.dead",
		},
		"one queue":             {[]string{"audit"}, status.Filter{}, "the queue audit does not exist"},
		"one queue, one family": {[]string{"audit"}, audit, "the queue audit does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := top.Topology
			have.Queues = slices.DeleteFunc(slices.Clone(have.Queues), func(q topology.Queue) bool {
				return tc.missing == nil || slices.Contains(tc.missing, q.Name)
			})
			state := topology.State{Version: "4.0.5", Have: have}
			text := ""
			for _, p := range status.Make(top, state, status.Options{Filter: tc.filter}).Problems {
				if p.Name == "not-applied" {
					text = p.Text
				}
			}
			if d := cmp.Diff(tc.text, text); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
