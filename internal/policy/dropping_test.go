package policy_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

// of returns one policy that applies to every queue.
func of(definition topology.Arguments) []topology.Policy {
	return []topology.Policy{{Name: "p", Pattern: ".*", ApplyTo: "queues", Definition: definition}}
}

// quorum returns the arguments of a quorum queue, unless args set another type.
func quorum(args topology.Arguments) topology.Arguments {
	out := topology.Arguments{"x-queue-type": "quorum"}
	maps.Copy(out, args)
	return out
}

func TestDropping(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args     topology.Arguments
		policies []topology.Policy
		idle     bool
		old, now bool // whether it drops before 4.0, and since
	}{
		"the default":            {now: true},
		"no consumer":            {idle: true},
		"a limit":                {args: topology.Arguments{"x-delivery-limit": int64(5)}, old: true, now: true},
		"no limit, written so":   {args: topology.Arguments{"x-delivery-limit": int64(1<<31 - 1)}},
		"-1":                     {args: topology.Arguments{"x-delivery-limit": int64(-1)}, old: true},
		"a dead-letter exchange": {args: topology.Arguments{"x-dead-letter-exchange": "d"}},
		"one by policy":          {policies: of(topology.Arguments{"dead-letter-exchange": "d"})},
		"a limit by policy":      {policies: of(topology.Arguments{"delivery-limit": int64(5)}), old: true, now: true},
		"the smaller limit holds": {
			args:     topology.Arguments{"x-delivery-limit": int64(1<<31 - 1)},
			policies: of(topology.Arguments{"delivery-limit": int64(5)}), old: true, now: true,
		},
		"the limit of a policy, over -1": {
			args:     topology.Arguments{"x-delivery-limit": int64(-1)},
			policies: of(topology.Arguments{"delivery-limit": int64(20)}), old: true, now: true,
		},
		"classic": {args: topology.Arguments{"x-queue-type": "classic"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for version, drops := range map[string]bool{"3.10.8": tc.old, "4.0.5": tc.now} {
				state := topology.State{
					Version: version,
					Have:    topology.Topology{Queues: []topology.Queue{{Name: "q", Arguments: quorum(tc.args)}}},
					Usage:   map[string]topology.Usage{"q": {Consumers: 1}},
				}
				state.Have.Policies = tc.policies
				if tc.idle {
					state.Usage = nil
				}
				want := map[bool][]string{true: {"q"}}[drops]
				if d := cmp.Diff(want, policy.Dropping(state)); d != "" {
					t.Error(fmt.Sprintf("on %s (-want +got):\n", version) + d)
				}
			}
		})
	}
}

// Since 4.0 a delivery limit of -1 is none, and another one applies. Before, the smaller one does.
func TestAPolicyOverADeliveryLimitOfMinusOne(t *testing.T) {
	t.Parallel()
	q := topology.Queue{Name: "q", Arguments: quorum(topology.Arguments{"x-delivery-limit": int64(-1)})}
	for version, want := range map[string]int64{"3.10.8": -1, "3.13.7": -1, "4.0.5": 20, "4.3.6": 20, "": -1} {
		state := topology.State{Version: version}
		state.Have.Policies = of(topology.Arguments{"delivery-limit": int64(20)})
		if got := policy.Effective(state, q)["x-delivery-limit"]; got != want {
			t.Errorf("on %q it is %v, want %d", version, got, want)
		}
	}
}

// Of two operator policies of equal priority the broker takes either. The one that deletes messages
// of a dead-letter queue is assumed to be in effect, wherever it is in the list.
func TestAHarmfulOperatorPolicyAmongEquals(t *testing.T) {
	t.Parallel()
	limit := topology.Policy{
		Name: "limit", Pattern: ".*", ApplyTo: "queues", Definition: topology.Arguments{"consumer-timeout": int64(1_000_000)},
	}
	ttl := topology.Policy{
		Name: "ttl", Pattern: ".*", ApplyTo: "queues", Definition: topology.Arguments{"message-ttl": int64(1)},
	}
	dead := topology.Queue{
		Name: "a.dead", Arguments: quorum(nil), Label: topology.Label{Role: topology.RoleDeadLetter},
	}
	for _, list := range [][]topology.Policy{{limit, ttl}, {ttl, limit}} {
		set := policy.Foreign(topology.State{OperatorPolicies: list}, "shop")
		if p, ok := set.Operator(dead); !ok || p.Name != "ttl" {
			t.Errorf("%s, %t", p.Name, ok)
		}
	}
}
