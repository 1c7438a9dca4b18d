package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// What a plan says of a successor whose legacy queue still exists, and what it binds: nothing until
// the end of the cutover. Then no message goes to the legacy queue, and it binds what is missing.
func TestMigrationPending(t *testing.T) {
	t.Parallel()
	legacy := topology.Queue{Name: "v1", Durable: true, Arguments: args{"x-queue-type": "classic"}}
	bound := "queues: [{name: v2, replaces: v1, bindings: [{exchange: e, keys: [a, b]}]}]\nexchanges: [{name: e}]"
	const before = "v2 gets its bindings when v1 is migrated; let a service consume v2, then run dlxctl migrate v1"
	const after = "messages go to v2, and the legacy queue v1 still exists; run dlxctl migrate v1"
	for name, tc := range map[string]struct {
		file     string
		bindings []topology.Binding
		switched bool // the switch exchange exists
		down     bool // the node of the legacy queue is down
		want     string
		changes  []string
		withheld int // bindings that wait
	}{
		"before": {
			file: bound, bindings: []topology.Binding{binding("e", "v1", "a", nil)}, want: before, withheld: 2,
		},
		"in the cutover": {
			file: bound, bindings: []topology.Binding{binding("e", "v2", "a", nil)}, switched: true, want: before,
			withheld: 1,
		},
		"after": {
			file: bound, want: after,
			bindings: []topology.Binding{binding("e", "v2", "a", nil), binding("e", "v2", "b", nil)},
		},
		"after, with a new binding in the file": {
			file: bound, bindings: []topology.Binding{binding("e", "v2", "a", nil)}, want: after,
			changes: []string{"create binding e -> v2 (b)"},
		},
		"after, with a new binding in the file and a legacy queue that was bound again": {
			file: bound, want: before, withheld: 1,
			bindings: []topology.Binding{binding("e", "v2", "a", nil), binding("e", "v1", "a", nil)},
		},
		"after, with a new binding in the file and a legacy queue whose node is down": {
			file: bound, bindings: []topology.Binding{binding("e", "v2", "a", nil)}, down: true, want: before,
			withheld: 1,
		},
		"without bindings": {
			file: "queues: [{name: v2, replaces: v1}]",
			want: "v2 has no bindings, and the legacy queue v1 still exists; run dlxctl migrate v1",
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
			if tc.down {
				state.Down = []string{"v1"}
			} else {
				state.Have.Queues = append(state.Have.Queues, legacy)
			}
			if tc.switched {
				state.Have.Exchanges = append(state.Have.Exchanges, exchange(topology.SwitchExchangeName("shop", "v1"), "fanout",
					args{"x-managed-by": "dlxctl/shop"}))
			}
			p := plan.Make(want, state, plan.Options{})
			if d := cmp.Diff(tc.changes, summarize(p.Changes)); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if n := len(p.Withheld); n != tc.withheld {
				t.Errorf("%d bindings wait", n)
			}
			var got []string
			for _, w := range p.Warnings {
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

// A key that the file moves to a successor before the cutover has no queue until migrate binds it,
// and the deletion of its binding says so.
func TestAKeyMovesToASuccessor(t *testing.T) {
	t.Parallel()
	const file = "exchanges: [{name: e}]\nqueues: [{name: ledger%s}, {name: v2, replaces: v1%s}]"
	before := compiled(t, topology.Quorum, fmt.Sprintf(file, ", bindings: [{exchange: e, keys: [a, b]}]", ""))
	state := applied(before, nil)
	state.Have.Queues = append(state.Have.Queues, topology.Queue{Name: "v1", Durable: true})
	after := compiled(t, topology.Quorum,
		fmt.Sprintf(file, ", bindings: [{exchange: e, key: a}]", ", bindings: [{exchange: e, key: b}]"))
	var got []string
	for _, c := range plan.Make(after, state, plan.Options{}).Changes {
		if c.Action == plan.Delete {
			got = append(got, c.Reason)
		}
	}
	if len(got) != 1 || !strings.HasSuffix(got[0], "; v2 gets these messages only from 'dlxctl migrate'") {
		t.Errorf("deleted is, because %q", got)
	}
}
