package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue whose node is down is not created: it exists, and the broker does not list it. That
// blocks the plan, whether dlxctl declares the queue or a service does. A successor gets no binding
// while its legacy queue is down.
func TestAQueueWhoseNodeIsDown(t *testing.T) {
	t.Parallel()
	foreign := queue("f", args{"x-queue-type": "classic"})
	foreign.External = true
	want := host(queue("q", args{"x-queue-type": "classic"}), foreign)
	state := topology.State{Version: "4.3.6", Down: []string{"f", "q"}}
	p := plan.Make(want, state, plan.Options{})
	if len(p.Changes) != 2 {
		t.Fatalf("the changes are %v", summarize(p.Changes))
	}
	for _, c := range p.Changes {
		if c.Action != plan.Blocked || !strings.Contains(c.Reason, "the node of the queue is down") {
			t.Errorf("%s %s: %s", c.Action, c.Name, c.Reason)
		}
	}
	want = host(exchange("e", "topic", nil), queue("new", nil), binding("e", "new", "k", nil))
	want.WorkQueues = []topology.WorkQueue{{Name: "new", Replaces: "old"}}
	state = topology.State{Version: "4.3.6", Down: []string{"old"}}
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		if c.Kind == topology.KindBinding {
			t.Errorf("%s %s", c.Action, c.Name)
		}
	}
}

// Nothing is taken away while the node of a queue is down that the file no longer has: its messages
// may need that. Queues of other teams block nothing.
func TestAQueueOfBeforeWhoseNodeIsDown(t *testing.T) {
	t.Parallel()
	had := loaded(t, "version: 1\nname: shop\ndefaults: {type: classic}\nbackoff: {a: {tiers: [1m]}}\nqueues: [{name: mail, backoff: a}]\n")
	for down, blocked := range map[string]bool{
		"shop.a.retry.1m": true, "mail": true, "mail.dead": true, "other": false, "other.dead": false, "": false,
	} {
		state := topology.State{Version: "4.3.6", Have: had.Topology, Down: []string{down}}
		state.Have.Queues = slices.DeleteFunc(slices.Clone(had.Queues), func(q topology.Queue) bool { return q.Name == down })
		p := plan.Make(topology.Compiled{Name: "shop"}, state, plan.Options{})
		err := plan.Check(p, plan.Allow(topology.Hazards()...))
		todo := plan.Allowed(p, plan.Allow(topology.Hazards()...)).Changes
		if errors.Is(err, plan.ErrBlocked) != blocked || blocked != (len(todo) == 0) {
			t.Errorf("%q is down: %v, and %d changes", down, err, len(todo))
		}
	}
}
