package plan_test

import (
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
