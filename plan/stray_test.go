package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// What a plan says of a migration that is cut over, and that the file does not have: it keeps the
// successor, to which all messages go, with its bindings and the way of its failures.
func TestStrayMove(t *testing.T) {
	t.Parallel()
	const stray = "the migration of v1 to v2 has begun and not ended; run 'dlxctl migrate abort', or 'dlxctl migrate', with the file in which v2 has replaces: v1"
	events := "exchanges: [{name: e}]"
	v2 := compiled(t, topology.Quorum, events, "queues: [{name: v2, replaces: v1, bindings: [{exchange: e, key: a}]}, {name: other}]")
	end := binding(topology.SuccessorEndName("shop", "v1"), "v2", "", args{"x-managed-by": "dlxctl/shop"})
	for name, tc := range map[string]struct {
		queues  string
		ended   bool
		blocked []string // the reasons
		warned  []string
	}{
		"in the file":      {queues: "{name: v2, replaces: v1, bindings: [{exchange: e, key: a}]}, {name: other}"},
		"ended":            {queues: "{name: other}", ended: true},
		"reverted":         {queues: "{name: other}", blocked: []string{stray}},
		"reverted, to v1":  {queues: "{name: v1, bindings: [{exchange: e, key: a}]}, {name: other}", blocked: []string{stray}},
		"replaces removed": {queues: "{name: v2, bindings: [{exchange: e, key: a}]}, {name: other}", warned: []string{stray}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := applied(v2, nil)
			state.Have.Queues = append(state.Have.Queues, queue("v1", nil))
			if !tc.ended {
				state.Have.Bindings = append(slices.Clone(state.Have.Bindings), end)
			}
			p := plan.Make(compiled(t, topology.Quorum, events, "queues: ["+tc.queues+"]"), state, plan.Options{})
			var blocked, warned []string
			for _, c := range p.Changes {
				if c.Action == plan.Blocked {
					blocked = append(blocked, c.Reason)
				}
			}
			for _, w := range p.Warnings {
				if w.Name == topology.WarnMigrationPending && w.Text == stray {
					warned = append(warned, w.Text)
				}
			}
			if d := cmp.Diff([][]string{tc.blocked, tc.warned}, [][]string{blocked, warned}); d != "" {
				t.Errorf("blocked and warned (-want +got):\n%s", d)
			}
			for _, c := range plan.Allowed(p, plan.Allow(topology.Hazards()...)).Changes {
				b, _ := c.Object().(topology.Binding)
				takes := c.Action == plan.Delete && strings.Contains(b.Key+b.Destination, "v2")
				if len(tc.blocked) > 0 && (takes || b.Source == "e") {
					t.Errorf("next to the blocked change it carries out %s", summarize([]plan.Change{c}))
				}
			}
		})
	}
}
