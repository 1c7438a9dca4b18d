package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

func TestRights(t *testing.T) {
	t.Parallel()
	work := queue("q", args{"x-dead-letter-exchange": "f"})
	dlx := exchange("x", "headers", args{"alternate-exchange": "d"})
	between := binding("x", "d", "", nil)
	between.DestinationType = topology.ToExchange
	for name, tc := range map[string]struct {
		change plan.Change
		want   []plan.Right
	}{
		"a queue that dead-letters": {
			plan.Change{Action: plan.Create, After: work},
			[]plan.Right{{"configure", "queue", "q"}, {"write", "exchange", "f"}, {"read", "queue", "q"}},
		},
		"a queue that is deleted is asked whether it is empty": {
			plan.Change{Action: plan.Delete, Before: work},
			[]plan.Right{{"configure", "queue", "q"}, {"read", "queue", "q"}},
		},
		"a classic queue is not": {
			plan.Change{Action: plan.Delete, Before: queue("q", args{"x-queue-type": "classic"})},
			[]plan.Right{{"configure", "queue", "q"}},
		},
		"an exchange with an alternate": {
			plan.Change{Action: plan.Create, After: dlx},
			[]plan.Right{{"configure", "exchange", "x"}, {"write", "exchange", "d"}, {"read", "exchange", "x"}},
		},
		"an exchange that is deleted": {
			plan.Change{Action: plan.Delete, Before: dlx},
			[]plan.Right{{"configure", "exchange", "x"}},
		},
		"a binding": {
			plan.Change{Action: plan.Create, After: binding("x", "q", "k", nil)},
			[]plan.Right{{"write", "queue", "q"}, {"read", "exchange", "x"}},
		},
		"a binding between exchanges that goes": {
			plan.Change{Action: plan.Delete, Before: between},
			[]plan.Right{{"write", "exchange", "d"}, {"read", "exchange", "x"}},
		},
		"a policy": {
			plan.Change{Action: plan.Update, Before: topology.Policy{}, After: topology.Policy{}},
			[]plan.Right{{Permission: "policymaker"}},
		},
		"what is not done": {plan.Change{Action: plan.Blocked, Before: work, After: work}, nil},
		"a queue made again": {
			plan.Change{Action: plan.Replace, Before: queue("q", nil), After: queue("q", nil)},
			[]plan.Right{{"configure", "queue", "q"}, {"read", "queue", "q"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, plan.Rights(plan.Plan{Changes: []plan.Change{tc.change, tc.change}})); d != "" {
				t.Errorf("rights (-want +got):\n%s", d)
			}
		})
	}
}
