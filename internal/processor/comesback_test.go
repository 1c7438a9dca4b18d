package processor_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// plans returns the plan for the file of the stage, once a policy for exchanges is in effect where
// there is one.
func (s *stage) plans(t *testing.T) plan.Plan {
	t.Helper()
	m := managementtest.Client(t, s.target)
	var state topology.State
	brokertest.Eventually(t, "each policy to be in effect", func() bool {
		var err error
		if state, err = m.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(state.ExchangePolicies) == len(state.Have.Policies)
	})
	return plan.Make(s.topology, state, plan.Options{})
}

// blockedBy returns the reason of the only change of a plan, which is blocked. It is empty if
// nothing is left to do.
func blockedBy(t *testing.T, p plan.Plan) string {
	t.Helper()
	if p.Empty() {
		return ""
	}
	if len(p.Changes) != 1 || p.Changes[0].Action != plan.Blocked {
		t.Fatalf("the changes are %+v", p.Changes)
	}
	return p.Changes[0].Reason
}

// step is what another team does in a virtual host.
type step func(*testing.T, *stage)

// A plan says that messages of a delay can come back to it where a message does on the broker, and
// only there.
func TestWhereDelayedMessagesComeBack(t *testing.T) {
	t.Parallel()
	const two = "delays: [{name: shop.later, to: events}, {name: shop.again, to: orders}]\n"
	bind := func(from, to, key string) step {
		return func(t *testing.T, s *stage) {
			t.Helper()
			if err := s.eyes.ExchangeBind(to, key, from, false, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	declare := func(name, kind string) step {
		return func(t *testing.T, s *stage) {
			t.Helper()
			brokertest.DeclareExchange(t, s.eyes, name, kind, nil)
		}
	}
	spare := func(exchange string) step {
		return func(t *testing.T, s *stage) {
			t.Helper()
			s.target.Call(t, "PUT", "policies/"+s.target.VHost+"/spare", map[string]any{
				"pattern": "^events$", "apply-to": "exchanges", "definition": map[string]any{"alternate-exchange": exchange},
			})
		}
	}
	again := func(t *testing.T, s *stage) { // the exchange, with an alternate exchange
		t.Helper()
		if err := s.eyes.ExchangeDelete("events", false, false); err != nil {
			t.Fatal(err)
		}
		args := amqp091.Table{"alternate-exchange": "shop.later"}
		brokertest.DeclareExchange(t, s.eyes, "events", "topic", args)
		brokertest.Bind(t, s.eyes, "work", "a", "events", nil)
	}
	for name, tc := range map[string]struct {
		kind, work string // the type of the exchange, and the key of the work queue there
		delays     string
		foreign    []step
		key        string // of the message
		cc         []any
		way        string // empty: it does not come back
	}{
		"one binding": {
			kind: "topic", work: "#", foreign: []step{bind("events", "shop.later", "a.#")}, key: "a.b",
			way: "events -> exchange:shop.later (a.#)",
		},
		"a chain by two keys": {
			kind: "direct", work: "x", key: "a", cc: []any{"b"},
			foreign: []step{declare("mid", "direct"), bind("events", "mid", "a"), bind("mid", "shop.later", "b")},
			way:     "events -> exchange:mid (a), then mid -> exchange:shop.later (b)",
		},
		"an alternate exchange by an argument": {
			kind: "topic", work: "a", foreign: []step{again}, key: "b",
			way: "events -> exchange:shop.later (its alternate exchange)",
		},
		"an alternate exchange by a policy": {
			kind: "direct", work: "a", foreign: []step{spare("shop.later")}, key: "b",
			way: "events -> exchange:shop.later (its alternate exchange)",
		},
		"an alternate exchange that gets nothing": {
			kind: "topic", work: "#", foreign: []step{spare("shop.later")}, key: "b",
		},
		"behind an alternate exchange, a key that it gets": {
			kind: "direct", work: "a", key: "b",
			foreign: []step{declare("mid", "topic"), bind("mid", "shop.later", "b"), spare("mid")},
			way:     "events -> exchange:mid (its alternate exchange), then mid -> exchange:shop.later (b)",
		},
		"behind an alternate exchange, a key that never comes there": {
			kind: "direct", work: "a", key: "a", cc: []any{"b"},
			foreign: []step{declare("mid", "topic"), bind("mid", "shop.later", "a"), spare("mid")},
		},
		"two delays": {
			kind: "topic", work: "#", delays: two, key: "a",
			foreign: []step{bind("events", "shop.again", "a"), bind("orders", "shop.later", "#")},
			way: "events -> exchange:shop.again (a), then the delay shop.again publishes to orders, " +
				"then orders -> exchange:shop.later (#)",
		},
		"another delay that leads elsewhere": {
			kind: "topic", work: "#", delays: two, key: "a", foreign: []step{bind("orders", "shop.later", "#")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			ch := target.Channel(t)
			brokertest.DeclareExchange(t, ch, "events", tc.kind, nil)
			if tc.delays == "" {
				tc.delays = "delays: [{name: shop.later, to: events}]\n"
			}
			file := "version: 1\nname: shop\n" +
				"exchanges: [{name: events, external: true, type: " + tc.kind + "}, {name: orders}]\n" +
				tc.delays + "queues: [{name: work, backoff: none, bindings: [{exchange: events, key: '" + tc.work + "'}]}]\n"
			s := newStageOn(t, target, spec.Source{Name: "topology.yaml", Data: []byte(file)},
				func(string) (string, bool) { return "", false })
			run(t, s.processor(t))
			brokertest.Declare(t, ch, "seen", nil)
			brokertest.Bind(t, ch, "seen", "", "shop.later", nil)
			for _, do := range tc.foreign {
				do(t, s)
			}
			want := ""
			if tc.way != "" {
				want = "messages of the delay shop.later that are due can come back to it, each again and again: " + tc.way +
					"; remove one of these steps, or let the delay publish to another exchange (to)"
			}
			p := s.plans(t)
			// Each of two delays has the other one on its way.
			p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool { return tc.way != "" && c.Name == "shop.again" })
			if d := cmp.Diff(want, blockedBy(t, p)); d != "" {
				t.Errorf("the reason (-want +got):\n%s", d)
			}
			headers := amqp091.Table{"x-delay": int32(0)}
			if tc.cc != nil {
				headers["CC"] = tc.cc
			}
			s.publish(t, "shop.later", tc.key, amqp091.Publishing{MessageId: "m", Headers: headers})
			if tc.way == "" {
				if m := s.bury(t, "work"); m.MessageId != "m" {
					t.Errorf("work has %s", m.MessageId)
				}
				// Behind the next message nothing of the first one can come any more.
				s.publish(t, "shop.later", tc.key, amqp091.Publishing{MessageId: "next", Headers: headers})
				if m := s.bury(t, "work"); m.MessageId != "next" {
					t.Errorf("work has %s", m.MessageId)
				}
				if n := s.ready(t, "seen"); n != 2 {
					t.Errorf("%d messages came to the delay", n)
				}
				return
			}
			n := 0
			brokertest.Eventually(t, "the message to come back", func() bool { n = s.ready(t, "seen"); return n > 2 }, &n)
		})
	}
}
