package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Who can bring messages to the queue invoices by its name, and who cannot.
func TestFeeders(t *testing.T) {
	t.Parallel()
	q := func(name string, dead ...string) topology.Queue {
		a := topology.Arguments{"x-queue-type": "classic"}
		if len(dead) > 0 {
			a["x-dead-letter-exchange"] = dead[0]
		}
		if len(dead) > 1 {
			a["x-dead-letter-routing-key"] = dead[1]
		}
		return topology.Queue{Name: name, Durable: true, Arguments: a}
	}
	policy := func(pattern, exchange, key string) []topology.Policy {
		return []topology.Policy{{
			Name: "p", Pattern: pattern, ApplyTo: "queues",
			Definition: topology.Arguments{"dead-letter-exchange": exchange, "dead-letter-routing-key": key},
		}}
	}
	invoices := q("invoices", "", "invoices.wait")
	direct := exchange("retry", "direct", nil)
	for name, tc := range map[string]struct {
		have     topology.Topology
		policies []topology.Policy
		operator []topology.Policy
		usage    map[string]topology.Usage
		want     []string
	}{
		"no feeder": {have: host(invoices, q("other"), q("third", "dlx", "invoices")).Topology},
		"itself":    {have: host(q("invoices", "", "invoices")).Topology},
		"a retry queue": {
			have: host(invoices, q("invoices.wait", "", "invoices")).Topology,
			want: []string{"invoices.wait to invoices"},
		},
		"another key": {have: host(invoices, q("orders.wait", "", "orders")).Topology},
		"by a policy": {
			have:     host(invoices, q("invoices.wait")).Topology,
			policies: policy(`\.wait$`, "", "invoices"), want: []string{"invoices.wait to invoices"},
		},
		"by operator policy": {
			have:     host(invoices, q("invoices.wait")).Topology,
			operator: policy(`\.wait$`, "", "invoices"), want: []string{"invoices.wait to invoices"},
		},
		"argument beats": {
			have:     host(invoices, q("invoices.wait", "", "orders")).Topology,
			policies: policy(`\.wait$`, "", "invoices"),
		},
		"key by policy alone": {
			have:     host(invoices, q("invoices.wait", "")).Topology,
			policies: policy(`\.wait$`, "x", "invoices"), want: []string{"invoices.wait to invoices"},
		},
		"no key": {have: host(invoices, q("delay", "")).Topology, want: []string{"delay to invoices, any key"}},
		"in two hops": {
			have: host(invoices, q("invoices.wait", "", "invoices.wait2"),
				q("invoices.wait2", "", "invoices")).Topology,
			want: []string{"invoices.wait to invoices.wait2", "invoices.wait2 to invoices"},
		},
		"in two hops by a named exchange": {
			have: host(invoices, direct, q("first", "retry", "second"), q("other", "retry", "third"),
				q("second", "", "invoices"), binding("retry", "second", "second", nil)).Topology,
			want: []string{"first to second", "second to invoices"},
		},
		"a shared delay queue that is fed with other keys": {
			have: host(invoices, direct, q("delay", ""), q("orders", "retry", "orders"), q("mail", "", "delay"),
				binding("retry", "delay", "orders", nil)).Topology,
			want: []string{"delay to invoices, any key; the exchange retry routes messages to it"},
		},
		"a shared delay queue that is fed with this key": {
			have: host(invoices, exchange("retry", "fanout", nil), q("delay", ""), q("orders", "retry", "invoices"),
				binding("retry", "delay", "", nil)).Topology,
			want: []string{"delay to invoices, any key", "orders to delay"},
		},
		"in use": {
			have: host(invoices, exchange("events", "topic", nil), q("orders", "", "invoices"),
				binding("events", "orders", "#", nil)).Topology,
			usage: map[string]topology.Usage{"orders": {Consumers: 1}},
			want:  []string{"orders to invoices; it has 1 consumer; the exchange events routes messages to it"},
		},
		"fed by the queue's own dead-letter exchange": {
			have: host(q("invoices", "retry"), exchange("retry", "fanout", nil), q("invoices.wait", "", "invoices"),
				binding("retry", "invoices.wait", "", nil)).Topology,
			want: []string{"invoices.wait to invoices"},
		},
		"a circle that does not reach it": {have: host(invoices, q("a", "", "b"), q("b", "", "a")).Topology},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.have.Policies = tc.policies
			state := topology.State{Version: "4.0.5", Have: tc.have, Usage: tc.usage, OperatorPolicies: tc.operator}
			var got []string
			for _, f := range plan.Feeders(state, "invoices") {
				text := f.Name + " to " + f.To
				if f.AnyKey {
					text += ", any key"
				}
				got = append(got, strings.Join(append([]string{text}, f.Open...), "; "))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("feeders (-want +got):\n%s", d)
			}
		})
	}
}
