package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue that the broker cannot change is replaced under its name with consent to that queue, by
// the command line or the file. Without consent nothing is written, and apply never writes it.
func TestAQueueIsReplacedWithConsent(t *testing.T) {
	t.Parallel()
	live := topology.State{Version: "4.0.5", Have: host(queue("q", args{"x-queue-type": "classic"})).Topology}
	live.Usage = map[string]topology.Usage{"q": {Ready: 3, Consumers: 2}}
	want := host(queue("q", nil))
	p := plan.Make(want, live, plan.Options{})
	if len(p.Changes) != 1 || !p.Changes[0].ReplacesQueue() || p.Changes[0].Stake == nil || p.Changes[0].Stake.Ready != 3 {
		t.Fatalf("the changes are %v", summarize(p.Changes))
	}
	mine, other := []plan.Consent{{Hazard: topology.ReplacesQueue, Object: "q"}},
		[]plan.Consent{{Hazard: topology.ReplacesQueue, Object: "r"}, {Hazard: topology.LosesMessages, Object: "q"}}
	if err := plan.Check(p, other); !errors.Is(err, plan.ErrBlocked) {
		t.Errorf("without consent Check returns %v", err)
	}
	if err := plan.Check(p, mine); err != nil {
		t.Errorf("with consent Check returns %v", err)
	}
	if todo := plan.Allowed(p, mine); len(todo.Changes) > 0 {
		t.Errorf("apply would write %v", summarize(todo.Changes))
	}
	if got := p.Replacements(mine); !slices.Equal(got, []string{"q"}) || len(p.Replacements(other)) > 0 {
		t.Errorf("the replacements are %v and %v", got, p.Replacements(other))
	}
	want.Replace = []string{"q"}
	if err := plan.Check(plan.Make(want, live, plan.Options{}), nil); err != nil {
		t.Errorf("with replace: true Check returns %v", err)
	}
}

// Queues that cannot be replaced without losing messages stay blocked, and the reason says why.
func TestQueuesThatCannotBeReplacedUnderTheirNames(t *testing.T) {
	t.Parallel()
	flagged := func(change func(*topology.Queue)) topology.Queue {
		q := queue("q", args{"x-queue-type": "classic"})
		change(&q)
		return q
	}
	for name, tc := range map[string]struct {
		have   topology.Compiled
		reason string
	}{
		"exclusive":   {host(flagged(func(q *topology.Queue) { q.Exclusive = true })), "it is exclusive"},
		"auto-delete": {host(flagged(func(q *topology.Queue) { q.AutoDelete = true })), "auto-delete"},
		"a stream":    {host(queue("q", args{"x-queue-type": "stream"})), "it is a stream"},
		"expiring": {
			host(queue("q", args{"x-queue-type": "classic", "x-expires": int64(1000)})), "(x-expires)",
		},
		"expiring by a policy": {
			host(flagged(func(*topology.Queue) {}), topology.Policy{
				Name: "idle", Pattern: "^q$", ApplyTo: "queues", Definition: args{"expires": int64(1000)},
			}), "a policy with expires",
		},
		"the target of a dead-letter queue": {
			host(flagged(func(*topology.Queue) {}), queue("wait", args{
				"x-managed-by": nil, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q",
			})), "wait dead-letters to it by its name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := topology.State{Version: "4.0.5", Have: tc.have.Topology, Usage: map[string]topology.Usage{"q": {Ready: 1}}}
			p := plan.Make(host(queue("q", nil)), live, plan.Options{})
			if got := p.Changes[0]; got.Action != plan.Blocked || got.ReplacesQueue() ||
				!strings.Contains(got.Reason, "cannot be replaced under its name") || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("the change is %v: %s", summarize(p.Changes[:1]), got.Reason)
			}
			if err := plan.Check(p, plan.Allow(topology.Hazards()...)); !errors.Is(err, plan.ErrBlocked) {
				t.Errorf("Check returns %v", err)
			}
		})
	}
}

// While a queue is being replaced, a plan leaves the queue, its bindings and its hold alone,
// whatever of them exists. While the old queue exists, it is blocked without consent.
func TestAPlanLeavesAnUnfinishedReplacementAlone(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	hold := queue(topology.ReplacementHoldName("shop", "q"), args{"x-managed-by": topology.DeskMark("shop")})
	e, events := queue("e", nil), exchange("events", "topic", mark)
	want := host(events, queue("q", nil), e, binding("events", "q", "k", mark), binding("events", "e", "k", mark))
	for name, have := range map[string]topology.Compiled{
		"the old queue":     host(events, hold, queue("q", args{"x-queue-type": "classic"}), parked("k", "dlxctl/shop")),
		"no queue":          host(events, hold, parked("k", "dlxctl/shop")),
		"the new queue":     host(events, hold, queue("q", nil), parked("k", "dlxctl/shop")),
		"bound, with drift": host(events, hold, queue("q", nil), binding("events", "q", "k", mark)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Make(want, topology.State{Version: "4.0.5", Have: have.Topology}, plan.Options{Prune: true})
			blocked := "blocked queue q"
			if name == "the old queue" {
				blocked += " replaces-queue"
			}
			if d := cmp.Diff([]string{blocked, "create queue e", "create binding events -> e (k)"},
				summarize(p.Changes)); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			all := plan.Allow(topology.Hazards()...)
			if err := plan.Check(p, nil); errors.Is(err, plan.ErrBlocked) != (name == "the old queue") {
				t.Errorf("Check returns %v", err)
			}
			if err := plan.Check(p, all); err != nil || !slices.Equal(p.Replacements(all), []string{"q"}) {
				t.Errorf("with consent, Check returns %v, and %q is replaced", err, p.Replacements(all))
			}
			if d := cmp.Diff([]string{"create queue e", "create binding events -> e (k)"},
				summarize(plan.Allowed(p, all).Changes)); d != "" {
				t.Errorf("carried out before (-want +got):\n%s", d)
			}
		})
	}
}

// parked is the binding of the switch exchange for one that q had, with the owner mark of that one.
func parked(key, owner string) topology.Binding {
	b := binding("events", topology.SwitchExchangeName("shop", "q"), key,
		args{"x-managed-by": "dlxctl/shop", "x-bound-by": owner})
	b.DestinationType = topology.ToExchange
	return b
}

// A key that the file takes from a queue that is being replaced, or gives it, is a change as of any
// other queue: it needs the same consents, and waits for the replacement together with the binding
// in its place. Alone, one of the two would double the messages of that key, or drop them.
func TestAKeyMovesWhileAQueueIsBeingReplaced(t *testing.T) {
	t.Parallel()
	mark := args{"x-managed-by": "dlxctl/shop"}
	hold := queue(topology.ReplacementHoldName("shop", "q"), args{"x-managed-by": topology.DeskMark("shop")})
	old, e, events := queue("q", args{"x-queue-type": "classic"}), queue("e", nil), exchange("events", "topic", mark)
	has := []topology.Object{
		events, hold, e, parked("k", "dlxctl/shop"), parked("b", "dlxctl/b"), binding("events", "e", "j", mark),
	}
	wants := func(bindings ...topology.Object) topology.Compiled {
		return host(append(bindings, events, queue("q", nil), e)...)
	}
	q := func(key string) topology.Object { return binding("events", "q", key, mark) }
	other := func(key string) topology.Object { return binding("events", "e", key, mark) }
	const taken = "delete binding events -> q (k) drops-routing"
	for name, have := range map[string]topology.Compiled{
		"the old queue":            host(append(has, old)...),
		"bound next to its switch": host(append(has, old, q("k"))...),
		"no queue":                 host(has...),
	} {
		for what, tc := range map[string]struct {
			want    topology.Compiled
			changes []string
		}{
			"it goes":  {wants(other("j")), []string{taken}},
			"it moves": {wants(other("j"), other("k")), []string{"create binding events -> e (k)", taken + " copies-messages"}},
			"one moves to it": {wants(q("k"), q("j")), []string{
				"create binding events -> q (j)", "delete binding events -> e (j) drops-routing copies-messages",
			}},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				p := plan.Make(tc.want, topology.State{Version: "4.0.5", Have: have.Topology}, plan.Options{})
				if d := cmp.Diff(tc.changes, summarize(p.Changes[1:])); d != "" {
					t.Errorf("changes (-want +got):\n%s", d)
				}
				if err := plan.Check(p, plan.Allow(topology.ReplacesQueue)); !errors.Is(err, plan.ErrHazard) {
					t.Errorf("with consent to the replacement alone, Check returns %v", err)
				}
				if todo := plan.Allowed(p, plan.Allow(topology.Hazards()...)); len(todo.Changes) > 0 {
					t.Errorf("carried out before: %v", summarize(todo.Changes))
				}
			})
		}
	}
}

// A queue that is external in the file does not go on: what it is to be is not known.
func TestAnExternalQueueThatIsBeingReplaced(t *testing.T) {
	t.Parallel()
	hold := queue(topology.ReplacementHoldName("shop", "q"), args{"x-managed-by": topology.DeskMark("shop")})
	want := host(queue("q", args{"x-queue-type": nil}))
	want.Queues[0].External = true
	p := plan.Make(want, topology.State{Version: "4.0.5", Have: host(hold).Topology}, plan.Options{})
	all := plan.Allow(topology.Hazards()...)
	if err := plan.Check(p, all); !errors.Is(err, plan.ErrBlocked) || len(p.Replacements(all)) > 0 {
		t.Errorf("Check returns %v, and %q is replaced", err, p.Replacements(all))
	}
}

// A file without the queue, and destroy, delete neither the queue nor its hold while it is being
// replaced, and are blocked.
func TestAPlanKeepsAReplacementThatTheFileDoesNotHave(t *testing.T) {
	t.Parallel()
	hold := queue(topology.ReplacementHoldName("shop", "q"), args{"x-managed-by": topology.DeskMark("shop")})
	blocked := "blocked queue " + hold.Name
	for name, have := range map[string]topology.Compiled{
		"the old queue": host(hold, queue("q", args{"x-queue-type": "classic"})),
		"no queue":      host(hold),
		"the new queue": host(hold, queue("q", nil)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := topology.State{Version: "4.0.5", Have: have.Topology}
			for _, p := range []plan.Plan{
				plan.Make(host(), live, plan.Options{Prune: true}),
				plan.Make(plan.Nothing(host()), live, plan.Options{Destroy: true}),
			} {
				if d := cmp.Diff([]string{blocked}, summarize(p.Changes)); d != "" {
					t.Errorf("changes (-want +got):\n%s", d)
				}
				if err := plan.Check(p, plan.Allow(topology.Hazards()...)); !errors.Is(err, plan.ErrBlocked) {
					t.Errorf("Check returns %v", err)
				}
			}
		})
	}
}

// Such a queue keeps its bindings, its policy and what its failures need, whether dlxctl or a
// service has declared it: its consumers still reject messages.
func TestAPlanKeepsTheDeadLetteringOfSuchAQueue(t *testing.T) {
	t.Parallel()
	const backoffs = "standard: {tiers: [12s]}, quick: {tiers: [1s]}"
	const rest = "{name: orders, backoff: standard}"
	had := loaded(t, shopFile(backoffs, rest+`
  - {name: q, backoff: quick, deadLetterBy: policy, bindings: [{exchange: events, key: a}]}`))
	for _, owned := range []bool{true, false} {
		live := topology.State{Version: "4.0.5", Have: had.Topology}
		live.Have.Queues = append(slices.Clone(live.Have.Queues), queue(topology.ReplacementHoldName("shop", "q"),
			args{"x-managed-by": topology.DeskMark("shop")}))
		want := loaded(t, shopFile("standard: {tiers: [12s]}", rest)+"removed: [q]\n")
		for i, q := range live.Have.Queues {
			if q.Name == "q" && !owned {
				live.Have.Queues[i].Arguments = q.Arguments.Without("x-managed-by")
			}
		}
		for _, c := range plan.Allowed(plan.Make(want, live, plan.Options{}), nil).Changes {
			b, _ := c.Before.(topology.Binding)
			if c.Kind == topology.KindPolicy || b.Destination == "q" || b.Key == "@q" {
				t.Errorf("of a queue that dlxctl has declared (%t): %s %s %s %v", owned, c.Action, c.Kind, c.Name, c.Hazards)
			}
		}
	}
}

// A queue of another client that is named like a hold, and a queue on which a declaration is tried,
// are not a replacement.
func TestAQueueNamedLikeAHold(t *testing.T) {
	t.Parallel()
	for _, other := range []topology.Queue{
		queue(topology.ReplacementHoldName("shop", "q"), args{"x-managed-by": nil}),
		queue(topology.SwitchExchangeName("shop", "q")+".trial", args{"x-managed-by": topology.DeskMark("shop")}),
	} {
		want := host(queue("q", nil))
		live := topology.State{Version: "4.0.5", Have: host(queue("q", nil), other).Topology}
		if p := plan.Make(want, live, plan.Options{Prune: true}); len(p.Changes) > 0 {
			t.Errorf("with %s the changes are %v", other.Name, summarize(p.Changes))
		}
	}
}

// A queue that another topology moves to another one, or replaces under its name, does not get the
// bindings again that have moved: messages would come to both. Nor is the plan of the other file
// told to create the queue once it is deleted.
func TestAQueueThatAnotherTopologyMoves(t *testing.T) {
	t.Parallel()
	crm := exchange("crm", "topic", args{"x-managed-by": "dlxctl/shop"})
	external := topology.Queue{Name: "q", External: true, Label: topology.Label{Role: topology.RoleWork, Queue: "q"}}
	want := host(crm, external, binding("crm", "q", "k", args{"x-managed-by": "dlxctl/shop"}))
	end := topology.SwitchExchangeName("a", "q") + ".new"
	old := queue("q", args{"x-managed-by": "dlxctl/a"})
	for name, tc := range map[string]struct {
		to     string
		owner  string
		queues []topology.Object
		action plan.Action
		reason string
	}{
		"to a successor": {
			"q2", "a", []topology.Object{old}, plan.Blocked, `"a" moves q to q2, and its bindings too; write q2`,
		},
		"under its name": {
			topology.ReplacementHoldName("a", "q"), "a", []topology.Object{old}, plan.Blocked, `"a" moves q, and that is not`,
		},
		"back from a successor": {
			"q2", "a", []topology.Object{old, binding("amq.topic", "q", "k", nil)}, plan.Blocked, `"a" moves q, and that is not`,
		},
		"it is deleted":           {"q2", "a", nil, plan.Blocked, `does not exist: the topology "a" moves q to q2`},
		"an exchange of a client": {"q2", "", []topology.Object{old}, plan.Create, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := args{"x-managed-by": topology.OwnerMark(tc.owner)}
			if tc.owner == "" {
				mark = nil
			}
			live := host(append(tc.queues, crm, queue(tc.to, mark), exchange(end, "fanout", mark),
				binding(end, tc.to, "", mark))...)
			p := plan.Make(want, topology.State{Version: "4.0.5", Have: live.Topology}, plan.Options{})
			if len(p.Changes) == 0 || p.Changes[0].Action != tc.action || !strings.Contains(p.Changes[0].Reason, tc.reason) {
				t.Fatalf("the changes are %v: %+v", summarize(p.Changes), p.Changes)
			}
			if todo := plan.Allowed(p, nil); tc.action == plan.Blocked && len(todo.Changes) > 0 {
				t.Errorf("carried out: %v", summarize(todo.Changes))
			}
		})
	}
}
