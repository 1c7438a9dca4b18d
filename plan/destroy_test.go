package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// What the desk keeps goes with the topology: parked messages by consent, and never the hold of a
// run, whatever is allowed.
func TestDestroyAndTheDesk(t *testing.T) {
	t.Parallel()
	queue := func(name string) topology.Queue {
		return topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{
			topology.ArgQueueType: topology.Quorum, topology.ArgManagedBy: topology.DeskMark("shop"),
		}}
	}
	parked, hold := topology.ParkedName("shop"), topology.HoldName("shop", "r1")
	want := plan.Nothing(topology.Compiled{Name: "shop", VHost: "v"})
	state := topology.State{
		Version: "4.0.5", Have: topology.Topology{Queues: []topology.Queue{queue(parked)}},
		Usage: map[string]topology.Usage{parked: {Ready: 3}},
	}
	o := plan.Options{Destroy: true}
	p := plan.Make(want, state, o)
	if len(p.Changes) != 1 || p.Changes[0].Name != parked || p.Changes[0].Action != plan.Delete {
		t.Fatalf("the plan is %+v", p.Changes)
	}
	err := plan.Check(p, nil)
	if !errors.Is(err, plan.ErrHazard) || !strings.Contains(err.Error(), "loses-messages="+parked) {
		t.Errorf("parked messages need consent: %v", err)
	}
	if err := plan.Check(p, plan.Allow(topology.LosesMessages)); err != nil {
		t.Error(err)
	}
	if p := plan.Make(want, state, plan.Options{}); !p.Empty() {
		t.Errorf("only destroy deletes parked messages: %+v", p.Changes)
	}

	state.Have.Queues = append(state.Have.Queues, queue(hold))
	p = plan.Make(want, state, o)
	if err := plan.Check(p, plan.Allow(topology.Hazards()...)); !errors.Is(err, plan.ErrBlocked) {
		t.Errorf("a run that has not ended blocks: %v", err)
	}
	if c := p.Changes[0]; c.Name != hold || !strings.Contains(c.Reason, "dlxctl desk run return r1") {
		t.Errorf("the blocked change is %+v", c)
	}
	if strings.Contains(p.Changes[1].Reason, "file") {
		t.Errorf("the reason speaks of the file: %s", p.Changes[1].Reason)
	}
}
