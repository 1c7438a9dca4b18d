package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"

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
	// The records of runs need no consent: no message of a user is there.
	log := queue(topology.LogName("shop"))
	records := topology.State{
		Version: "4.0.5", Have: topology.Topology{Queues: []topology.Queue{log}},
		Usage: map[string]topology.Usage{log.Name: {Ready: 3, Consumers: 1}},
	}
	p = plan.Make(want, records, o)
	deletes := len(p.Changes) == 1 && p.Changes[0].Name == log.Name && p.Changes[0].Action == plan.Delete
	if !deletes || plan.Check(p, nil) != nil {
		t.Errorf("the plan for the records is %+v", p.Changes)
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

// Tiers that stay until they are empty are in the file.
func TestDestroyDoesNotSayThatATierLeftTheFile(t *testing.T) {
	t.Parallel()
	retry := func(delay time.Duration) topology.Queue {
		name := topology.RetryQueueName("shop", "a", delay)
		return queue(name, args{"x-message-ttl": delay.Milliseconds()})
	}
	short, long := retry(time.Second), retry(3*time.Second)
	bound := binding("shop.a.dlx", short.Name, "", args{"count": int64(1)})
	for name, tc := range map[string]struct {
		have  topology.Compiled
		usage map[string]topology.Usage
		want  string
	}{
		"one tier": {
			host(short),
			map[string]topology.Usage{short.Name: {Ready: 2}},
			"the tier shop.a.retry.1s is to be deleted and stays until it is empty; it holds 2 messages; the last message leaves within 1s, or later if a work queue is full; to delete it, run destroy again after that, or pass --wait to wait for that",
		},
		"two tiers": {
			host(short, long),
			map[string]topology.Usage{short.Name: {Ready: 2}, long.Name: {Ready: 1}},
			"2 tiers of the backoff a (1s, 3s) are to be deleted and stay until they are empty; they hold 3 messages; the last message leaves within 3s, or later if a work queue is full; to delete them, run destroy again after that, or pass --wait to wait for that",
		},
		"a tier that may be empty": {
			host(exchange("shop.a.dlx", "headers", nil), short, bound), nil,
			"the tier shop.a.retry.1s is to be deleted and stays until it is empty; it holds 0 messages (counts are up to 5s old); once it is unbound, the last message leaves within 1s, or later if a work queue is full; to delete it, run destroy again after that, or pass --wait to wait for that",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Make(plan.Nothing(topology.Compiled{Name: "shop"}),
				topology.State{Version: "4.0.5", Have: tc.have.Topology, Usage: tc.usage}, plan.Options{Destroy: true})
			if len(p.Warnings) != 1 || p.Warnings[0].Text != tc.want {
				t.Errorf("the warnings are %+v", p.Warnings)
			}
		})
	}
}
