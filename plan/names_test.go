package plan_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// An exchange of the file that is named a little like one of dlxctl is none: each change of its
// routing has the hazards that it has under any other name.
func TestExchangesNamedLikeGeneratedOnes(t *testing.T) {
	t.Parallel()
	const (
		audit = `  - {name: audit, backoff: none, bindings: [{exchange: "NAME", key: k}]}` + "\n"
		keep  = `  - {name: keep, backoff: none, bindings: [{exchange: "NAME", key: z}]}` + "\n"
		other = "exchanges: [{name: other, type: direct}, {name: NAME, type: direct}]\nqueues:\n"
	)
	foreign := topology.Binding{Source: "NAME", Destination: "keep", DestinationType: topology.ToQueue, Key: "service"}
	for name, tc := range map[string]struct {
		have, want string
		drift      []topology.Binding
		least      string // one of the changes
	}{
		"a queue goes": {other + audit + keep, other + keep, nil, "delete queue audit drops-routing"},
		"the exchange goes": {
			other + audit + keep,
			strings.NewReplacer(", {name: NAME, type: direct}", "", "NAME", "other").Replace(other + audit + keep),
			nil, "delete exchange NAME drops-routing",
		},
		"a key moves": {
			other + audit + keep, other + strings.Replace(audit, ": k", ": z", 1) + strings.Replace(keep, ": z", ": k", 1),
			nil, "delete binding NAME -> audit (k) drops-routing copies-messages",
		},
		"drift is deleted": {
			other + keep, other + keep, []topology.Binding{foreign}, "delete binding NAME -> keep (service) drops-routing",
		},
		"a queue is declared again": {
			other + keep, other + strings.Replace(keep, "backoff", "arguments: {x-max-priority: 5}, type: classic, backoff", 1),
			nil, "keep",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := func(exchange string) string {
				as := func(s string) string { return strings.ReplaceAll(s, "NAME", exchange) }
				have := loaded(t, "version: 1\nname: shop\ndefaults: {type: classic}\n"+as(tc.have))
				state := topology.State{Have: have.Topology}
				for _, b := range tc.drift {
					b.Source = exchange
					state.Have.Bindings = append(slices.Clone(state.Have.Bindings), b)
				}
				want := loaded(t, "version: 1\nname: shop\ndefaults: {type: classic}\n"+as(tc.want))
				p := plan.Make(want, state, plan.Options{Prune: true})
				var out []string
				for i, line := range summarize(p.Changes) {
					out = append(out, strings.ReplaceAll(fmt.Sprintf("%s in phase %d", line, p.Changes[i].Phase), exchange, "NAME"))
				}
				slices.Sort(out)
				return strings.Join(out, "\n")
			}
			usual := changes("events")
			if !strings.Contains(usual, tc.least) {
				t.Errorf("the plan has no %q:\n%s", tc.least, usual)
			}
			for _, exchange := range []string{"orders.dead", "shop.dlx", "shop.old.dlx", "shop.a.b.dlx", "shop.a.b.failed"} {
				if d := cmp.Diff(usual, changes(exchange)); d != "" {
					t.Errorf("changes with %s (-other name +this name):\n%s", exchange, d)
				}
			}
		})
	}
}

// A work queue that is named like a generated queue and is no longer in the file is a work queue:
// it keeps its policy while it stays, no messages of it are moved, and it can have a successor.
func TestWorkQueuesNamedLikeGeneratedOnes(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"arguments", "policy"} {
		for name, tc := range map[string]leaving{
			"removed":       {rest: "removed: [QUEUE]\n", goes: true},
			"in part":       {rest: "removed: [QUEUE]\n", goes: true, unbound: true},
			"replaced":      {rest: "  - {name: next, replaces: QUEUE, backoff: none, bindings: [{exchange: events, key: k}]}\n"},
			"not mentioned": {goes: true},
		} {
			usual := tc.changes(t, "zz", by)
			if strings.Contains(usual, "delete queue QUEUE loses-messages") != tc.goes ||
				strings.Contains(usual, "without consent: delete policy") {
				t.Errorf("%s, by %s: the queue goes, or its policy without it:\n%s", name, by, usual)
			}
			for _, queue := range []string{"zz.dead", "keep.dead", "shop.zz.failed", "shop.zz.dlx"} {
				if d := cmp.Diff(usual, tc.changes(t, queue, by)); d != "" {
					t.Errorf("%s, by %s: changes of %s (-other name +this name):\n%s", name, by, queue, d)
				}
			}
		}
	}
}

// leaving is a file without a work queue that the broker has.
type leaving struct {
	rest    string // of the file
	goes    bool
	unbound bool // the apply that deletes the queue was stopped behind its bindings
}

// changes returns the changes of the plan, and those without consent.
func (l leaving) changes(t *testing.T, queue, by string) string {
	t.Helper()
	const file = "version: 1\nname: shop\nexchanges: [{name: events, type: topic}]\nqueues:\n" +
		"  - {name: keep, backoff: none, dead: {queue: graves}}\n"
	have := renamed(loaded(t, file+"  - {name: QUEUE, deadLetterBy: "+by+
		", backoff: none, dead: {queue: graves}, bindings: [{exchange: events, key: k}]}\n").Topology, "QUEUE", queue)
	if l.unbound {
		have.Bindings = slices.DeleteFunc(have.Bindings, func(b topology.Binding) bool {
			return b.Destination == queue || b.Key == topology.AddressKey(queue)
		})
	}
	state := topology.State{
		Version: "4.3.6", Have: have, QueuePolicies: map[string]string{},
		Usage: map[string]topology.Usage{queue: {Ready: 3}},
	}
	if by == "policy" {
		state.QueuePolicies[queue] = topology.PolicyName("shop", queue)
	}
	p := plan.Make(loaded(t, file+strings.ReplaceAll(l.rest, "QUEUE", queue)), state, plan.Options{})
	out := []string{fmt.Sprint("retiring ", p.Retiring, p.RetiringDead)}
	for i, line := range summarize(p.Changes) {
		out = append(out, fmt.Sprintf("%s in phase %d", line, p.Changes[i].Phase))
	}
	for _, line := range summarize(plan.Allowed(p, nil).Changes) {
		out = append(out, "without consent: "+line)
	}
	slices.Sort(out)
	return strings.ReplaceAll(strings.Join(out, "\n"), queue, "QUEUE")
}

// renamed returns a topology in which a work queue has another name, also one that files refuse.
func renamed(t topology.Topology, from, to string) topology.Topology {
	as := func(s string) string { return strings.ReplaceAll(s, from, to) }
	for i := range t.Queues {
		t.Queues[i].Name = as(t.Queues[i].Name)
		t.Queues[i].Label.Queue = as(t.Queues[i].Label.Queue)
		if key, ok := t.Queues[i].Arguments[topology.ArgDeadLetterRoutingKey].(string); ok {
			t.Queues[i].Arguments = t.Queues[i].Arguments.With(topology.ArgDeadLetterRoutingKey, as(key))
		}
	}
	for i := range t.Bindings {
		t.Bindings[i].Destination, t.Bindings[i].Key = as(t.Bindings[i].Destination), as(t.Bindings[i].Key)
	}
	for i := range t.Policies {
		p := &t.Policies[i]
		p.Name, p.Pattern = as(p.Name), strings.ReplaceAll(p.Pattern, from, regexp.QuoteMeta(to))
		p.Definition = p.Definition.With(topology.KeyDeadLetterRoutingKey, topology.AddressKey(to))
	}
	return t
}
