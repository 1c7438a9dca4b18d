package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Foreign policies over the topology's queues are warned about by name, and are never a
// difference.
func TestOverruled(t *testing.T) {
	t.Parallel()
	work := queue("billing", args{"x-overflow": "reject-publish", "x-delivery-limit": int64(5)})
	retry := queue("shop.a.retry.1m",
		args{"x-message-ttl": int64(60000), "x-overflow": "reject-publish", "x-delivery-limit": int64(2147483647)})
	dead := queue("billing.dead", args{"x-queue-type": "classic"})
	have := host(work, retry, dead)
	want := have
	want.WorkQueues = []topology.WorkQueue{{Name: "billing", Backoff: "a"}, {Name: "mail", Backoff: "a"}}
	policy := func(name, pattern, applyTo string, priority int64, definition args) topology.Policy {
		return topology.Policy{Name: name, Pattern: pattern, ApplyTo: applyTo, Priority: priority, Definition: definition}
	}
	for name, tc := range map[string]struct {
		policies, operator []topology.Policy
		want               []string
	}{
		"none": {},
		"a ttl": {
			policies: []topology.Policy{policy("ttl", ".*", "all", 0, args{"message-ttl": int64(5000)})},
			want: []string{
				"overruled: the policy ttl (pattern .*) sets message-ttl to 5000 (5s) on billing, billing.dead, where the file sets none",
				"overruled: the policy ttl (pattern .*) lowers message-ttl to 5000 (5s) on shop.a.retry.1m",
			},
		},
		"a longer ttl than the tier's": {
			policies: []topology.Policy{policy("ttl", "retry", "queues", 0, args{"message-ttl": int64(90000)})},
		},
		"a shorter ttl than the tier's": {
			policies: []topology.Policy{policy("ttl", "retry", "queues", 0, args{"message-ttl": int64(1000)})},
			want:     []string{"overruled: the policy ttl (pattern retry) lowers message-ttl to 1000 (1s) on shop.a.retry.1m"},
		},
		"an overflow": {
			policies: []topology.Policy{policy("o", "retry", "quorum_queues", 0, args{"overflow": "drop-head"})},
			want: []string{
				`overruled: the policy o (pattern retry) sets overflow to "drop-head" on shop.a.retry.1m instead of "reject-publish", which turns off at-least-once dead-lettering`,
			},
		},
		"a delivery limit": {
			policies: []topology.Policy{policy("d", ".*", "queues", 0, args{"delivery-limit": int64(3)})},
			want:     []string{"overruled: the policy d (pattern .*) lowers delivery-limit to 3 on billing, shop.a.retry.1m"},
		},
		"a length on a queue that shares its backoff": {
			policies: []topology.Policy{policy("l", "^billing$", "queues", 0, args{"max-length": int64(10)})},
			want: []string{
				"overruled: the policy l (pattern ^billing$) sets max-length to 10 on billing, where the file sets none",
				"starves-tier: the policy l limits the length of billing, whose retries share a backoff with others: while it is full, it holds them up; give its retries a backoff of their own",
			},
		},
		"only the strongest applies": {
			policies: []topology.Policy{
				policy("weak", "billing.dead", "queues", 1, args{"message-ttl": int64(1)}),
				policy("strong", "billing.dead", "queues", 2, args{"queue-mode": "lazy"}),
			},
		},
		"for another type of queue": {
			policies: []topology.Policy{policy("q", "billing.dead", "quorum_queues", 0, args{"message-ttl": int64(1)})},
		},
		"the operator's applies in addition": {
			operator: []topology.Policy{policy("op", "billing.dead", "queues", 0, args{"expires": int64(60000)})},
			want:     []string{"overruled: the operator policy op (pattern billing.dead) sets expires to 60000 (1m) on billing.dead, where the file sets none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.0.5", Have: have.Topology, OperatorPolicies: tc.operator}
			state.Have.Policies = tc.policies
			p := plan.Make(want, state, plan.Options{})
			if !p.Empty() {
				t.Errorf("a policy is taken for a difference: %v", summarize(p.Changes))
			}
			var got []string
			for _, w := range p.Warnings {
				got = append(got, w.Name+": "+w.Text)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

// One policy limits several queues that share their backoff.
func TestSeveralQueuesStarveATier(t *testing.T) {
	t.Parallel()
	top := loaded(t, "version: 1\nname: shop\nbackoff: {s: {tiers: [1s]}}\ndefaults: {backoff: s}\n"+
		"queues: [{name: a}, {name: b}]\naccept: [overruled=l, default-delivery-limit]\n")
	state := topology.State{Version: "4.3.6"}
	state.Have.Policies = []topology.Policy{{
		Name: "l", Pattern: ".*", ApplyTo: "queues", Definition: topology.Arguments{"max-length": int64(5)},
	}}
	want := []plan.Warning{{
		Name: topology.WarnStarvesTier,
		Text: "the policy l limits the length of a, b, whose retries share a backoff with others: while one is full, it holds them up; give the retries of each a backoff of their own",
	}}
	if d := cmp.Diff(want, plan.Make(top, state, plan.Options{}).Warnings); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

// What the file accepts is no longer a warning. Another queue is.
func TestAcceptedWarnings(t *testing.T) {
	t.Parallel()
	everything := topology.Policy{
		Name: "ttl-all", Pattern: ".*", ApplyTo: "queues", Definition: topology.Arguments{"max-length": int64(5)},
	}
	for accept, want := range map[string]string{
		"":                                   "default-delivery-limit: a, b: ; overruled; starves-tier",
		"accept: [default-delivery-limit=a]": "default-delivery-limit: b: ; overruled; starves-tier",
		"accept: [default-delivery-limit]":   "overruled; starves-tier",
		"accept: [overruled=ttl-all]":        "default-delivery-limit: a, b: ; starves-tier",
		"accept: [overruled=ttl-some]":       "default-delivery-limit: a, b: ; overruled; starves-tier",
		"accept: [overruled=ttl-all, starves-tier=a, starves-tier=b, default-delivery-limit]": "",
	} {
		top := loaded(t, "version: 1\nname: shop\nbackoff: {s: {tiers: [1s]}}\ndefaults: {backoff: s}\n"+
			"queues: [{name: a}, {name: b}]\n"+accept)
		state := topology.State{Version: "4.3.6"}
		state.Have.Policies = []topology.Policy{everything}
		var got []string
		for _, w := range plan.Make(top, state, plan.Options{}).Warnings {
			line := w.Name
			if w.Name == "default-delivery-limit" {
				line += ": " + w.Text[:strings.Index(w.Text, "the broker")]
			}
			got = append(got, line)
		}
		if d := cmp.Diff(want, strings.Join(got, "; ")); d != "" {
			t.Errorf("%q (-want +got):\n%s", accept, d)
		}
	}
}

// A new classic work queue has no delivery limit, and plan says so once. A TTL ends a loop.
func TestClassicQueuesHaveNoDeliveryLimit(t *testing.T) {
	t.Parallel()
	top := loaded(t, "version: 1\nname: shop\nbackoff: {s: {tiers: [1s]}}\ndefaults: {backoff: s, type: classic}\n"+
		"queues: [{name: a}, {name: b}, {name: old}, {name: brief, arguments: {x-message-ttl: 1000}}]\n"+
		"accept: [default-delivery-limit=b]")
	state := topology.State{Version: "4.0.5"}
	state.Have.Queues = slices.DeleteFunc(slices.Clone(top.Queues), func(q topology.Queue) bool { return q.Name != "old" })
	var got []string
	for _, w := range plan.Make(top, state, plan.Options{}).Warnings {
		if w.Name == topology.WarnDefaultDeliveryLimit {
			got = append(got, w.Text)
		}
	}
	want := []string{"a: classic queues have no delivery limit: a message that crashes its consumer, or that a consumer requeues, is redelivered forever; set type: quorum"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
