package survey_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// Who can bring messages to the queue invoices by its name, who cannot, and who else uses these
// queues.
func TestFeeders(t *testing.T) {
	t.Parallel()
	q := func(name string, dead ...string) topology.Queue {
		a := topology.Arguments{"x-queue-type": "classic"}
		if strings.HasPrefix(name, "delay") {
			a["x-message-ttl"] = int64(1000)
		}
		if len(dead) > 0 {
			a["x-dead-letter-exchange"] = dead[0]
		}
		if len(dead) > 1 {
			a["x-dead-letter-routing-key"] = dead[1]
		}
		return topology.Queue{Name: name, Durable: true, Arguments: a}
	}
	policy := func(exchange, key string) topology.Policy {
		return topology.Policy{
			Name: "p", Pattern: `\.wait$`, ApplyTo: "queues",
			Definition: topology.Arguments{"dead-letter-exchange": exchange, "dead-letter-routing-key": key},
		}
	}
	exchange := func(name, kind string) topology.Exchange {
		return topology.Exchange{Name: name, Type: kind, Durable: true}
	}
	bound := func(source, queue, key string) topology.Binding {
		return topology.Binding{Source: source, Destination: queue, DestinationType: topology.ToQueue, Key: key}
	}
	invoices := q("invoices", "", "invoices.wait")
	for name, tc := range map[string]struct {
		have  []topology.Object
		usage map[string]topology.Usage
		want  []string
	}{
		"no feeder": {have: []topology.Object{invoices, q("other"), q("third", "dlx", "invoices")}},
		"itself":    {have: []topology.Object{q("invoices", "", "invoices")}},
		"a retry queue": {
			have: []topology.Object{invoices, q("invoices.wait", "", "invoices")},
			want: []string{"invoices.wait to invoices"},
		},
		"another key": {have: []topology.Object{invoices, q("orders.wait", "", "orders")}},
		"by a policy": {
			have: []topology.Object{invoices, q("invoices.wait"), policy("", "invoices")},
			want: []string{"invoices.wait to invoices"},
		},
		"argument beats": {have: []topology.Object{invoices, q("invoices.wait", "", "orders"), policy("", "invoices")}},
		"key by policy alone": {
			have: []topology.Object{invoices, q("invoices.wait", ""), policy("x", "invoices")},
			want: []string{"invoices.wait to invoices"},
		},
		"no key": {
			have: []topology.Object{invoices, q("delay", "")}, want: []string{"delay to invoices, any key, unsure"},
		},
		"no key, and messages do not wait": {have: []topology.Object{invoices, q("orders", "")}},
		"in two hops": {
			have: []topology.Object{
				invoices, q("invoices.wait", "", "invoices.wait2"), q("invoices.wait2", "", "invoices"),
			},
			want: []string{"invoices.wait to invoices.wait2", "invoices.wait2 to invoices"},
		},
		"in two hops by a named exchange": {
			have: []topology.Object{
				invoices, exchange("retry", "direct"), q("first", "retry", "second"), q("other", "retry", "third"),
				q("second", "", "invoices"), bound("retry", "second", "second"),
			},
			want: []string{"first to second", "second to invoices"},
		},
		"a shared delay queue that is fed with other keys": {
			have: []topology.Object{
				invoices, exchange("retry", "direct"), q("delay", ""), q("orders", "retry", "orders"), q("mail", "", "delay"),
				bound("retry", "delay", "orders"),
			},
			want: []string{"delay to invoices, any key, unsure; used by mail, orders; returns orders"},
		},
		"a shared delay queue that is fed with this key": {
			have: []topology.Object{
				invoices, exchange("retry", "fanout"), q("delay", ""), q("orders", "retry", "invoices"),
				bound("retry", "delay", ""),
			},
			want: []string{"delay to invoices, any key", "orders to delay"},
		},
		"a shared delay queue to which publishers send this key": {
			have: []topology.Object{
				q("invoices"), exchange("later", "direct"), q("delay", ""), bound("later", "delay", "invoices"),
			},
			want: []string{"delay to invoices, any key; the exchange later routes messages to it; gets messages of later"},
		},
		"a shared retry queue": {
			have: []topology.Object{
				q("invoices", "retry", "invoices"), q("orders", "retry", "orders"), q("mail", "retry", "mail"),
				exchange("retry", "headers"), q("delay", ""), bound("retry", "delay", ""), exchange("events", "topic"),
				bound("events", "invoices", "#"), bound("events", "orders", "#"),
			},
			want: []string{"delay to invoices, any key; used by mail, orders; returns mail, orders"},
		},
		"the retry queue of others": {
			have: []topology.Object{
				q("invoices"), q("orders", "retry", "orders"), exchange("retry", "headers"), q("delay", ""),
				bound("retry", "delay", ""),
			},
			want: []string{"delay to invoices, any key, unsure; used by orders; returns orders"},
		},
		"a retry queue that nothing dead-letters to": {
			have: []topology.Object{q("invoices"), exchange("retry", "headers"), q("delay", ""), bound("retry", "delay", "")},
			want: []string{"delay to invoices, any key, unsure; gets messages of retry"},
		},
		"queues that share a retry queue by the keys of their messages": {
			have: []topology.Object{
				q("invoices", "retry"), q("orders", "retry"), exchange("retry", "fanout"), q("delay", ""),
				bound("retry", "delay", ""), exchange("tasks", "direct"), bound("tasks", "invoices", "invoices"),
				bound("tasks", "orders", "orders"),
			},
			usage: map[string]topology.Usage{"orders": {Consumers: 1}},
			want:  []string{"delay to invoices, any key; used by orders; returns orders"},
		},
		"in use": {
			have: []topology.Object{
				invoices, exchange("events", "topic"), q("orders", "", "invoices"), bound("events", "orders", "#"),
			},
			usage: map[string]topology.Usage{"orders": {Consumers: 1}},
			want: []string{
				"orders to invoices; it has 1 consumer; the exchange events routes messages to it; gets messages of events",
			},
		},
		"fed by the queue's own dead-letter exchange": {
			have: []topology.Object{
				q("invoices", "retry"), exchange("retry", "fanout"), q("invoices.wait", "", "invoices"),
				bound("retry", "invoices.wait", ""),
			},
			want: []string{"invoices.wait to invoices"},
		},
		"a circle that does not reach it": {have: []topology.Object{invoices, q("a", "", "b"), q("b", "", "a")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.0.5", Usage: tc.usage}
			for _, o := range tc.have {
				switch o := o.(type) {
				case topology.Queue:
					state.Have.Queues = append(state.Have.Queues, o)
				case topology.Exchange:
					state.Have.Exchanges = append(state.Have.Exchanges, o)
				case topology.Binding:
					state.Have.Bindings = append(state.Have.Bindings, o)
				case topology.Policy:
					state.Have.Policies = append(state.Have.Policies, o)
				}
			}
			var got []string
			for _, f := range survey.New(state).Feeders("invoices") {
				line := f.Name + " to " + f.Next
				for text, is := range map[string]bool{", any key": f.AnyKey && !f.Unsure, ", any key, unsure": f.Unsure} {
					if is {
						line += text
					}
				}
				line = strings.Join(append([]string{line}, f.Open...), "; ")
				for _, names := range []struct {
					what string
					list []string
				}{{"used by", f.Others}, {"returns", f.Returned}, {"gets messages of", f.Exchanges}} {
					if len(names.list) > 0 {
						line += fmt.Sprintf("; %s %s", names.what, strings.Join(names.list, ", "))
					}
				}
				got = append(got, line)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("feeders (-want +got):\n%s", d)
			}
		})
	}
}
