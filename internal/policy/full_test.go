package policy_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

func TestFullAt(t *testing.T) {
	t.Parallel()
	const refuse = "reject-publish"
	for name, tc := range map[string]struct {
		arguments, policy topology.Arguments
		want              int64
		drops             bool
	}{
		"no limit":               {drops: true},
		"it drops":               {arguments: topology.Arguments{"x-max-length": int64(10)}, want: 10, drops: true},
		"refuses":                {arguments: topology.Arguments{"x-max-length": int64(10), "x-overflow": refuse}, want: 10},
		"refuses, without limit": {arguments: topology.Arguments{"x-overflow": refuse}, drops: true},
		"reject-publish-dlx, which a quorum queue does not know": {
			arguments: quorum(topology.Arguments{"x-max-length": int64(9)}),
			policy:    topology.Arguments{"overflow": "reject-publish-dlx"}, want: 9, drops: true,
		},
		"by policy": {
			policy: topology.Arguments{"max-length": int64(7), "overflow": "reject-publish-dlx"},
			want:   7,
		},
		"the smaller, argument": {
			arguments: topology.Arguments{"x-max-length": int64(5), "x-overflow": refuse},
			policy:    topology.Arguments{"max-length": int64(7)}, want: 5,
		},
		"the smaller, policy": {
			arguments: topology.Arguments{"x-max-length": int64(9), "x-overflow": refuse},
			policy:    topology.Arguments{"max-length": int64(7)}, want: 7,
		},
		"a policy says how a quorum queue overflows": {
			arguments: quorum(topology.Arguments{"x-max-length": int64(9), "x-overflow": "drop-head"}),
			policy:    topology.Arguments{"overflow": refuse}, want: 9,
		},
		"the argument says how a classic queue overflows": {
			arguments: topology.Arguments{"x-max-length": int64(9), "x-overflow": "drop-head"},
			policy:    topology.Arguments{"overflow": refuse}, want: 9, drops: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var state topology.State
			state.Have.Queues = []topology.Queue{{Name: "q", Arguments: tc.arguments}}
			if tc.policy != nil {
				state.Have.Policies = []topology.Policy{{Name: "p", Pattern: "^q$", ApplyTo: "queues", Definition: tc.policy}}
			}
			if got, refuses := policy.FullAt(state, "q"); got != tc.want || refuses == tc.drops {
				t.Errorf("it is full at %d, want %d; it refuses more: %t", got, tc.want, refuses)
			}
			if got, _ := policy.FullAt(state, "other"); got != 0 {
				t.Errorf("a queue that is not there is full at %d", got)
			}
		})
	}
}

func TestDeadLettersRefused(t *testing.T) {
	t.Parallel()
	const overflow, exchange = "x-overflow", "x-dead-letter-exchange"
	full := topology.Arguments{"x-max-length": int64(9), overflow: "reject-publish-dlx"}
	dlx := full.With(exchange, "dlx")
	for name, tc := range map[string]struct {
		arguments, policy topology.Arguments
		want              bool
	}{
		"it does":               {arguments: dlx, want: true},
		"by policy":             {arguments: full, policy: topology.Arguments{"dead-letter-exchange": "dlx"}, want: true},
		"no exchange":           {arguments: full},
		"no limit":              {arguments: topology.Arguments{overflow: "reject-publish-dlx", exchange: "dlx"}},
		"it refuses":            {arguments: dlx.With(overflow, "reject-publish")},
		"a quorum queue cannot": {arguments: quorum(dlx)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var state topology.State
			state.Have.Queues = []topology.Queue{{Name: "q", Arguments: tc.arguments}}
			if tc.policy != nil {
				state.Have.Policies = []topology.Policy{{Name: "p", Pattern: "^q$", ApplyTo: "queues", Definition: tc.policy}}
			}
			if got := policy.DeadLettersRefused(state, "q"); got != tc.want {
				t.Errorf("it dead-letters what it refuses: %t", got)
			}
			if policy.DeadLettersRefused(state, "other") {
				t.Error("so does a queue that is not there")
			}
		})
	}
}
