package importer_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// turning imports a virtual host as dlxctl import --adopt --as quorum does.
func turning(t failer, state topology.State) (importer.Result, topology.Compiled) {
	t.Helper()
	o := importer.Options{Adopt: true, Quorum: true, Keep: map[string]string{}}
	r, want := imported(t, state, o)
	for name, why := range migrate.Unsuitable(want, state, r.Turned) {
		o.Keep[name] = why + "."
	}
	return imported(t, state, o)
}

// A file of --as quorum replaces queues under their names, those that it says, and nothing else,
// whatever the virtual host has. Each new queue has the arguments of the old one, but for storage.
func TestAsQuorumReplacesAlone(t *testing.T) {
	t.Parallel()
	some := 0
	rapid.Check(t, func(t *rapid.T) {
		state := drawState(t)
		r, want := turning(t, state)
		replaced := map[string]bool{}
		for _, c := range plan.Make(want, state, plan.Options{}).Changes {
			if !c.ReplacesQueue() && c.Action != plan.Replace {
				t.Fatalf("the plan has %s %s %s: %s\n%s", c.Action, c.Kind, c.Name, c.Reason, all(r.Files))
			}
			before, after := c.Before.(topology.Queue), c.After.(topology.Queue) //nolint:forcetypeassert // a queue
			if before.Type() != topology.Classic || after.Type() != topology.Quorum || !before.Durable {
				t.Fatalf("%s is turned from %s to %s\n%s", c.Name, before.Type(), after.Type(), all(r.Files))
			}
			for _, name := range before.Arguments.Names() {
				stored := strings.HasPrefix(name, "x-queue-")
				if !stored && name != topology.ArgDeliveryLimit && !after.Arguments.HasAny(name) { // no classic queue has a limit
					t.Fatalf("%s has lost %s\n%s", c.Name, name, all(r.Files))
				}
			}
			replaced[c.Name] = true
		}
		for _, name := range r.Turned {
			if !replaced[name] || len(replaced) != len(r.Turned) {
				t.Fatalf("turned are %q, the plan replaces %v\n%s", r.Turned, replaced, all(r.Files))
			}
		}
		some += len(r.Turned)
	})
	if some == 0 {
		t.Error("no queue was turned")
	}
}

// Each classic queue that stays has a comment that says why, with definitions and with a broker
// that reports which policy is in effect.
func TestWhyAQueueStaysClassic(t *testing.T) {
	t.Parallel()
	policy := func(definition topology.Arguments, applyTo string) []topology.Policy {
		return []topology.Policy{{Name: "p", Pattern: "^q$", ApplyTo: applyTo, Definition: definition}}
	}
	type args = topology.Arguments
	for name, tc := range map[string]struct {
		args      args
		transient bool
		policies  []topology.Policy
		want      string // of the comment; empty: it is turned
	}{
		"plain":                {},
		"lazy, version 1":      {args: args{"x-queue-mode": "lazy", "x-queue-version": int64(1)}},
		"dead letters and TTL": {args: args{"x-dead-letter-exchange": "dlx", "x-message-ttl": int64(1000)}},
		"single active":        {args: args{"x-single-active-consumer": true}},
		"refuses when full":    {args: args{"x-max-length": int64(5), "x-overflow": "reject-publish"}},
		"mirrored":             {policies: policy(args{"ha-mode": "all"}, "queues")},
		"policy for all":       {policies: policy(args{"message-ttl": int64(1000)}, "queues")},
		"transient":            {transient: true, want: "transient (durable: false)"},
		"priorities":           {args: args{"x-max-priority": int64(5)}, want: "the 5 priorities of x-max-priority"},
		"drops":                {args: args{"x-max-length": int64(5)}, want: "drops its oldest messages"},
		"drops by a policy": {
			policies: policy(args{"max-length-bytes": int64(5)}, "all"), want: "drops its oldest messages",
		},
		"dead-letters when full": {
			args: args{"x-max-length": int64(5), "x-overflow": "reject-publish-dlx"}, want: "(reject-publish-dlx)",
		},
		"expires by a policy": {policies: policy(args{"expires": int64(100000)}, "queues"), want: "while it has no consumer"},
		"mirrored, with more": {
			policies: policy(args{"ha-mode": "all", "message-ttl": int64(1000)}, "queues"), want: "gives it message-ttl",
		},
		"policy for classic queues": {
			policies: policy(args{"message-ttl": int64(1000)}, "classic_queues"), want: "gives it message-ttl",
		},
		"policy for quorum queues": {
			policies: policy(args{"message-ttl": int64(1000)}, "quorum_queues"), want: "would get the policy p",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var state topology.State
			state.Version = "3.13.7"
			state.Have.Queues = []topology.Queue{
				{Name: "q", Durable: !tc.transient, Arguments: tc.args.With("x-queue-type", "classic")},
				{Name: "other", Durable: true, Arguments: args{"x-queue-type": "quorum"}},
			}
			state.Have.Policies = tc.policies
			live := state
			live.QueuePolicies = map[string]string{}
			if len(tc.policies) > 0 && tc.policies[0].ApplyTo != "quorum_queues" {
				live.QueuePolicies["q"] = "p"
			}
			for _, state := range []topology.State{state, live} {
				r, _ := turning(t, state)
				file := strings.Join(strings.Fields(strings.ReplaceAll(all(r.Files), "#", "")), " ")
				if tc.want == "" && len(r.Turned) != 1 || tc.want != "" && (len(r.Turned) > 0 || r.Classic != 1) ||
					!strings.Contains(file, tc.want) || strings.Contains(file, "Stays classic.") != (tc.want != "") {
					t.Errorf("reported %q: turned %q, want the comment %q in\n%s",
						state.QueuePolicies, r.Turned, tc.want, all(r.Files))
				}
			}
		})
	}
}

// A queue to which another one dead-letters by its name cannot be replaced: what expires there
// would be lost while there is no queue.
func TestATargetOfDeadLettersStaysClassic(t *testing.T) {
	t.Parallel()
	var state topology.State
	state.Have.Queues = []topology.Queue{
		{Name: "q", Durable: true, Arguments: topology.Arguments{"x-queue-type": "classic"}},
		{Name: "wait", Durable: true, Arguments: topology.Arguments{
			"x-queue-type": "classic", "x-message-ttl": int64(1000), "x-dead-letter-exchange": "",
			"x-dead-letter-routing-key": "q",
		}},
	}
	r, _ := turning(t, state)
	if len(r.Turned) != 1 || r.Turned[0] != "wait" || !strings.Contains(all(r.Files), "wait dead-letters to") {
		t.Errorf("turned %q\n%s", r.Turned, all(r.Files))
	}
}
