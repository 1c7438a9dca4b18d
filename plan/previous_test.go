package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A previous dead-letter queue with a name of its own stays while it holds dead letters, also where
// nothing is bound to it any more. A work queue that nothing tells from one goes by consent if the
// file lists it under removed, and any other one without that.
func TestPreviousDeadLetterQueuesWithNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	const (
		head    = "version: 1\nname: shop\ndefaults: {type: TYPE, backoff: none}\nqueues:\n"
		jobs    = head + "  - {name: billing}\n  - {name: q, deadLetterBy: unmanaged LIMIT}\n"
		graves  = head + "  - {name: billing, dead: {queue: q, arguments: {x-max-length: 20000}}}\n"
		highest = ", deliveryLimit: 2147483647"
		goes    = "delete queue q loses-messages stops-consumers"
		stays   = "the queue q is no longer declared and is kept until it is empty, as it may be a previous dead-letter queue: 3 messages, 1 consumer; to delete it, empty it and run apply again; if it is a work queue, list it under removed"
	)
	for name, tc := range map[string]struct {
		have, kind, limit string
		removed           string
		want              string
	}{
		"a classic dead-letter queue":           {graves, "classic", "", "", stays},
		"a quorum dead-letter queue":            {graves, "quorum", "", "", stays},
		"a classic work queue":                  {jobs, "classic", "", "", stays},
		"a classic work queue, removed":         {jobs, "classic", "", "removed: [q]\n", goes},
		"a work queue without a limit":          {jobs, "quorum", highest, "", stays},
		"a work queue without a limit, removed": {jobs, "quorum", highest, "removed: [q]\n", goes},
		"a work queue with a limit":             {jobs, "quorum", ", deliveryLimit: 20", "", goes},
		"a quorum work queue":                   {jobs, "quorum", "", "", goes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := strings.NewReplacer("TYPE", tc.kind, " LIMIT", tc.limit)
			have := loaded(t, of.Replace(tc.have))
			have.Bindings = slices.DeleteFunc(have.Bindings, func(b topology.Binding) bool { return b.Destination == "q" })
			state := topology.State{Version: "4.3.6", Have: have.Topology, Usage: map[string]topology.Usage{
				"q": {Ready: 3, Consumers: 1},
			}}
			p := plan.Make(loaded(t, of.Replace(head)+"  - {name: billing}\n"+tc.removed), state, plan.Options{})
			got := summarize(p.Changes)
			for _, w := range p.Warnings {
				if w.Name == topology.WarnRetiredDeadLetters {
					got = append(got, w.Text)
				}
			}
			if !slices.Contains(got, tc.want) || slices.Contains(p.RetiringDead, "q") != (tc.want == stays) {
				t.Errorf("the plan is %q, retiring %v", got, p.RetiringDead)
			}
		})
	}
}
