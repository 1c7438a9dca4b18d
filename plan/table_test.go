package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// args are arguments with the mark of shop, unless they say otherwise.
type args = topology.Arguments

func with(more args) args {
	out := args{"x-queue-type": "quorum", "x-managed-by": "dlxctl/shop"}
	for name, v := range more {
		out[name] = v
		if v == nil {
			delete(out, name)
		}
	}
	return out
}

func queue(name string, more args) topology.Queue {
	return topology.Queue{
		Name: name, Durable: true, Arguments: with(more),
		Label: topology.Label{Role: topology.RoleWork, Queue: name},
	}
}

func exchange(name, typ string, a args) topology.Exchange {
	return topology.Exchange{
		Name: name, Type: typ, Durable: true, Arguments: a,
		Label: topology.Label{Role: topology.RoleBusiness},
	}
}

func binding(source, queue, key string, a args) topology.Binding {
	return topology.Binding{
		Source: source, Destination: queue, DestinationType: topology.ToQueue, Key: key, Arguments: a,
		Label: topology.Label{Role: topology.RoleBusiness, Queue: queue},
	}
}

// host puts objects together.
func host(objects ...topology.Object) topology.Compiled {
	t := topology.Compiled{Name: "shop"}
	for _, o := range objects {
		switch o := o.(type) {
		case topology.Queue:
			t.Queues = append(t.Queues, o)
		case topology.Exchange:
			t.Exchanges = append(t.Exchanges, o)
		case topology.Binding:
			t.Bindings = append(t.Bindings, o)
		case topology.Policy:
			t.Policies = append(t.Policies, o)
		}
	}
	return t
}

// counting is a loop whose bindings match the header of that name.
func counting(header string) topology.Compiled {
	dlx := exchange("shop.a.dlx", "headers", args{"x-managed-by": "dlxctl/shop"})
	dlx.Label.Role = topology.RoleRetry
	b := binding("shop.a.dlx", "shop.a.retry.1m", "",
		args{"x-match": "all", header: int64(1), "x-managed-by": "dlxctl/shop"})
	b.Label.Role = topology.RoleRetry
	retry := queue("shop.a.retry.1m", args{"x-message-ttl": int64(60000)})
	retry.Label = topology.Label{Role: topology.RoleRetry, Backoff: "a"}
	t := host(dlx, retry, b)
	t.CountHeader = header
	t.Backoffs = []topology.Backoff{{Name: "a", FailedQueue: "shop.a.failed", RetryExchange: "shop.a.dlx"}}
	return t
}

// summarize returns each change as a line: action, kind, name, the fields that
// differ, the hazards.
func summarize(changes []plan.Change) []string {
	var out []string
	for _, c := range changes {
		line := string(c.Action) + " " + string(c.Kind) + " " + c.Name
		if c.Action != plan.Create && c.Action != plan.Delete && len(c.Fields) > 0 {
			var names []string
			for _, f := range c.Fields {
				names = append(names, f.Name)
			}
			line += " [" + strings.Join(names, " ") + "]"
		}
		for _, h := range c.Hazards {
			line += " " + string(h)
		}
		out = append(out, line)
	}
	return out
}

func TestMake(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	external := func(typ string) topology.Exchange {
		return topology.Exchange{Name: "bus", Type: typ, External: true, Label: topology.Label{Role: topology.RoleBusiness}}
	}
	transient := queue("q", nil)
	transient.Durable = false
	retry := queue("shop.a.retry.1m", args{"x-message-ttl": int64(60000)})
	dlx := exchange("shop.a.dlx", "headers", mark)
	dlx.Label.Role = topology.RoleRetry
	toRetry := binding("shop.a.dlx", "shop.a.retry.1m", "",
		args{"x-match": "all", "count": int64(1), "x-managed-by": "dlxctl/shop"})
	back := exchange("shop.return", "direct", args{"alternate-exchange": "shop.unroutable", "x-managed-by": "dlxctl/shop"})
	toWork, toGone := binding("shop.return", "q", "@q", mark), binding("shop.return", "gone", "@gone", mark)
	stray, toStray := exchange("shop.unroutable", "fanout", mark), binding("shop.unroutable", "shop.unroutable", "", mark)
	strays := queue("shop.unroutable", nil)
	dead := queue("q.dead", nil)
	dead.Label = topology.Label{Role: topology.RoleDeadLetter, Queue: "q"}
	classicDead := queue("q.dead", args{"x-queue-type": "classic"})
	classicDead.Label = dead.Label
	externalDead := topology.Queue{Name: "q.dead", External: true, Label: dead.Label}

	for name, tc := range map[string]struct {
		want, have topology.Compiled
		usage      map[string]topology.Usage
		options    plan.Options
		changes    []string
		drift      []string
		reason     string // part of that of the first change
		warning    string // the name of one
	}{
		"a stream of another team that dlxctl leaves alone": {
			want: host(topology.Queue{Name: "s", External: true, Label: topology.Label{Role: topology.RoleWork, Queue: "s"}}),
			have: host(queue("s", args{"x-queue-type": "stream", "x-managed-by": nil})),
		},
		"an external dead-letter queue, with bindings that no file lists": {
			want: host(externalDead), have: host(classicDead, binding("old", "q.dead", "k", nil)),
		},
		"another binding to an external queue": {
			want: host(topology.Queue{Name: "q", External: true, Label: topology.Label{Role: topology.RoleWork, Queue: "q"}}),
			have: host(queue("q", args{"x-managed-by": nil}), binding("old", "q", "k", nil)),
		},
		"a service's own binding between an external exchange and an external queue": {
			want: host(topology.Exchange{Name: "e", External: true, Label: topology.Label{Role: topology.RoleBusiness}},
				topology.Queue{Name: "q", External: true, Label: topology.Label{Role: topology.RoleWork, Queue: "q"}}),
			have:    host(exchange("e", "topic", nil), queue("q", args{"x-managed-by": nil}), binding("e", "q", "k", nil)),
			options: plan.Options{Prune: true},
		},
		"another binding from an exchange of the file to an external queue": {
			want: host(exchange("e", "topic", mark),
				topology.Queue{Name: "q", External: true, Label: topology.Label{Role: topology.RoleWork, Queue: "q"}}),
			have:  host(exchange("e", "topic", mark), queue("q", args{"x-managed-by": nil}), binding("e", "q", "k", nil)),
			drift: []string{"delete binding e -> q (k) drops-routing"},
		},
		"a new queue": {want: host(queue("q", nil)), changes: []string{"create queue q"}, warning: "default-delivery-limit"},
		"the same queue": {
			want: host(queue("q", args{"x-message-ttl": int64(1000)})),
			have: host(queue("q", args{"x-message-ttl": int64(1000)})),
		},
		"a queue that a service declared just so is used as it is": {
			want: host(queue("q", nil)), have: host(queue("q", args{"x-managed-by": nil})),
		},
		"an argument that no broker compares is the service's affair": {
			want: host(queue("q", nil)), have: host(queue("q", args{"x-managed-by": nil, "x-queue-leader-locator": "balanced"})),
		},
		"an argument that the broker compares and the file does not say": {
			want: host(queue("q", nil)), have: host(queue("q", args{"x-managed-by": nil, "x-message-ttl": int64(5)})),
			changes: []string{"blocked queue q [x-message-ttl] replaces-queue"}, reason: "replaces: and dlxctl migrate",
		},
		"an argument that the file says and the queue has not": {
			want:    host(queue("q", args{"x-queue-leader-locator": "balanced"})),
			have:    host(queue("q", args{"x-managed-by": nil})),
			changes: []string{"blocked queue q [x-queue-leader-locator] replaces-queue"},
		},
		"a queue of another type": {
			want: host(queue("q", nil)), have: host(queue("q", args{"x-managed-by": nil, "x-queue-type": "classic"})),
			changes: []string{"blocked queue q [x-queue-type] replaces-queue"}, reason: "406 PRECONDITION_FAILED",
		},
		"a queue that is not durable": {
			want:    host(queue("q", nil)),
			have:    host(func() topology.Queue { q := transient; q.Arguments = with(args{"x-managed-by": nil}); return q }()),
			changes: []string{"blocked queue q [durable] replaces-queue"},
		},
		"a queue of another topology": {
			want: host(queue("q", nil)), have: host(queue("q", args{"x-managed-by": "dlxctl/other"})),
			changes: []string{"blocked queue q"},
			reason:  `the queue belongs to the topology "other", and the topology "shop" declares it too; its owner mark is an argument, which RabbitMQ cannot change: keep it in the file of "other" alone, or give it another name in that of "shop"`,
		},
		"an exchange of another topology": {
			want: host(exchange("e", "topic", mark)), have: host(exchange("e", "topic", args{"x-managed-by": "dlxctl/other"})),
			changes: []string{"blocked exchange e"},
			reason:  `which RabbitMQ cannot change: write external: true in the file of "shop", or give it another name there`,
		},
		"an exchange of another topology that is external": {
			want: host(func() topology.Exchange { e := exchange("e", "topic", nil); e.External = true; return e }()),
			have: host(exchange("e", "topic", args{"x-managed-by": "dlxctl/other"})),
		},
		"our queue with other arguments, empty and unused": {
			want: host(queue("q", args{"x-message-ttl": int64(2)})), have: host(queue("q", args{"x-message-ttl": int64(1)})),
			changes: []string{"replace queue q [x-message-ttl]"},
		},
		"our queue with other arguments, bound": {
			want: host(exchange("e", "topic", mark), queue("q", args{"x-message-ttl": int64(2)}),
				binding("e", "q", "k", mark)),
			have: host(exchange("e", "topic", mark), queue("q", nil), binding("e", "q", "k", mark),
				binding("e", "q", "foreign", nil)),
			changes: []string{
				"replace queue q [x-message-ttl] drops-routing", "create binding e -> q (k)",
				"create binding e -> q (foreign)",
			},
			drift: []string{"delete binding e -> q (foreign) drops-routing"},
		},
		"our queue with other arguments, in use": {
			want: host(queue("q", args{"x-message-ttl": int64(2)})), have: host(queue("q", nil)),
			usage:   map[string]topology.Usage{"q": {Consumers: 1}},
			changes: []string{"blocked queue q [x-message-ttl] replaces-queue"}, reason: "replaces the queue",
		},
		"a generated queue of another type": {
			want: host(dead), have: host(classicDead),
			changes: []string{"blocked queue q.dead [x-queue-type]"},
			reason:  "Shortest fix: set defaults.type: classic again, and type: quorum on the work queues; or delete q.dead manually",
		},
		"a queue that is no longer declared": {
			have:    host(queue("q", nil)),
			changes: []string{"delete queue q"},
		},
		"a queue that is no longer declared and in use": {
			have:  host(exchange("e", "topic", nil), queue("q", nil), binding("e", "q", "k", mark)),
			usage: map[string]topology.Usage{"q": {Ready: 3, Consumers: 1}},
			changes: []string{
				"delete binding e -> q (k) drops-routing",
				"delete queue q loses-messages stops-consumers drops-routing",
			},
		},
		"what is foreign stays": {
			have: host(queue("q", args{"x-managed-by": nil}), queue("r", args{"x-managed-by": "dlxctl/other"}),
				exchange("e", "topic", nil)),
		},
		"a retired tier that is bound is unbound first": {
			want: host(dlx), have: host(dlx, retry, toRetry),
			changes: []string{"delete binding shop.a.dlx -> shop.a.retry.1m (count=1)"}, warning: "retired-tier",
		},
		"a retired tier with messages stays": {
			want: host(dlx), have: host(dlx, retry), usage: map[string]topology.Usage{retry.Name: {Unacknowledged: 1}},
			warning: "retired-tier",
		},
		"a retired tier that is empty goes": {
			want: host(dlx), have: host(dlx, retry), changes: []string{"delete queue shop.a.retry.1m"},
		},
		"the last backoff retired, its tier bound": {
			want:    host(queue("q", nil), stray, strays, toStray),
			have:    host(queue("q", nil), stray, strays, toStray, dlx, retry, toRetry, back, toWork),
			changes: []string{"delete binding shop.a.dlx -> shop.a.retry.1m (count=1)", "delete exchange shop.a.dlx"},
			warning: "retired-tier",
		},
		"the last backoff retired, its tier with a message": {
			want:  host(queue("q", nil), stray, strays, toStray),
			have:  host(queue("q", nil), stray, strays, toStray, retry, back, toWork),
			usage: map[string]topology.Usage{retry.Name: {Ready: 1}}, warning: "retired-tier",
		},
		"the last backoff retired, its tier empty": {
			want: host(queue("q", nil), stray, strays, toStray),
			have: host(queue("q", nil), stray, strays, toStray, retry, back, toWork),
			changes: []string{
				"delete queue shop.a.retry.1m", "delete binding shop.return -> q (@q)",
				"delete exchange shop.return",
			},
		},
		"the last backoff retired, its work queue made again": {
			want: host(queue("q", args{"x-message-ttl": int64(2)})), have: host(queue("q", nil), retry, back, toWork),
			usage:   map[string]topology.Usage{retry.Name: {Ready: 1}},
			changes: []string{"replace queue q [x-message-ttl]", "create binding shop.return -> q (@q)"},
		},
		"all queues taken out, a tier with a message": {
			have:    host(queue("gone", nil), retry, back, toGone, stray, strays, toStray),
			usage:   map[string]topology.Usage{retry.Name: {Ready: 1}},
			changes: []string{"delete binding shop.return -> gone (@gone)", "delete queue gone"}, warning: "retired-tier",
		},
		"all queues taken out, the tier empty": {
			have: host(queue("gone", nil), retry, back, toGone, stray, strays, toStray),
			changes: []string{
				"delete binding shop.return -> gone (@gone)", "delete queue gone", "delete queue shop.a.retry.1m",
				"delete binding shop.unroutable -> shop.unroutable", "delete queue shop.unroutable",
				"delete exchange shop.return", "delete exchange shop.unroutable",
			},
		},
		"a queue without a backoff now next to another with one": {
			want:  host(queue("q", nil), queue("gone", nil), back, toWork),
			have:  host(queue("q", nil), queue("gone", nil), retry, back, toWork, toGone),
			usage: map[string]topology.Usage{retry.Name: {Ready: 1}}, warning: "retired-address",
		},

		"a binding that a service made just so is used as it is": {
			want: host(exchange("e", "topic", mark), queue("q", nil), binding("e", "q", "k", mark)),
			have: host(exchange("e", "topic", mark), queue("q", nil), binding("e", "q", "k", nil)),
		},
		"a binding of another topology next to the wanted one": {
			want: host(exchange("e", "topic", mark), queue("q", nil), binding("e", "q", "k", mark)),
			have: host(exchange("e", "topic", mark), queue("q", nil),
				binding("e", "q", "k", args{"x-managed-by": "dlxctl/other"})),
			changes: []string{"create binding e -> q (k)"},
		},
		"a binding that no file declares is drift": {
			want: host(exchange("e", "topic", mark), queue("q", nil)),
			have: host(exchange("e", "topic", mark), queue("q", nil), binding("e", "q", "k", nil),
				binding("e", "foreign", "k", nil)),
			drift: []string{"delete binding e -> q (k) drops-routing"},
		},
		"drift is deleted when it is pruned": {
			want:    host(exchange("e", "topic", mark), queue("q", nil)),
			have:    host(exchange("e", "topic", mark), queue("q", nil), binding("e", "q", "k", nil)),
			options: plan.Options{Prune: true},
			changes: []string{"delete binding e -> q (k) drops-routing"},
		},

		"another count header while a processor runs": {
			want:  counting("tries"),
			have:  counting("count"),
			usage: map[string]topology.Usage{"shop.a.failed": {Consumers: 2}},
			changes: []string{
				"blocked exchange shop.a.dlx [countHeader]",
				"create binding shop.a.dlx -> shop.a.retry.1m (tries=1)", "delete binding shop.a.dlx -> shop.a.retry.1m (count=1)",
			},
			reason: "has 2 consumers; stop the processors",
		},
		"another count header without a processor": {
			want: counting("tries"),
			have: counting("count"),
			changes: []string{
				"create binding shop.a.dlx -> shop.a.retry.1m (tries=1)",
				"delete binding shop.a.dlx -> shop.a.retry.1m (count=1)",
			},
		},

		"an exchange of a type with a slip": {
			want: host(exchange("e", "topci", mark)), changes: []string{"blocked exchange e"},
			reason: `did you mean "topic"? If not, enable the plugin that provides it`,
		},
		"an exchange that is not durable": {
			want: host(exchange("e", "topic", mark)), have: host(topology.Exchange{Name: "e", Type: "topic"}),
			changes: []string{"blocked exchange e [durable]"},
			reason:  "declared with durable false, for which topology files have no key; set external: true",
		},
		"an external exchange that is missing": {
			want: host(external("")), changes: []string{"blocked exchange bus"}, reason: "is external and does not exist",
		},
		"an external exchange of any type": {want: host(external("")), have: host(exchange("bus", "fanout", nil))},
		"an external exchange of another type": {
			want: host(external("topic")), have: host(exchange("bus", "fanout", nil)),
			changes: []string{"blocked exchange bus [type]"}, reason: "has the type fanout",
		},
		"an exchange of a type that no plugin brings": {
			want: host(exchange("e", "x-delayed-message", mark)), changes: []string{"blocked exchange e"},
			reason: "enable the plugin that provides it",
		},
		"an exchange of another type": {
			want: host(exchange("e", "topic", mark)), have: host(exchange("e", "direct", nil)),
			changes: []string{"blocked exchange e [type]"},
		},
		"an exchange with an alternate exchange that the file does not say": {
			want:    host(exchange("e", "topic", mark)),
			have:    host(exchange("e", "topic", args{"alternate-exchange": "x"})),
			changes: []string{"blocked exchange e [alternate-exchange]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Name = "shop"
			p := plan.Make(tc.want,
				topology.State{
					Version: "4.0.5", ExchangeTypes: []string{"direct", "fanout", "headers", "topic"},
					Have: tc.have.Topology, Usage: tc.usage,
				}, tc.options)
			if d := cmp.Diff(tc.changes, summarize(p.Changes)); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.drift, summarize(p.Drift)); d != "" {
				t.Errorf("drift (-want +got):\n%s", d)
			}
			if tc.reason != "" && !strings.Contains(p.Changes[0].Reason, tc.reason) {
				t.Errorf("the reason is %q", p.Changes[0].Reason)
			}
			if got := slices.ContainsFunc(p.Warnings,
				func(w plan.Warning) bool { return w.Name == tc.warning }); tc.warning != "" && !got {
				t.Errorf("the warnings are %v, want one of %s", p.Warnings, tc.warning)
			}
		})
	}
}

// As long as anything of the last loop is held back, messages can still come
// back: what leads them stays with it.
func TestAllowedKeepsTheReturnPath(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	retry := queue("shop.a.retry.1m", args{"x-message-ttl": int64(60000)})
	have := host(queue("q", nil), queue("shop.a.failed", nil), retry,
		exchange("shop.return", "direct", args{"alternate-exchange": "shop.unroutable", "x-managed-by": "dlxctl/shop"}),
		binding("shop.return", "q", "@q", mark),
		exchange("shop.unroutable", "fanout", mark), queue("shop.unroutable", nil),
		binding("shop.unroutable", "shop.unroutable", "", mark))
	all := []string{
		"delete queue q", "delete queue shop.a.failed", "delete queue shop.a.retry.1m", "delete exchange shop.return",
		"delete binding shop.return -> q (@q)", "delete exchange shop.unroutable", "delete queue shop.unroutable",
		"delete binding shop.unroutable -> shop.unroutable",
	}
	slices.Sort(all)
	for name, tc := range map[string]struct {
		usage map[string]topology.Usage
		stays []string // in addition to the return path
	}{
		"nothing held": {},
		"a failed queue held": {
			map[string]topology.Usage{"shop.a.failed": {Ready: 1}},
			[]string{"delete queue shop.a.failed", "delete queue shop.a.retry.1m"},
		},
		"a tier held": {
			map[string]topology.Usage{retry.Name: {Consumers: 1}},
			[]string{"delete queue shop.a.retry.1m"},
		},
		"the work queue held": {
			map[string]topology.Usage{"q": {Consumers: 1}},
			[]string{"delete queue q", "delete binding shop.return -> q (@q)"},
		},
		"stray messages remain": {map[string]topology.Usage{"shop.unroutable": {Ready: 1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Make(topology.Compiled{Name: "shop"},
				topology.State{Version: "4.0.5", Have: have.Topology, Usage: tc.usage}, plan.Options{})
			if d := cmp.Diff(all, slices.Sorted(slices.Values(bare(p)))); d != "" {
				t.Fatalf("the plan (-want +got):\n%s", d)
			}
			want := slices.DeleteFunc(slices.Clone(all), func(line string) bool {
				back := strings.Contains(line, "shop.unroutable") || name != "stray messages remain" &&
					line == "delete exchange shop.return"
				return len(tc.usage) > 0 && back || slices.Contains(tc.stays, line)
			})
			if d := cmp.Diff(want, slices.Sorted(slices.Values(bare(plan.Allowed(p, nil))))); d != "" {
				t.Errorf("what is carried out (-want +got):\n%s", d)
			}
		})
	}
}

// bare returns the changes of p without their hazards.
func bare(p plan.Plan) []string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, string(c.Action)+" "+string(c.Kind)+" "+c.Name)
	}
	return out
}

// What leads back waits with a tier for a later apply, and only with one.
func TestLater(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	retry := queue("shop.a.retry.1m", args{"x-message-ttl": int64(60000)})
	back := []topology.Object{
		exchange("shop.return", "direct", mark), queue("q", nil),
		binding("shop.return", "q", "@q", mark),
	}
	left := func(objects ...topology.Object) plan.Plan {
		return plan.Make(host(queue("q", nil)),
			topology.State{Version: "4.0.5", Have: host(append(objects, back...)...).Topology}, plan.Options{})
	}
	if p := plan.Later(plan.Plan{}, left(retry)); !p.Empty() || !slices.Equal(p.Retiring, []string{retry.Name}) {
		t.Errorf("with a tier that was not to be deleted %v is left, and %v retires", bare(p), p.Retiring)
	}
	if p := plan.Later(left(retry), left(retry)); len(p.Changes) != 3 {
		t.Errorf("of what was to be deleted %v is left", bare(p))
	}
	outage := exchange(retry.Name, "fanout", mark) // as that of a queue for outages: it waits too
	if p := plan.Later(plan.Plan{Retiring: []string{retry.Name}}, left(retry, outage)); !p.Empty() {
		t.Errorf("with a queue for outages that stays %v is left", bare(p))
	}
	bound := bare(left(retry, outage, binding(retry.Name, retry.Name, "", mark)))
	if slices.Contains(bound, "delete exchange "+retry.Name) || len(bound) != 1 {
		t.Errorf("while a queue for outages is bound, the plan is %v", bound)
	}
	if p := plan.Later(plan.Plan{}, left()); len(p.Changes) != 2 {
		t.Errorf("without a tier %v is left", bare(p))
	}
}

// Consent is by name, and covers nothing but that name.
func TestCheck(t *testing.T) {
	t.Parallel()
	change := func(a plan.Action, h ...topology.Hazard) plan.Plan {
		return plan.Plan{Changes: []plan.Change{{Action: a, Hazards: h}}}
	}
	for name, tc := range map[string]struct {
		plan  plan.Plan
		allow []plan.Consent
		err   string
	}{
		"nothing to do":           {plan.Plan{}, nil, ""},
		"at most once is no risk": {plan.Plan{Changes: []plan.Change{{Action: plan.Create, AtMostOnce: true}}}, nil, ""},
		"blocked": {
			change(plan.Blocked), plan.Allow(topology.Hazards()...),
			"1 change is blocked; see the suggested fixes above; nothing was written",
		},
		"a hazard": {
			change(plan.Delete, topology.LosesMessages), nil,
			"the plan has hazards that are not allowed: loses-messages (1 change); nothing was written. To consent: --allow loses-messages",
		},
		"an allowed hazard": {change(plan.Delete, topology.LosesMessages), plan.Allow(topology.LosesMessages), ""},
		"another hazard allowed": {
			change(plan.Delete, topology.LosesMessages, topology.DropsRouting),
			plan.Allow(topology.LosesMessages),
			"the plan has hazards that are not allowed: drops-routing (1 change); nothing was written. To consent: --allow drops-routing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := plan.Check(tc.plan, tc.allow); err != nil {
				got = err.Error()
			}
			if got != tc.err {
				t.Errorf("Check gives %q", got)
			}
		})
	}
}

// The fingerprint stands for what the plan depends on: not for counts, and not
// for what is foreign.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	want := host(queue("q", nil))
	of := func(s topology.State) string { return plan.Make(want, s, plan.Options{}).Fingerprint }
	base := of(topology.State{Have: host(queue("q", nil)).Topology})
	if of(topology.State{
		Have:  host(queue("q", nil), queue("foreign", args{"x-managed-by": nil})).Topology,
		Usage: map[string]topology.Usage{"q": {Ready: 5}},
	}) != base {
		t.Error("it depends on counts or on foreign objects")
	}
	if of(topology.State{}) == base ||
		of(topology.State{Have: host(queue("q", args{"x-message-ttl": int64(1)})).Topology}) == base {
		t.Error("it does not depend on the queue")
	}
}

// What others have bound to what a saved plan deletes or makes again is part of it: it
// goes along. What they have bound elsewhere is not.
func TestSavedPlansKnowWhatGoesAlong(t *testing.T) {
	t.Parallel()
	mark := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("shop"), topology.ArgQueueType: topology.Classic}
	exchange := func(name string) topology.Exchange {
		return topology.Exchange{
			Name: name, Type: topology.Topic, Durable: true,
			Arguments: mark.Without(topology.ArgQueueType),
		}
	}
	state := topology.State{Version: "4.0.5", Have: topology.Topology{
		Exchanges: []topology.Exchange{exchange("gone.x"), exchange("changed.x"), {Name: "foreign.x", Type: topology.Fanout}},
		Queues: []topology.Queue{
			{Name: "gone", Durable: true, Arguments: mark},
			{Name: "changed", Durable: true, Arguments: mark},
			{Name: "stays", Durable: true, Arguments: mark},
			{Name: "foreign", Durable: true},
		},
	}}
	changed := exchange("changed.x")
	changed.Type = topology.Direct
	want := topology.Compiled{
		Name: "shop",
		Topology: topology.Topology{Exchanges: []topology.Exchange{changed}, Queues: []topology.Queue{
			{Name: "changed", Durable: true, Arguments: mark.With(topology.ArgMessageTTL, int64(5))},
			{Name: "stays", Durable: true, Arguments: mark},
		}},
	}
	before := plan.Make(want, state, plan.Options{})
	for name, tc := range map[string]struct {
		binding topology.Binding
		stale   bool
	}{
		"a queue that is deleted": {topology.Binding{
			Source: "foreign.x", Destination: "gone",
			DestinationType: topology.ToQueue,
		}, true},
		"a queue that is replaced": {topology.Binding{
			Source: "foreign.x", Destination: "changed",
			DestinationType: topology.ToQueue, Key: "k",
		}, true},
		"from an exchange that goes": {topology.Binding{
			Source: "gone.x", Destination: "foreign",
			DestinationType: topology.ToQueue,
		}, true},
		"to an exchange that goes": {topology.Binding{
			Source: "foreign.x", Destination: "gone.x",
			DestinationType: topology.ToExchange,
		}, true},
		"from an exchange that changes": {topology.Binding{
			Source: "changed.x", Destination: "foreign",
			DestinationType: topology.ToQueue,
		}, true},
		"between foreign objects": {topology.Binding{
			Source: "foreign.x", Destination: "foreign",
			DestinationType: topology.ToQueue,
		}, false},
		"a queue named as an exchange is": {topology.Binding{
			Source: "foreign.x", Destination: "gone.x",
			DestinationType: topology.ToQueue,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := state
			now.Have.Bindings = []topology.Binding{tc.binding}
			if stale := plan.Make(want, now, plan.Options{}).Fingerprint != before.Fingerprint; stale != tc.stale {
				t.Errorf("the saved plan is stale: %t", stale)
			}
		})
	}
}
