package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// between returns a binding between exchanges.
func between(source, destination, key string, a args) topology.Binding {
	return topology.Binding{
		Source: source, Destination: destination, DestinationType: topology.ToExchange, Key: key, Arguments: a,
	}
}

// What lets messages of a delay come back to it is blocked: the exchange of the delay where that is
// new, else what is new on the way, else the exchange as it is. TestWhereDelayedMessagesComeBack in
// the processor has the same ways on a broker.
func TestDelaysThatComeBackAreBlocked(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nname: shop\n"
	const one = "delays: [{name: shop.later, to: events, max: 1s}]\n"
	const events = "exchanges: [{name: events}, {name: mid}]\n"
	applied := func(file string) []topology.Object {
		var out []topology.Object
		c := loaded(t, head+file)
		for _, e := range c.Exchanges {
			out = append(out, e)
		}
		for _, q := range c.Queues {
			out = append(out, q)
		}
		for _, b := range c.Bindings {
			out = append(out, b)
		}
		return out
	}
	other := queue("q", args{"x-managed-by": nil})
	many := make([]topology.Object, 0, 300)
	for i := range 300 {
		many = append(many, binding("events", "q", fmt.Sprintf("*.%d.#", i), nil))
	}
	for name, tc := range map[string]struct {
		before  string // the file that was applied
		foreign []topology.Object
		policy  args
		file    string
		changes []string // those that are blocked
		way     string
	}{
		"a new delay": {
			before: events, foreign: []topology.Object{
				between("events", "shop.later", "#", nil),
				exchange("shop.later", "fanout", args{"alternate-exchange": "shop.unroutable"}),
			},
			file: events + one, changes: []string{"blocked exchange shop.later"}, way: "events -> exchange:shop.later (#)",
		},
		"an alternate exchange of the file": {
			before:  "exchanges: [{name: mid}]\n",
			file:    "exchanges: [{name: events, arguments: {alternate-exchange: shop.later}}, {name: mid}]\n" + one,
			changes: []string{"blocked exchange shop.later"}, way: "events -> exchange:shop.later (its alternate exchange)",
		},
		"a new binding of the file on the way": {
			before: events + one, foreign: []topology.Object{between("mid", "shop.later", "k", nil)},
			file:    "exchanges: [{name: events}, {name: mid, bindings: [{exchange: events, key: a}]}]\n" + one,
			changes: []string{"blocked binding events -> exchange:mid (a)"},
			way:     "events -> exchange:mid (a), then mid -> exchange:shop.later (k)",
		},
		"a binding that the file no longer has": {
			before:  "exchanges: [{name: events}, {name: mid, bindings: [{exchange: events, key: a}]}]\n" + one,
			foreign: []topology.Object{between("mid", "shop.later", "k", nil)}, file: events + one,
		},
		"a binding to the intake queue": {
			before: events + one, file: events + one,
			foreign: []topology.Object{binding("events", "shop.delay.in.shop.later", "k", nil)},
			changes: []string{"blocked exchange shop.later"}, way: "events -> shop.delay.in.shop.later (k)",
		},
		"a binding to the due exchange": {
			before: events + one, file: events + one,
			foreign: []topology.Object{between("events", "shop.delay.due.shop.later", "k", nil)},
			changes: []string{"blocked exchange shop.later"}, way: "events -> exchange:shop.delay.due.shop.later (k)",
		},
		"a headers binding that can match": {
			before: events + one, file: events + one, foreign: []topology.Object{
				between("events", "h", "#", nil), exchange("h", "headers", nil),
				between("h", "shop.later", "", args{"x-match": "any", "a": "b"}),
			},
			changes: []string{"blocked exchange shop.later"},
			way:     "events -> exchange:h (#), then h -> exchange:shop.later (a=\"b\")",
		},
		"a headers binding that matches nothing": {
			before: events + one, file: events + one, foreign: []topology.Object{
				between("events", "h", "#", nil), exchange("h", "headers", nil),
				between("h", "shop.later", "", args{"x-match": "any"}),
			},
		},
		"an exchange of a plugin": {
			before: events + one, file: events + one, foreign: []topology.Object{
				between("events", "h", "#", nil), exchange("h", "x-random", nil), between("h", "shop.later", "", nil),
			},
			changes: []string{"blocked exchange shop.later"}, way: "events -> exchange:h (#), then h -> exchange:shop.later",
		},
		"a circle that is elsewhere": {
			before: events + one, file: events + one,
			foreign: []topology.Object{between("events", "mid", "#", nil), between("mid", "events", "#", nil)},
		},
		"a policy for an exchange that is new": {
			before: "exchanges: [{name: mid}]\ndelays: [{name: shop.later, to: mid, max: 1s}]\n",
			policy: args{"alternate-exchange": "shop.later"}, file: events + one,
			changes: []string{"blocked exchange events"}, way: "events -> exchange:shop.later (its alternate exchange)",
		},
		"an alternate exchange that gets nothing": {
			before: events + one, file: events + one, policy: args{"alternate-exchange": "mid"},
			foreign: []topology.Object{
				between("mid", "shop.later", "k", nil), exchange("f", "fanout", nil), between("events", "f", "#", nil),
			},
		},
		"an alternate exchange that only longer keys come to": {
			before: events + one, file: events + one, policy: args{"alternate-exchange": "mid"},
			foreign: []topology.Object{
				between("mid", "shop.later", "a.*", nil), other,
				binding("events", "q", "a.b", nil), binding("events", "q", "*", nil),
			},
			changes: []string{"blocked exchange shop.later"},
			way:     "events -> exchange:mid (its alternate exchange), then mid -> exchange:shop.later (a.*)",
		},
		"an alternate exchange that no such key comes to": {
			before: events + one, file: events + one, policy: args{"alternate-exchange": "mid"},
			foreign: []topology.Object{
				between("mid", "shop.later", "a.*", nil), other, binding("events", "q", "a.#", nil),
			},
		},
		"more bindings than are compared": {
			before: events + one, file: events + one, policy: args{"alternate-exchange": "mid"},
			foreign: append([]topology.Object{between("mid", "shop.later", "#.a", nil), other}, many...),
			changes: []string{"blocked exchange shop.later"},
			way:     "events -> exchange:mid (its alternate exchange), then mid -> exchange:shop.later (#.a)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.3.6", Have: host(append(applied(tc.before), tc.foreign...)...).Topology}
			if tc.policy != nil {
				state.Have.Policies = []topology.Policy{{
					Name: "p", Pattern: "^events$", ApplyTo: "exchanges", Definition: tc.policy,
				}}
			}
			p := plan.Make(loaded(t, head+tc.file), state, plan.Options{})
			var blocked []plan.Change
			for _, c := range p.Changes {
				if c.Action == plan.Blocked {
					blocked = append(blocked, c)
				}
			}
			if d := cmp.Diff(tc.changes, summarize(blocked)); d != "" {
				t.Errorf("blocked (-want +got):\n%s", d)
			}
			if n := len(blocked); n > 0 && !strings.Contains(blocked[n-1].Reason, "each again and again: "+tc.way+"; remove") {
				t.Errorf("the reason is %s", blocked[n-1].Reason)
			}
			// With --skip-blocked, nothing that is carried out makes such a way.
			if after := plan.Allowed(p, nil); after.Count(plan.Blocked) > 0 {
				t.Errorf("it carries out %v", summarize(after.Changes))
			}
		})
	}
}
