package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A previous dead-letter queue with a name of its own stays while it holds dead letters, also where
// nothing is bound to it any more, and where the name ends like those that dlxctl gives. A work
// queue that nothing tells from one goes by consent if the file lists it under removed, and any
// other one without that.
func TestPreviousDeadLetterQueuesWithNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	const (
		head    = "version: 1\nname: shop\ndefaults: {type: TYPE, backoff: none}\nqueues:\n"
		jobs    = head + "  - {name: billing}\n  - {name: QUEUE, deadLetterBy: unmanaged LIMIT}\n"
		graves  = head + "  - {name: billing, dead: {queue: QUEUE, arguments: {x-max-length: 20000}}}\n"
		highest = ", deliveryLimit: 2147483647"
		goes    = "delete queue QUEUE loses-messages stops-consumers"
		stays   = "the queue QUEUE is no longer declared and is kept until it is empty, as it may be a previous dead-letter queue: 3 messages, 1 consumer; to delete it, empty it and run apply again; if it is a work queue, list it under removed"
	)
	for name, tc := range map[string]struct {
		have, kind, limit string
		removed           string
		want              string
	}{
		"a classic dead-letter queue":           {graves, "classic", "", "", stays},
		"a quorum dead-letter queue":            {graves, "quorum", "", "", stays},
		"a classic work queue":                  {jobs, "classic", "", "", stays},
		"a classic work queue, removed":         {jobs, "classic", "", "removed: [QUEUE]\n", goes},
		"a work queue without a limit":          {jobs, "quorum", highest, "", stays},
		"a work queue without a limit, removed": {jobs, "quorum", highest, "removed: [QUEUE]\n", goes},
		"a work queue with a limit":             {jobs, "quorum", ", deliveryLimit: 20", "", goes},
		"a quorum work queue":                   {jobs, "quorum", "", "", goes},
	} {
		for _, queue := range []string{"q", "x.dead"} {
			t.Run(name+" "+queue, func(t *testing.T) {
				t.Parallel()
				of := strings.NewReplacer("TYPE", tc.kind, " LIMIT", tc.limit, "QUEUE", queue)
				have := loaded(t, of.Replace(tc.have))
				have.Bindings = slices.DeleteFunc(have.Bindings, func(b topology.Binding) bool { return b.Destination == queue })
				state := topology.State{Version: "4.3.6", Have: have.Topology, Usage: map[string]topology.Usage{
					queue: {Ready: 3, Consumers: 1},
				}}
				p := plan.Make(loaded(t, of.Replace(head+"  - {name: billing}\n"+tc.removed)), state, plan.Options{})
				got := summarize(p.Changes)
				for _, w := range p.Warnings {
					if w.Name == topology.WarnRetiredDeadLetters {
						got = append(got, w.Text)
					}
				}
				if !slices.Contains(got, of.Replace(tc.want)) || slices.Contains(p.RetiringDead, queue) != (tc.want == stays) {
					t.Errorf("the plan is %q, retiring %v", got, p.RetiringDead)
				}
			})
		}
	}
}

// The apply that unbinds a previous dead-letter queue leaves it to a later one, also if it is
// empty, has a name like an own dead-letter queue, or is listed under removed by the same change.
func TestPreviousDeadLetterQueueIsLeftToLater(t *testing.T) {
	t.Parallel()
	const file = "version: 1\nname: shop\ndefaults: {backoff: none, dead: DEAD}\nqueues: [{name: billing}]\n"
	for name, queue := range map[string]string{"graves": "graves", "like an own one": "payments.dead"} {
		for _, removed := range []string{"", "removed: [" + queue + "]\n"} {
			t.Run(name+" "+removed, func(t *testing.T) {
				t.Parallel()
				before := loaded(t, strings.Replace(file, "DEAD", "{queue: "+queue+"}", 1))
				want := loaded(t, strings.Replace(file, "DEAD", "own", 1)+removed)
				done := plan.Make(want, topology.State{Version: "4.3.6", Have: before.Topology}, plan.Options{})
				have := want.Topology // as done leaves it
				i := slices.IndexFunc(before.Queues, func(q topology.Queue) bool { return q.Name == queue })
				have.Queues = append(slices.Clone(have.Queues), before.Queues[i])
				left := plan.Later(done, plan.Make(want, topology.State{Version: "4.3.6", Have: have}, plan.Options{}))
				if !left.Empty() || !slices.Equal(left.RetiringDead, []string{queue}) {
					t.Errorf("left are %q, retiring %v", summarize(left.Changes), left.RetiringDead)
				}
			})
		}
	}
}
