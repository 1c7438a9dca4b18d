package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// shopFile is a file with these backoffs and this queue.
func shopFile(backoffs, queue string) string {
	return fmt.Sprintf("version: 1\nname: shop\nbackoff: {%s}\nexchanges: [{name: events}]\nqueues:\n  - %s\n", backoffs,
		queue)
}

// A legacy queue stays, with its bindings, its retry queues and its dead-letter queue, while it
// exists. When it is gone, its address stays as long as a message can wait for it.
func TestLegacyQueueOfTheTopology(t *testing.T) {
	t.Parallel()
	const standard, slow = "standard: {tiers: [12s]}", "slow: {tiers: [1h]}"
	const before = `{name: billing, backoff: standard, type: classic, bindings: [{exchange: events, key: "order.#"}]}`
	const after = `{name: billing2, replaces: billing, backoff: standard, bindings: [{exchange: events, key: "order.#"}]}`
	const unaddressed = "delete binding shop.failed -> shop.standard.failed (@billing)" // nothing fails under it any more
	gone := func(s *topology.State) {
		s.Have.Queues = slices.DeleteFunc(s.Have.Queues, func(q topology.Queue) bool { return q.Name == "billing" })
		s.Have.Bindings = slices.DeleteFunc(s.Have.Bindings, func(b topology.Binding) bool {
			return b.Destination == "billing" && b.Source != "shop.return"
		})
		for i := range s.Have.Bindings { // as migrate leaves it
			if b := &s.Have.Bindings[i]; b.Destination == "billing" {
				b.Destination = "billing2"
			}
		}
	}
	declared := func(s *topology.State) {
		for i, q := range s.Have.Queues {
			if q.Name == "billing" {
				s.Have.Queues[i].Arguments = q.Arguments.Without(topology.ArgManagedBy)
			}
		}
		way := topology.Key{Kind: topology.KindExchange, Name: "shop.failed"}
		if plane := plan.Plane("shop", *s, "billing"); !plane[way] {
			t.Errorf("without the mark the queue needs %v", plane)
		}
	}
	for name, tc := range map[string]struct {
		had, want string
		edit      func(*topology.State)
		deleted   []string
		warning   string
	}{
		"it lives": {
			had: shopFile(standard, before), want: shopFile(standard, after),
		},
		"it lives, and a service declared it": {
			had: shopFile(standard, before), want: shopFile(standard, after),
			edit: declared,
		},
		"it lives, a service declared it, and it had another backoff": {
			had: shopFile(slow, strings.Replace(before, "standard", "slow", 1)), want: shopFile(standard, after),
			edit: declared, deleted: []string{"update queue billing"}, warning: "retired-backoff",
		},
		"it lives, and had another backoff": {
			had: shopFile(slow, strings.Replace(before, "standard", "slow", 1)), want: shopFile(standard, after),
			// its failures go by the backoff of its successor
			deleted: []string{"update queue billing"}, warning: "retired-backoff",
		},
		"it lives, and its backoff has another tier now": {
			had: shopFile("standard: {tiers: [1m]}", before), want: shopFile(standard, after),
			deleted: []string{"update exchange shop.standard.dlx"}, warning: "retired-tier",
		},
		"it is gone, and its messages wait in a tier": {
			had: shopFile(standard, before), want: shopFile(standard, after), warning: "retired-address",
			deleted: []string{unaddressed},
			edit: func(s *topology.State) {
				gone(s)
				s.Usage = map[string]topology.Usage{"shop.standard.retry.12s": {Ready: 1}}
			},
		},
		"it is gone, and its messages wait for the processor": {
			had: shopFile(standard, before), want: shopFile(standard, after), warning: "retired-address",
			deleted: []string{unaddressed},
			edit: func(s *topology.State) {
				gone(s)
				s.Usage = map[string]topology.Usage{"shop.standard.failed": {Unacknowledged: 1}}
			},
		},
		"it is gone, and nothing waits": {
			had: shopFile(standard, before), want: shopFile(standard, after), edit: gone,
			deleted: []string{
				"delete binding shop.dead -> billing.dead (@billing)", unaddressed,
				"delete binding shop.return -> billing2 (@billing)", "delete queue billing.dead",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.0.5", Have: loaded(t, tc.had).Topology}

			if tc.edit != nil {
				tc.edit(&state)
			}
			p := plan.Make(loaded(t, tc.want), state, plan.Options{})
			var deleted []string
			for _, c := range p.Changes {
				if c.Action != plan.Create && c.Action != plan.Migrate {
					deleted = append(deleted, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Action, c.Kind, c.Name, hazards(c))))
				}
			}
			slices.Sort(deleted)
			if d := cmp.Diff(tc.deleted, deleted); d != "" {
				t.Errorf("changes other than creations (-want +got):\n%s", d)
			}
			if tc.warning != "" && !slices.ContainsFunc(p.Warnings, func(w plan.Warning) bool { return w.Name == tc.warning }) {
				t.Errorf("there is no warning %s, only %v", tc.warning, p.Warnings)
			}
		})
	}
}

// A queue that stays on the broker without dead-lettering by the file gets the retries that wait:
// its address stays as long as a message can wait for it.
func TestAQueueThatLeavesGetsItsRetries(t *testing.T) {
	t.Parallel()
	const backoffs = "standard: {tiers: [12s]}"
	const address = "shop.return -> billing (@billing)"
	orders := shopFile(backoffs, "{name: orders, backoff: standard}")
	with := func(queue string) string { return orders + "  - " + queue + "\n" }
	for had, list := range map[string][]string{
		with("{name: billing, external: true, backoff: standard}"): {
			orders, with("{name: billing, external: true, deadLetterBy: unmanaged}"),
		},
		with("{match: ^bil, external: true, backoff: standard}"): {orders},
	} {
		for _, want := range list {
			for place, messages := range map[string]int64{"": 0, "shop.standard.retry.12s": 1, "shop.standard.failed": 1} {
				state := topology.State{Version: "4.3.6", Have: loaded(t, had).Topology}
				if strings.Contains(had, "match") {
					state.Have.Queues = append(state.Have.Queues, topology.Queue{Name: "billing", Durable: true})
					state.Have.Bindings = append(state.Have.Bindings, topology.ReturnBinding("shop", "billing"))
				}
				state.Usage = map[string]topology.Usage{place: {Ready: messages}}
				p := plan.Make(loaded(t, want), state, plan.Options{})
				goes := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Name == address })
				warned := slices.ContainsFunc(p.Warnings, func(w plan.Warning) bool { return w.Name == "retired-address" })
				if waits := messages > 0; goes == waits || warned != waits {
					t.Errorf("with %d messages in %q, from\n%s\nto\n%s\nthe address goes: %t, with a warning: %t", messages, place,
						had, want, goes, warned)
				}
				// The count is of a moment: a run that kept the address is not to be told that it is left.
				state.Usage = nil
				if left := plan.Later(p, plan.Make(loaded(t, want), state, plan.Options{})); messages > 0 &&
					slices.ContainsFunc(left.Changes, func(c plan.Change) bool { return c.Name == address }) {
					t.Error("the address that the run has kept is left to do")
				}
			}
		}
	}
}

// After the abort of a migration, retries of the successor that wait come to the legacy queue, in
// whichever tier they are: the backoff of the successor may have been another one before.
func TestTheAddressOfARolledBackSuccessorStays(t *testing.T) {
	t.Parallel()
	const backoffs = "standard: {tiers: [12s]}"
	want := loaded(t, shopFile(backoffs, "{name: orders, backoff: standard}"))
	back := topology.ReturnBinding("shop", "billing.v2")
	back.Destination = "billing"
	for place, messages := range map[string]int64{"": 0, "shop.standard.retry.12s": 1} {
		state := topology.State{Version: "4.3.6", Usage: map[string]topology.Usage{place: {Ready: messages}}}
		state.Have = loaded(t, shopFile(backoffs, "{name: orders, backoff: standard}")).Topology
		state.Have.Queues = append(state.Have.Queues, topology.Queue{Name: "billing", Durable: true})
		state.Have.Bindings = append(state.Have.Bindings, back)
		p := plan.Make(want, state, plan.Options{})
		goes := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Name == back.DisplayName() })
		if goes != (messages == 0) {
			t.Errorf("with %d messages in a tier, the address goes: %t", messages, goes)
		}
		if warned := slices.ContainsFunc(p.Warnings, func(w plan.Warning) bool {
			return w.Name == "retired-address" && strings.HasPrefix(w.Text, "billing.v2 is no longer covered") &&
				strings.Contains(w.Text, "they return to billing;")
		}); warned != (messages > 0) {
			t.Errorf("with %d messages in a tier, the warnings are %v", messages, p.Warnings)
		}
	}
}

// An apply between two runs of a rollback leaves the address where the rollback has moved it: next
// to it, that of the file would double each message that leaves a tier.
func TestAMovedAddressIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	want := loaded(t, shopFile("standard: {tiers: [12s]}", "{name: billing.v2, replaces: billing, backoff: standard}"))
	name := topology.SwitchExchangeName("shop", "billing")
	for _, to := range []topology.Binding{
		{Destination: "billing", DestinationType: topology.ToQueue},
		{Destination: name, DestinationType: topology.ToExchange},
	} {
		state := topology.State{Version: "4.3.6", Have: want.Topology}
		state.Have.Queues = append(slices.Clone(want.Queues), topology.Queue{Name: "billing", Durable: true})
		state.Have.Exchanges = append(slices.Clone(want.Exchanges),
			exchange(name, "fanout", args{"x-managed-by": "dlxctl/shop"}))
		state.Have.Bindings = slices.Clone(want.Bindings)
		for i, b := range state.Have.Bindings {
			if b.Source == topology.ReturnExchangeName("shop") && b.Destination == "billing.v2" {
				state.Have.Bindings[i].Destination, state.Have.Bindings[i].DestinationType = to.Destination, to.DestinationType
			}
		}
		if p := plan.Make(want, state, plan.Options{}); len(p.Changes) > 0 {
			t.Errorf("with the address on %s the changes are %v", to.Destination, summarize(p.Changes))
		}
	}
}

func hazards(c plan.Change) string {
	var out []string
	for _, h := range c.Hazards {
		out = append(out, string(h))
	}
	return strings.Join(out, " ")
}

// A legacy queue that but forwards does not hold back the bindings of its successor.
func TestForwarderCountsAsGone(t *testing.T) {
	t.Parallel()
	const file = "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}}\nexchanges: [{name: events}]\nqueues:\n  - {name: new, replaces: old.v1, backoff: a, bindings: [{exchange: events, key: k}]}\n"
	want := loaded(t, file)
	name := topology.ForwardPolicyName("shop", "old.v1")
	state := topology.State{Version: "4.0.5", Have: topology.Topology{
		Queues:   []topology.Queue{{Name: "old.v1", Durable: true, Arguments: topology.Arguments{"x-queue-type": "classic"}}},
		Policies: []topology.Policy{{Name: name, Pattern: `^old\.v1$`, ApplyTo: "queues", Priority: 1000}},
	}, QueuePolicies: map[string]string{"old.v1": name}}
	binds := func(s topology.State) bool {
		return slices.ContainsFunc(plan.Make(want, s, plan.Options{}).Changes,
			func(c plan.Change) bool { return c.Name == "events -> new (k)" })
	}
	if !binds(state) {
		t.Error("the successor of a forwarder gets no binding")
	}
	bound := state
	bound.Have.Bindings = []topology.Binding{{
		Source: "events", Destination: "old.v1", DestinationType: topology.ToQueue,
		Key: "k",
	}}
	overridden := state
	overridden.QueuePolicies = map[string]string{"old.v1": "foreign"}
	for what, s := range map[string]topology.State{"that is bound": bound, "whose policy is not in effect": overridden} {
		if binds(s) {
			t.Errorf("the successor of a forwarder %s is bound: messages double, or pile up", what)
		}
	}
}
