package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Deleting what a queue that stays dead-letters to loses messages, whichever team made that
// queue, and however it is told where to.
func TestDeletingADeadLetterTarget(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	foreign := func(more args) topology.Queue {
		more["x-queue-type"] = "classic"
		return topology.Queue{Name: "foreign", Durable: true, Arguments: more}
	}
	kept := topology.Queue{Name: "kept", Durable: true, Arguments: args{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "e", "x-dead-letter-strategy": "at-least-once",
		"x-overflow": "reject-publish",
	}}
	policy := topology.Policy{
		Name: "dead", Pattern: "^foreign$", ApplyTo: "queues",
		Definition: topology.Arguments{"dead-letter-exchange": "e"},
	}
	e := exchange("e", "fanout", mark)
	alternate := exchange("e", "fanout", args{"x-managed-by": "dlxctl/shop", "alternate-exchange": "spare"})
	q := queue("q", nil)
	toQ := binding("e", "q", "", mark)
	for name, tc := range map[string]struct {
		want, have topology.Compiled
		policies   []topology.Policy
		changes    []string
		reason     string
	}{
		"an exchange, by argument": {
			have: host(e, foreign(args{"x-dead-letter-exchange": "e"}), q, toQ),
			changes: []string{
				"delete binding e -> q loses-messages drops-routing",
				"delete queue q loses-messages drops-routing", "delete exchange e loses-messages drops-routing",
			},
			reason: "without it, what dies in foreign is lost",
		},
		"an exchange, at least once": {
			have: host(e, kept, q, toQ),
			changes: []string{
				"delete binding e -> q loses-messages drops-routing",
				"delete queue q loses-messages drops-routing", "delete exchange e loses-messages drops-routing",
			},
			reason: "without it, what dies in kept stays there, invisible to consumers, and counts against its length",
		},
		"an exchange, at least once, which a policy ends": {
			have: host(e, kept, q, toQ), policies: []topology.Policy{{
				Name: "drops", Pattern: "^kept$", ApplyTo: "queues", Definition: topology.Arguments{"overflow": "drop-head"},
			}},
			changes: []string{
				"delete binding e -> q loses-messages drops-routing",
				"delete queue q loses-messages drops-routing", "delete exchange e loses-messages drops-routing",
			},
			reason: "without it, what dies in kept is lost",
		},
		"an exchange, by a policy of others": {
			have: host(e, foreign(args{}), q, toQ), policies: []topology.Policy{policy},
			changes: []string{
				"delete binding e -> q loses-messages drops-routing",
				"delete queue q loses-messages drops-routing", "delete exchange e loses-messages drops-routing",
			},
		},
		"a policy that an argument overrides": {
			have: host(e, foreign(args{"x-dead-letter-exchange": "amq.fanout"}), q, toQ), policies: []topology.Policy{policy},
			changes: []string{
				"delete binding e -> q drops-routing", "delete queue q drops-routing",
				"delete exchange e drops-routing",
			},
		},
		"a queue, through the default exchange": {
			have:    host(foreign(args{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}), q),
			changes: []string{"delete queue q loses-messages"},
		},
		"the last queue of an exchange that stays": {
			want: host(e), have: host(e, foreign(args{"x-dead-letter-exchange": "e"}), q, toQ),
			changes: []string{
				"delete binding e -> q loses-messages drops-routing",
				"delete queue q loses-messages drops-routing",
			},
		},
		"one of two queues of an exchange": {
			want: host(e), have: host(e, foreign(args{"x-dead-letter-exchange": "e"}), q, toQ, binding("e", "foreign", "", nil)),
			changes: []string{"delete binding e -> q drops-routing", "delete queue q drops-routing"},
		},
		"the last queue of an exchange that has an alternate one": {
			want: host(alternate),
			have: host(alternate, foreign(args{"x-dead-letter-exchange": "e"}), q, toQ, exchange("spare", "fanout", nil),
				binding("spare", "foreign", "", nil)),
			changes: []string{"delete binding e -> q drops-routing", "delete queue q drops-routing"},
		},
		"what our queue that goes too dead-letters to": {
			have: host(e, queue("own", args{"x-dead-letter-exchange": "e"}), q, toQ),
			changes: []string{
				"delete binding e -> q drops-routing", "delete queue own", "delete queue q drops-routing",
				"delete exchange e drops-routing",
			},
		},
		"an exchange without bindings, to which clients may publish": {
			want: host(q), have: host(foreign(args{"x-dead-letter-exchange": "gone"}), q, e),
			changes: []string{"delete exchange e drops-routing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Name = "shop"
			tc.have.Policies = tc.policies
			p := plan.Make(tc.want, topology.State{Version: "4.0.5", Have: tc.have.Topology}, plan.Options{})
			if d := cmp.Diff(tc.changes, summarize(p.Changes)); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if !strings.Contains(p.Changes[0].Reason, tc.reason) {
				t.Errorf("the reason is %q", p.Changes[0].Reason)
			}
		})
	}
}

// A queue that the file gives up, and that still dead-letters to the topology by its arguments,
// loses its retries and its dead-letter queue: what fails there is to be unroutable, by consent.
func TestAQueueThatIsHandedOverLosesItsRoute(t *testing.T) {
	t.Parallel()
	file := shopFile("a: {tiers: [1s]}", "{name: orders, backoff: a}")
	const unmanaged = "  - {name: billing, external: true, deadLetterBy: unmanaged}\n"
	const route = "delete binding shop.failed -> shop.a.failed (@billing) drops-routing"
	for name, tc := range map[string]struct {
		backoff, want string
		mark          bool
		risks         []string
		left          []string // what is done without consent
	}{
		"to its team":           {"a", file + unmanaged, true, []string{route}, nil},
		"a service declares it": {"a", file, false, []string{route}, nil},
		"it has no retries": {"none", file + unmanaged, true, []string{
			"delete binding shop.dead -> billing.dead (@billing) drops-routing",
			"delete binding shop.failed -> exchange:shop.dead (@billing) drops-routing",
		}, []string{"delete binding shop.return -> billing (@billing)"}},
		"it goes, by the consent for it": {"a", file + "removed: [billing]\n", true, nil, nil},
		"it is managed by a policy now":  {"a", file + "  - {name: billing, external: true, backoff: a}\n", true, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := loaded(t, file+"  - {name: billing, backoff: "+tc.backoff+"}\n").Topology
			for i, q := range have.Queues {
				if q.Name == "billing" && !tc.mark {
					have.Queues[i].Arguments = q.Arguments.Without(topology.ArgManagedBy)
				}
			}
			p := plan.Make(loaded(t, tc.want), topology.State{Version: "4.3.6", Have: have}, plan.Options{})
			allowed := summarize(plan.Allowed(p, nil).Changes)
			p.Changes = slices.DeleteFunc(p.Changes, func(c plan.Change) bool { return len(c.Hazards) == 0 })
			if d := cmp.Diff(tc.risks, summarize(p.Changes)); d != "" {
				t.Fatalf("hazards (-want +got):\n%s", d)
			}
			if len(tc.risks) == 0 {
				return
			}
			if d := cmp.Diff(tc.left, allowed); d != "" {
				t.Errorf("what is done without consent (-want +got):\n%s", d)
			}
			const reason = "no longer declared; without it, what dies in billing goes to shop.unroutable, as the queue still dead-letters to this topology"
			if got := p.Changes[0].Reason; got != reason {
				t.Errorf("the reason is %s", got)
			}
			const consent = "To consent: --allow drops-routing=billing"
			if err := plan.Check(p, nil); err == nil || !strings.HasSuffix(err.Error(), consent) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A queue that is blocked stays as it is, and so does where its failures go: the failed
// queue of its old backoff, the tiers behind it, and the return path.
func TestABlockedQueueKeepsItsBackoff(t *testing.T) {
	t.Parallel()
	file := func(backoff, more string) string {
		return "version: 1\nname: shop\nbackoff: {s: {tiers: [1s, 1m]}, t: {tiers: [2s]}}\nqueues: [{name: d, backoff: " +
			backoff + more + "}]\n"
	}
	for name, tc := range map[string]struct {
		before, after string
		between       func(*topology.State)
	}{
		"it became a queue of another topology": {
			file("s", ", deadLetterBy: policy"), file("t", ", deadLetterBy: policy"),
			func(s *topology.State) {
				i := slices.IndexFunc(s.Have.Queues, func(q topology.Queue) bool { return q.Name == "d" })
				s.Have.Queues[i].Arguments = s.Have.Queues[i].Arguments.With("x-managed-by", "dlxctl/other")
			},
		},
		"it is external, and of another type now": {
			file("s", ", external: true"), file("t", ", external: true, type: classic"),
			func(*topology.State) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{objects: map[string]topology.Object{}}
			if strings.Contains(tc.before, "external") {
				if err := f.create(queue("d", args{"x-managed-by": nil})); err != nil {
					t.Fatal(err)
				}
			}
			if err := apply.Execute(t.Context(), f, plan.Make(loaded(t, tc.before), f.state(), plan.Options{}),
				func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
			s := f.state()
			tc.between(&s)
			p := plan.Make(loaded(t, tc.after), s, plan.Options{})
			todo := plan.Allowed(p, plan.Allow(topology.Hazards()...))
			if todo.Count(plan.Delete) > 0 || todo.Count(plan.Update) > 0 || todo.Count(plan.Create) == 0 ||
				len(todo.Retiring) > 0 {
				t.Errorf("carried out is %v, and waited for %v", bare(todo), todo.Retiring)
			}
			if err := apply.ExecuteWithReroutes(t.Context(), f, loaded(t, tc.after), todo, 0, func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
			if err := f.journey("d"); err != nil {
				t.Error(err)
			}
		})
	}
}

// What others have bound goes with an exchange or a queue, and is named.
func TestBindingsOfOthersAreNamed(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	p := plan.Make(host(queue("keep", nil)), topology.State{Version: "4.0.5", Have: host(
		queue("keep", nil), exchange("e", "topic", mark), exchange("amq.topic", "topic", nil), queue("q", nil),
		queue("foreign", args{"x-managed-by": nil}),
		binding("e", "foreign", "k", nil), binding("e", "foreign", "l", args{"x-managed-by": "dlxctl/other"}),
		binding("amq.topic", "q", "m", nil),
	).Topology}, plan.Options{})
	want := map[string]string{
		"e": "no longer declared; this also deletes bindings that dlxctl did not create: e -> foreign (k), e -> foreign (l)",
		"q": "no longer declared; this also deletes bindings that dlxctl did not create: amq.topic -> q (m)",
	}
	for _, c := range p.Changes {
		if c.Reason != want[c.Name] || !slices.Contains(c.Hazards, topology.DropsRouting) {
			t.Errorf("%s %v: %q", c.Name, c.Hazards, c.Reason)
		}
	}
}

// While a dead-letter queue is made again, dead letters for it have no queue.
func TestReplacingADeadLetterQueue(t *testing.T) {
	t.Parallel()
	file := func(more string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nqueues: [{name: q, backoff: none, dead: {queue: graves"+more+"}}]\n")
	}
	have := file("")
	p := plan.Make(file(", arguments: {x-max-length: 5}"), topology.State{Version: "4.0.5", Have: have.Topology},
		plan.Options{})
	if d := cmp.Diff([]string{
		"replace queue graves [x-max-length] loses-messages drops-routing",
		"create binding shop.dead -> graves (@q)",
	}, summarize(p.Changes)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
}

// A dead-letter queue that deletes messages needs consent, once.
func TestDiscardingNeedsConsent(t *testing.T) {
	t.Parallel()
	file := func(more string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nqueues: [{name: q, backoff: none, dead: {queue: graves"+more+"}}]\n")
	}
	deletes := file(", arguments: {x-message-ttl: 0}")
	for name, tc := range map[string]struct {
		have topology.Topology
		want bool
	}{
		"created": {want: true}, "replaced": {have: file("").Topology, want: true}, "there": {have: deletes.Topology},
	} {
		p := plan.Make(deletes, topology.State{Version: "4.0.5", Have: tc.have}, plan.Options{})
		asks := slices.ContainsFunc(p.Changes, func(c plan.Change) bool {
			return c.Name == "graves" && slices.Contains(c.Hazards, topology.LosesMessages) &&
				strings.HasSuffix(c.Reason, "it deletes dead letters at once (x-message-ttl)")
		})
		if asks != tc.want {
			t.Errorf("%s: asks for consent: %t\n%v", name, asks, summarize(p.Changes))
		}
	}
}

// A failed queue with messages says what reads them, where it is refused too.
func TestAFailedQueueNamesItsRemedy(t *testing.T) {
	t.Parallel()
	have := loaded(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}, b: {tiers: [1s]}}\nqueues: [{name: q, backoff: a, deadLetterBy: policy}]\n")
	want := loaded(t, "version: 1\nname: shop\n")
	p := plan.Make(want,
		topology.State{Version: "4.0.5", Have: have.Topology, Usage: map[string]topology.Usage{"shop.a.failed": {Ready: 2}}},
		plan.Options{})
	const remedy = "to keep the messages of shop.a.failed, first run 'dlxctl process --until-empty' with the file that still has the backoff a"
	if err := plan.Check(p, nil); err == nil ||
		!strings.Contains(err.Error(), "written. T"+remedy[1:]+". To consent: --allow loses-messages=shop.a.failed") {
		t.Errorf("error is %v", err)
	}
	if !strings.Contains(text(t, p), remedy) {
		t.Errorf("the plan is\n%s", text(t, p))
	}
}

// A failed queue whose backoff leaves the file together with a queue says where the messages of
// that queue go, and the plan needs the rights to move them.
func TestTheFailuresOfAQueueThatLeaves(t *testing.T) {
	t.Parallel()
	have := loaded(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}, b: {tiers: [1s]}}\nqueues: [{name: q, backoff: a}, {name: r, backoff: a}]\n")
	want := loaded(t, "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\nqueues: [{name: r, backoff: b}]\n")
	p := plan.Make(want,
		topology.State{Version: "4.0.5", Have: have.Topology, Usage: map[string]topology.Usage{"shop.a.failed": {Ready: 2}}},
		plan.Options{})
	const warning = "apply moves them to the current backoff of their queue; those of q, which the file no longer has, go to shop.unroutable. To have these retried first, run 'dlxctl process --until-empty' with the file that has the backoff a, and apply once its tiers are empty; to delete it"
	if !strings.Contains(text(t, p), warning) {
		t.Errorf("the plan is\n%s", text(t, p))
	}
	for _, right := range []plan.Right{
		{plan.Read, topology.KindQueue, "shop.a.failed"},
		{plan.Write, topology.KindExchange, "shop.failed"},
		{plan.Write, topology.KindExchange, "shop.a.dlx"},
	} {
		if !slices.Contains(plan.Rights(p), right) {
			t.Errorf("%v is missing", right)
		}
	}
}

// A queue that leaves the file while messages wait in tiers that other queues share, or for the
// processor, says where those of the queue go: they return to no queue.
func TestTheRetriesOfAQueueThatLeaves(t *testing.T) {
	t.Parallel()
	const file = "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}}\ndelays: [{name: later, to: e}]\nexchanges: [{name: e}]\nqueues:\n  - {name: r, backoff: a}\n"
	have := loaded(t, file+"  - {name: p, backoff: a}\n  - {name: q, backoff: a}\n").Topology
	const warning = "p, q are deleted, and failed messages of them may still be waiting for a retry: they go to shop.unroutable; to have them retried first, keep the queues without bindings until the retries are done"
	for place, warns := range map[string]bool{
		"shop.a.retry.1s": true, "shop.a.failed": true, "r": false, "p.dead": false, "later": false,
		topology.IntakeQueueName("shop", "later"): false,
	} {
		state := topology.State{Version: "4.3.6", Have: have, Usage: map[string]topology.Usage{place: {Ready: 1}}}
		p := plan.Make(loaded(t, file), state, plan.Options{})
		if got := strings.Contains(text(t, p), warning); got != warns {
			t.Errorf("with a message in %s it warns: %t\n%s", place, got, text(t, p))
		}
	}
}

// A failed queue whose backoff leaves the file says which of its messages become dead letters, as
// the backoff of their queue is native or none now: of queues whose failures go there, or of any
// queue once the routes have changed.
func TestTheFailuresOfAQueueThatIsNotProcessedAnyMore(t *testing.T) {
	t.Parallel()
	file := func(backoff, queues string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nbackoff: {"+backoff+"n: {engine: native, tiers: [10s]}, b: {tiers: [1s]}}\nqueues: ["+queues+"]\n")
	}
	const others = "{name: r, backoff: b}, {name: s, backoff: none}"
	before := file("a: {tiers: [1s]}, ", "{name: q, backoff: a}, {name: p, backoff: a}, "+others)
	after := file("", "{name: q, backoff: n}, {name: p, backoff: b}, "+others)
	rerouted := before.Topology
	rerouted.Bindings = slices.DeleteFunc(slices.Clone(rerouted.Bindings), func(b topology.Binding) bool {
		return b.Source == "shop.failed" && b.Destination == "shop.a.failed"
	})
	const moves = "holds 2 messages; apply moves them to the current backoff of their queue"
	const remedy = ", whose backoff is none or native, become dead letters. To have these retried first, run 'dlxctl process' with the file that has the backoff a until shop.a.failed is empty, also during apply; to delete it"
	for name, tc := range map[string]struct {
		want    topology.Compiled
		have    topology.Topology
		usage   topology.Usage
		warning string
	}{
		"native":      {after, before.Topology, topology.Usage{Ready: 2}, moves + "; those of q" + remedy},
		"after apply": {after, rerouted, topology.Usage{Ready: 2}, moves + "; those of q, s" + remedy},
		"none, and a queue that leaves too": {
			file("", "{name: q, backoff: none}, "+others), before.Topology,
			topology.Usage{Ready: 2},
			moves + "; those of q, whose backoff is none or native, become dead letters; those of p, which the file no longer has, go to shop.unroutable. To have these retried first, run 'dlxctl process --until-empty'",
		},
		"each has a backoff": {
			file("", "{name: q, backoff: b}, {name: p, backoff: b}, "+others), before.Topology,
			topology.Usage{Ready: 2},
			moves + "; to delete it",
		},
		"a processor reads it": {
			after, before.Topology,
			topology.Usage{Ready: 2, Consumers: 1},
			"restart them with the new file once it is empty: apply makes dead letters of what it holds of q; to delete it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Make(tc.want, topology.State{
				Version: "4.3.6", Have: tc.have, Usage: map[string]topology.Usage{"shop.a.failed": tc.usage},
			}, plan.Options{})
			if !strings.Contains(text(t, p), tc.warning) {
				t.Errorf("the plan is\n%s", text(t, p))
			}
		})
	}
}

// The plan of a file that knows none of the work queues that its name has on the
// broker is blocked, unless it says that they were taken out.
func TestAnotherTeamsFileIsBlocked(t *testing.T) {
	t.Parallel()
	file := func(more string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}}\ndefaults: {backoff: a}\n"+more)
	}
	have := file("queues: [{name: one}, {name: two, dead: {queue: graves}}]")
	policy := topology.Policy{
		Name: "dlxctl.shop.queue.mine", Pattern: "^mine$", ApplyTo: "queues",
		Definition: topology.Arguments{"dead-letter-exchange": "shop.a.failed"},
	}
	byName := file("queues: [{name: jobs, type: classic, deadLetterBy: unmanaged}]")
	for name, tc := range map[string]struct {
		want    topology.Compiled
		have    []topology.Policy
		found   topology.Topology // those of one and two if it is empty
		blocked string
	}{
		"a queue that is used by its name": {
			want: file("queues: [{name: mine}]"), found: byName.Topology,
			blocked: "the only work queue of the topology shop on this virtual host is missing from the file: jobs. If another team uses the name shop, give this topology another name. If the queues were removed on purpose, list them in the file: removed: [jobs]",
		},
		"other queues": {
			want:    file("queues: [{name: mine}]"),
			blocked: "all 2 work queues of the topology shop on this virtual host are missing from the file: one, two. If another team uses the name shop, give this topology another name. If the queues were removed on purpose, list them in the file: removed: [one, two]",
		},
		"some of them removed":  {want: file("queues: [{name: mine}]\nremoved: [one]"), blocked: "removed: [one, two]"},
		"all of them removed":   {want: file("queues: [{name: mine}]\nremoved: [one, two]")},
		"its dead-letter queue": {want: file("queues: [{name: mine, dead: {queue: graves}}]")},
		"one of them there":     {want: file("queues: [{name: mine}, {name: two}]")},
		"one of them replaced":  {want: file("queues: [{name: mine, replaces: two}]")},
		"an attached queue":     {want: file("queues: [{name: mine, external: true}]"), have: []topology.Policy{policy}},
		"a file without queues": {want: file("")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := topology.State{Version: "4.0.5", Have: have.Topology}
			if len(tc.found.Queues) > 0 {
				s.Have = tc.found
			}
			s.Have.Policies = tc.have
			p := plan.Make(tc.want, s, plan.Options{})
			i := slices.IndexFunc(p.Changes, func(c plan.Change) bool { return c.Kind == topology.KindTopology })
			switch {
			case i < 0 && tc.blocked != "":
				t.Errorf("the plan is\n%s", text(t, p))
			case i >= 0 && (tc.blocked == "" || !strings.HasSuffix(p.Changes[i].Reason, tc.blocked)):
				t.Errorf("it is blocked: %s", p.Changes[i].Reason)
			case i >= 0:
				if todo := plan.Allowed(p, plan.Allow(topology.Hazards()...)); len(todo.Changes) > 0 {
					t.Errorf("%v is done anyway", bare(todo))
				}
			}
		})
	}
	if p := plan.Make(have, topology.State{Version: "4.0.5"}, plan.Options{}); p.Count(plan.Blocked) > 0 {
		t.Error("a new topology is blocked")
	}
}

// The suggested fixes are those that help in this case, the shortest first.
func TestSuggestedFixes(t *testing.T) {
	t.Parallel()
	dlx := args{"x-dead-letter-exchange": "shop.a.failed", "x-dead-letter-routing-key": "@q"}
	for name, tc := range map[string]struct {
		want, have args
		first      string // way
	}{
		"no dead-lettering": {dlx, args{}, "set deadLetterBy: policy in the file"},
		"another type":      {args{}, args{"x-queue-type": "classic"}, "set type: classic in the file"},
		"both": {
			dlx,
			args{"x-queue-type": "classic"},
			"set deadLetterBy: policy and type: classic in the file",
		},
		"a TTL": {
			args{},
			args{"x-message-ttl": int64(5)},
			"set arguments: {x-message-ttl: 5} in the file",
		},
		"no TTL": {args{"x-message-ttl": int64(5)}, args{}, "remove x-message-ttl"},
		"a delivery limit": {
			args{},
			args{"x-delivery-limit": int64(3)},
			"set deliveryLimit: 3 in the file",
		},
		"a smaller delivery limit": {
			with(dlx).With("x-delivery-limit", int64(2)), with(dlx).With("x-delivery-limit", int64(3)),
			"set deadLetterBy: policy in the file",
		},
		"a larger delivery limit": {
			with(dlx).With("x-delivery-limit", int64(4)), with(dlx).With("x-delivery-limit", int64(3)),
			"set deliveryLimit: 3 in the file",
		},
		"a smaller delivery limit of an unmanaged queue": {
			args{"x-delivery-limit": int64(2)}, args{"x-delivery-limit": int64(3)}, "set deliveryLimit: 3 in the file",
		},
		"another dead-letter exchange":      {dlx, args{"x-dead-letter-exchange": "x"}, "replace it with a new queue"},
		"a dead-letter exchange of its own": {args{}, args{"x-dead-letter-exchange": "x"}, "replace it with a new queue"},
		"another backoff, and another type": {
			dlx,
			args{"x-dead-letter-exchange": "x", "x-queue-type": "classic"},
			"replace it with a new queue",
		},
		"an overflow that the policy would be": {
			args{"x-overflow": "reject-publish"},
			args{"x-overflow": "drop-head"},
			`set arguments: {x-overflow: "drop-head"} in the file`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.have["x-managed-by"] = nil
			p := plan.Make(host(queue("q", tc.want)), topology.State{Version: "4.0.5", Have: host(queue("q", tc.have)).Topology},
				plan.Options{})
			_, ways, _ := strings.Cut(p.Changes[0].Reason, "Suggested fixes: ")
			if first, _, _ := strings.Cut(ways, "; "); !strings.HasPrefix(first, tc.first) {
				t.Errorf("the suggested fixes are %s", ways)
			}
		})
	}
	transient := queue("q", args{"x-managed-by": nil})
	transient.Durable = false
	p := plan.Make(host(queue("q", nil)), topology.State{Version: "4.0.5", Have: host(transient).Topology}, plan.Options{})
	if !strings.Contains(p.Changes[0].Reason,
		"Suggested fixes: declare it with external: true, which keeps it as it is; ") {
		t.Errorf("for a transient queue: %s", p.Changes[0].Reason)
	}
}

// The remedies for another defaults.type do help.
func TestTheWaysOutOfAnotherTypeHelp(t *testing.T) {
	t.Parallel()
	file := func(typ, more string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nbackoff: {a: {tiers: [1s]}, b: {tiers: [1s]}}\ndefaults: {type: "+typ+
			"}\nqueues: [{name: q, "+more+"}]\n")
	}
	state := topology.State{Version: "4.0.5", Have: file("quorum", "backoff: a").Topology}
	blocked := func(want topology.Compiled, s topology.State) (names []string) {
		for _, c := range plan.Make(want, s, plan.Options{}).Changes {
			if c.Action == plan.Blocked {
				names = append(names, c.Name)
			}
		}
		return names
	}
	if d := cmp.Diff([]string{"q.dead", "shop.a.failed", "shop.a.retry.1s", "shop.unroutable"},
		blocked(file("classic", "backoff: a"), state)); d != "" {
		t.Errorf("blocked (-want +got):\n%s", d)
	}
	if names := blocked(file("quorum", "backoff: a, type: classic"), state); len(names) > 0 {
		t.Errorf("with the type at the work queue %v are blocked", names)
	}
	if d := cmp.Diff([]string{"q.dead", "shop.unroutable"}, blocked(file("classic", "backoff: b"), state)); d != "" {
		t.Errorf("with another backoff blocked (-want +got):\n%s", d)
	}
	state.Have.Queues = slices.DeleteFunc(slices.Clone(state.Have.Queues),
		func(q topology.Queue) bool { return q.Name == "q.dead" || q.Name == "shop.unroutable" })
	if names := blocked(file("classic", "backoff: b"), state); len(names) > 0 {
		t.Errorf("with those deleted by hand %v are blocked", names)
	}
}

// Each field of a blocked object says what to write so that the object can stay, if a file can say
// that.
func TestFixes(t *testing.T) {
	t.Parallel()
	base := "version: 1\nname: shop\nbackoff: {s: {tiers: [1s]}}\ndefaults: {backoff: s}\n"
	for name, tc := range map[string]struct {
		file string
		have topology.Object
		want map[string]string
	}{
		"the type": {
			"queues: [{name: q, deadLetterBy: policy}]", topology.Queue{
				Name: "q", Durable: true, Arguments: args{"x-queue-type": "classic"},
			}, map[string]string{"x-queue-type": "write type: classic"},
		},
		"a limit": {
			"queues: [{name: q, deadLetterBy: policy, arguments: {x-max-length: 9}}]", topology.Queue{
				Name: "q", Durable: true, Arguments: args{"x-queue-type": "quorum", "x-max-length": int64(5)},
			}, map[string]string{"x-max-length": "write arguments: {x-max-length: 5}; no policy can raise or remove it, as the smaller one of an argument and a policy applies"},
		},
		"smaller limits, by arguments": {
			"queues: [{name: q, deliveryLimit: 3, arguments: {x-max-length: 9}}]", topology.Queue{
				Name: "q", Durable: true, Arguments: args{
					"x-queue-type": "quorum", "x-max-length": int64(10), "x-delivery-limit": int64(4),
					"x-dead-letter-exchange": "shop.failed", "x-dead-letter-routing-key": "@q",
					"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
				},
			}, map[string]string{
				"x-max-length": "write deadLetterBy: policy", "x-delivery-limit": "write deadLetterBy: policy",
			},
		},
		"another dead-letter exchange": {
			"queues: [{name: q}]", topology.Queue{
				Name: "q", Durable: true, Arguments: args{"x-queue-type": "quorum", "x-dead-letter-exchange": "mine"},
			}, nil,
		},
		"not durable": {
			"queues: [{name: q, deadLetterBy: policy}]", topology.Queue{
				Name: "q", Arguments: args{"x-queue-type": "quorum"},
			}, map[string]string{"durable": "write external: true"},
		},
		"an exchange": {
			"exchanges: [{name: e, arguments: {alternate-exchange: x}}]", topology.Exchange{
				Name: "e", Type: "direct", Durable: true, Internal: true,
			}, map[string]string{
				"type": "write type: direct", "internal": "write internal: true",
				"alternate-exchange": "remove alternate-exchange",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.3.6", VHost: "/"}
			state.Have = host(tc.have).Topology
			p := plan.Make(loaded(t, base+tc.file+"\n"), state, plan.Options{})
			if len(p.Changes) == 0 || p.Changes[0].Action != plan.Blocked {
				t.Fatalf("nothing is blocked: %v", summarize(p.Changes))
			}
			if d := cmp.Diff(tc.want, p.Changes[0].Fixes); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
