package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// What a plan says of a successor whose legacy queue still exists: before the cutover, after it,
// also where the file has other bindings than the legacy queue had, and where there are none.
func TestMigrationPending(t *testing.T) {
	t.Parallel()
	legacy := topology.Queue{Name: "v1", Durable: true, Arguments: args{"x-queue-type": "classic"}}
	bound := "queues: [{name: v2, replaces: v1, bindings: [{exchange: e, keys: [a, b]}]}]\nexchanges: [{name: e}]"
	for name, tc := range map[string]struct {
		file     string
		bindings []topology.Binding
		want     string
	}{
		"before": {
			bound,
			[]topology.Binding{binding("e", "v1", "a", nil)},
			"v2 gets its bindings when v1 is migrated; run dlxctl migrate v1",
		},
		"after": {
			bound,
			[]topology.Binding{binding("e", "v2", "a", nil), binding("e", "v2", "b", nil)},
			"v2 has its bindings, and the legacy queue v1 still exists; run dlxctl migrate v1",
		},
		"after, with fewer bindings than the file": {
			bound,
			[]topology.Binding{binding("e", "v2", "a", nil)},
			"v2 has its bindings, and the legacy queue v1 still exists; run dlxctl migrate v1",
		},
		"without bindings": {
			"queues: [{name: v2, replaces: v1}]", nil,
			"v2 has no bindings, and the legacy queue v1 still exists; run dlxctl migrate v1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := compiled(t, topology.Classic, tc.file)
			state := applied(want, nil)
			keep := state.Have.Bindings[:0:0]
			for _, b := range state.Have.Bindings {
				if b.Source != "e" {
					keep = append(keep, b)
				}
			}
			state.Have.Bindings = append(keep, tc.bindings...)
			state.Have.Queues = append(state.Have.Queues, legacy)
			var got []string
			for _, w := range plan.Make(want, state, plan.Options{}).Warnings {
				if w.Name == "migration-pending" {
					got = append(got, w.Text)
				}
			}
			if d := cmp.Diff([]string{tc.want}, got); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}
