package plan_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

func TestDropping(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args     args
		policies []topology.Policy
		idle     bool
		old, now bool // whether it drops before 4.0, and since
	}{
		"the default":             {now: true},
		"nobody consumes":         {idle: true},
		"a limit":                 {args: args{"x-delivery-limit": int64(5)}, old: true, now: true},
		"no limit, written so":    {args: args{"x-delivery-limit": int64(1<<31 - 1)}},
		"-1":                      {args: args{"x-delivery-limit": int64(-1)}, old: true},
		"a dead-letter exchange":  {args: args{"x-dead-letter-exchange": "d"}},
		"one by policy":           {policies: []topology.Policy{policy("p", ".*", 0, args{"dead-letter-exchange": "d"})}},
		"a limit by policy":       {policies: []topology.Policy{policy("p", ".*", 0, args{"delivery-limit": int64(5)})}, old: true, now: true},
		"the smaller limit holds": {args: args{"x-delivery-limit": int64(1<<31 - 1)}, policies: []topology.Policy{policy("p", ".*", 0, args{"delivery-limit": int64(5)})}, old: true, now: true},
		"classic":                 {args: args{"x-queue-type": "classic"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for version, drops := range map[string]bool{"3.10.8": tc.old, "4.0.5": tc.now} {
				state := plan.State{Version: version, Have: host(queue("q", tc.args)), Usage: map[string]plan.Usage{"q": {Consumers: 1}}}
				state.Have.Policies = tc.policies
				if tc.idle {
					state.Usage = nil
				}
				want := map[bool][]string{true: {"q"}}[drops]
				if d := cmp.Diff(want, plan.Dropping(state)); d != "" {
					t.Error(fmt.Sprintf("on %s (-want +got):\n", version) + d)
				}
			}
		})
	}
}
