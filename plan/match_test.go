package plan_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// matching returns a topology with an entry that covers queues by a pattern.
func matching(t *testing.T, entries ...string) topology.Compiled {
	t.Helper()
	return matchingOf(t, "shop", entries...)
}

// matchingOf is matching, of a topology of that name.
func matchingOf(t *testing.T, name string, entries ...string) topology.Compiled {
	t.Helper()
	file := "version: 1\nname: " + name + "\nbackoff: {standard: {tiers: [10s]}}\ndefaults: {backoff: standard}\nqueues:\n"
	for _, e := range entries {
		file += "  - " + e + "\n"
	}
	c, _, err := spec.Load([]spec.Source{{Name: "f", Data: []byte(file)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const svc = `{match: '^svc\.', external: true}`

// ofService returns a queue that a service declares.
func ofService(name, kind string, more ...any) topology.Queue {
	q := topology.Queue{Name: name, Durable: true, Arguments: topology.Arguments{"x-queue-type": kind}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Arguments[fmt.Sprint(more[i])] = more[i+1]
	}
	return q
}

// holding returns a virtual host that has what t wants, and more queues and policies.
func holding(t topology.Compiled, queues []topology.Queue, policies ...topology.Policy) topology.State {
	return topology.State{Version: "4.3.6", Have: topology.Topology{
		Exchanges: t.Exchanges, Bindings: t.Bindings, Queues: append(slices.Clone(t.Queues), queues...),
		Policies: append(slices.Clone(t.Policies), policies...),
	}}
}

// A queue that exists when the plan is made gets the binding by which its messages come back. What
// the pattern must not change blocks the policy.
func TestMatchedQueues(t *testing.T) {
	t.Parallel()
	limits := func(name, pattern string) topology.Policy {
		return queuePolicy(name, pattern, 1000, args{"message-ttl": int64(60000)})
	}
	const policy = `dlxctl.shop.match.quorum.^svc\.`
	for name, tc := range map[string]struct {
		queues   []topology.Queue
		policies []topology.Policy
		want     []string
	}{
		"none": {},
		"one": {
			queues: []topology.Queue{ofService("svc.a", "quorum")}, want: []string{"create shop.return -> svc.a (@svc.a)"},
		},
		"stream": {queues: []topology.Queue{ofService("svc.a", "stream")}},
		"its own arguments": {
			queues: []topology.Queue{ofService("svc.a", "quorum", "x-dead-letter-exchange", "mine")},
			want: []string{
				"blocked " + policy + ": the queue svc.a was declared with x-dead-letter-exchange, and an argument overrides every policy",
				"create shop.return -> svc.a (@svc.a)",
			},
		},
		"the address of another queue": {
			queues: []topology.Queue{ofService("svc.a", "quorum", "x-dead-letter-routing-key", "@svc.b")},
			want: []string{
				"blocked " + policy + ": the queue svc.a was declared with x-dead-letter-routing-key, and an argument overrides every policy",
				"create shop.return -> svc.a (@svc.a)",
			},
		},
		"the arguments of dlxctl": {
			queues: []topology.Queue{ofService("svc.a", "quorum", "x-dead-letter-exchange", "shop.failed",
				"x-dead-letter-routing-key", "@svc.a")},
			want: []string{"create shop.return -> svc.a (@svc.a)"},
		},
		"a queue of another topology": {
			queues: []topology.Queue{ofService("svc.a", "quorum", "x-managed-by", "dlxctl/mail")},
			want:   []string{"blocked " + policy + `: the pattern also matches the queue svc.a, which belongs to the topology "mail": the policy would change where its messages go`},
		},
		"a length that drops": {
			queues: []topology.Queue{ofService("svc.a", "quorum", "x-max-length", int64(9))},
			want: []string{
				"blocked " + policy + ": the queue svc.a has a limited length and drops its oldest messages",
				"create shop.return -> svc.a (@svc.a)",
			},
		},
		"a policy of others on all": {
			queues: []topology.Queue{ofService("svc.a", "quorum")}, policies: []topology.Policy{limits("all", ".*")},
			want: []string{
				"create shop.return -> svc.a (@svc.a)",
				`update dlxctl.shop.match.classic.^svc\.: starts from the policy all, which it overrides`,
				`update ` + policy + `: starts from the policy all, which it overrides`,
			},
		},
		"policies of others on some": {
			queues:   []topology.Queue{ofService("svc.a", "quorum"), ofService("svc.b", "quorum")},
			policies: []topology.Policy{limits("b", "b$")},
			want: []string{
				"blocked " + policy + ": on the queues that the pattern matches different policies are in effect, none on svc.a and b on svc.b, and one policy cannot repeat them all",
				"create shop.return -> svc.a (@svc.a)", "create shop.return -> svc.b (@svc.b)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := matching(t, svc)
			var got []string
			for _, c := range plan.Make(want, holding(want, tc.queues, tc.policies...), plan.Options{}).Changes {
				if strings.Contains(c.Name, ".protect.") {
					continue // what the policies do to generated queues is not the matter here
				}
				reason, _, _ := strings.Cut(c.Reason, "; ")
				got = append(got, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.Action, c.Name, reason), ": "))
			}
			slices.Sort(got)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("the plan (-want +got):\n%s", d)
			}
		})
	}
}

// A queue that no entry of the file covers any more loses its dead-lettering, and needs consent.
// One that an entry by another pattern covers keeps it.
func TestMatchEnds(t *testing.T) {
	t.Parallel()
	before := matching(t, svc)
	state := holding(before, []topology.Queue{ofService("svc.a", "quorum"), ofService("svc.b", "quorum")})
	for entry, want := range map[string]string{
		`{match: '^svc\.a', external: true}`:      "no longer declared; svc.b stays, and then drops the messages that its consumers reject",
		`{match: '^svc\.(a|b)$', external: true}`: "no longer declared",
		"{name: other}":                 "no longer declared; svc.a, svc.b stay, and then drop the messages that their consumers reject",
		`{name: svc.a, external: true}`: "no longer declared; svc.b stays, and then drops the messages that its consumers reject",
	} {
		for _, c := range plan.Make(matching(t, entry), state, plan.Options{}).Changes {
			if c.Name != `dlxctl.shop.match.quorum.^svc\.` {
				continue
			}
			if strings.Contains(want, "stay") {
				want += "; RabbitMQ deletes what it is dead-lettering at that moment"
			}
			if c.Action != plan.Delete || c.Reason != want || (len(c.Hazards) > 0) != strings.Contains(want, "stay") {
				t.Errorf("with %s the plan has: %s %s: %s %v", entry, c.Action, c.Name, c.Reason, c.Hazards)
			}
		}
	}
}

// While the policy of an entry that is gone stays, because there is no consent, all stays that the
// failures of its queues go through, and their retries and dead letters.
func TestASkippedMatchKeepsItsWay(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]string{"with a queue": {"{name: third}"}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := matching(t, append(entries, svc)...)
			state := holding(before, []topology.Queue{ofService("svc.a", "quorum"), ofService("svc.b", "classic")})
			for _, q := range []string{"svc.a", "svc.b"} {
				state.Have.Bindings = append(state.Have.Bindings, topology.Binding{
					Source: "shop.return", Destination: q, DestinationType: topology.ToQueue, Key: topology.AddressKey(q),
					Arguments: topology.Arguments{"x-managed-by": "dlxctl/shop"},
				})
			}
			after := topology.Compiled{Name: "shop"}
			if len(entries) > 0 {
				after = matching(t, entries...)
			}
			p := plan.Make(after, state, plan.Options{})
			for _, c := range plan.Allowed(p, nil).Changes {
				if c.Action == plan.Delete || c.Action == plan.Replace {
					t.Errorf("it takes %s %s away", c.Kind, c.Name)
				}
			}
			consent := []plan.Consent{{Hazard: topology.LosesMessages}, {Hazard: topology.DropsRouting}}
			if done := plan.Allowed(p, consent); len(done.Changes) != len(p.Changes) {
				t.Errorf("with consent: %v of %v", bare(done), bare(p))
			}
		})
	}
}

// Of two topologies that would both dead-letter a queue, also one that no service has declared yet,
// the second is refused, unless the pattern of one excludes the queues of the other.
func TestMatchesOfTwoTopologies(t *testing.T) {
	t.Parallel()
	const bill, notBill = `{match: '^svc\.bill', external: true}`, `{match: '^svc\.(?!bill)', external: true}`
	const eitherX, eitherY = `{match: '^(svc|x)', external: true}`, `{match: '^(svc|y)', external: true}`
	const classic = `{match: '^svc', type: classic, external: true}`
	const quorum = `{match: '^svc', type: quorum, external: true}`
	const named, declared = "{name: svc.a, external: true}", "{name: svc.a}"
	const isFor = "blocked %s: the policy dlxctl.mail.match.quorum.^svc\\. of the topology \"mail\" is for all queues that its pattern matches, also for this one"
	a := ofService("svc.a", "quorum")
	for name, tc := range map[string]struct {
		mail, shop string
		queues     []topology.Queue
		want       []string
	}{
		"the same pattern": {svc, svc, nil, []string{
			`blocked dlxctl.shop.match.quorum.^svc\.: the policy dlxctl.mail.match.quorum.^svc\. of the topology "mail" gives queues such as svc.x their dead-lettering`,
		}},
		"a narrower one": {svc, bill, nil, []string{
			`blocked dlxctl.shop.match.quorum.^svc\.bill: the policy dlxctl.mail.match.quorum.^svc\. of the topology "mail" gives queues such as svc.billx their dead-lettering`,
		}},
		"a wider one": {bill, svc, nil, []string{
			`blocked dlxctl.shop.match.quorum.^svc\.: the policy dlxctl.mail.match.quorum.^svc\.bill of the topology "mail" gives queues such as svc.billx their dead-lettering`,
		}},
		"a queue that exists": {eitherX, eitherY, []topology.Queue{a}, []string{
			`blocked dlxctl.shop.match.quorum.^(svc|y): the policy dlxctl.mail.match.quorum.^(svc|x) of the topology "mail" gives the queue svc.a its dead-lettering`,
		}},
		"one that excludes the other": {bill, notBill, []topology.Queue{ofService("svc.bill", "quorum"), a}, nil},
		"of other types":              {classic, quorum, nil, nil},
		"a queue of services by name": {svc, named, []topology.Queue{a}, []string{
			`blocked dlxctl.shop.queue.svc.a: the policy dlxctl.mail.match.quorum.^svc\. of the topology "mail" gives the queue svc.a its dead-lettering, and the topology "shop" declares the queue too`,
			fmt.Sprintf(isFor, "svc.a.dead"),
		}},
		"a queue that is to be created": {svc, declared, nil, []string{
			fmt.Sprintf(isFor, "svc.a.dead"), fmt.Sprintf(isFor, "svc.a"),
		}},
		"the queue of the other": {declared, svc, nil, []string{
			`blocked dlxctl.shop.match.quorum.^svc\.: the pattern also matches the queue svc.a, which belongs to the topology "mail": the policy would change where its messages go`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := matchingOf(t, "shop", tc.shop)
			var got []string
			for _, c := range plan.Make(want, holding(matchingOf(t, "mail", tc.mail), tc.queues), plan.Options{}).Changes {
				if c.Action == plan.Blocked && !strings.Contains(c.Name, ".classic.") {
					reason, _, _ := strings.Cut(c.Reason, ";")
					reason, _, _ = strings.Cut(reason, ", which the pattern")
					got = append(got, fmt.Sprintf("blocked %s: %s", c.Name, reason))
				}
			}
			slices.Sort(got)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("what is blocked (-want +got):\n%s", d)
			}
		})
	}
}

// A file with match is refused where a publisher could forge in which queue a message failed.
func TestMatchNeeds40(t *testing.T) {
	t.Parallel()
	for version, refused := range map[string]bool{"3.10.8": true, "3.13.7": true, "4.0.5": false, "4.3.6": false} {
		if err := plan.Guard(matching(t, svc), version, ""); (err != nil) != refused {
			t.Errorf("on %s: %v", version, err)
		}
	}
	if err := plan.Guard(matching(t, "{name: q}"), "3.10.8", ""); err != nil {
		t.Error(err)
	}
}

// Into a topology that was applied before, match comes with consent: an exchange is replaced.
func TestMatchIsAdded(t *testing.T) {
	t.Parallel()
	before := matching(t, "{name: q}")
	for _, c := range plan.Make(matching(t, "{name: q}", svc), holding(before, nil), plan.Options{}).Changes {
		want, hazards := plan.Create, 0
		if c.Name == "shop.failed.next" {
			want, hazards = plan.Replace, 1
		}
		if c.Action != want || len(c.Hazards) != hazards {
			t.Errorf("the plan has: %s %s: %s %v", c.Action, c.Name, c.Reason, c.Hazards)
		}
	}
}

// Of two entries that match a queue the first applies, also after their order in the file changed:
// the priority of the first becomes the highest, whatever is stored, and stays so. No two have the
// same priority in between either, where an apply may be interrupted.
func TestMatchesChangeTheirOrder(t *testing.T) {
	t.Parallel()
	entries := map[string]string{
		"a": `{match: '^svc\.', external: true}`,
		"b": `{match: '^svc\.b', external: true, deliveryLimit: 3}`,
		"c": `{match: '^svc\.bc', external: true, deliveryLimit: 4}`,
	}
	ordered := func(order string) topology.Compiled {
		var list []string
		for _, e := range order {
			list = append(list, entries[string(e)])
		}
		return matching(t, list...)
	}
	orders := []string{"cba", "cab", "abc", "bac", "cba", "acb", "abc", "bc", "bca", "cab"}
	state := holding(ordered(orders[0]), nil)
	for _, order := range orders[1:] {
		want := ordered(order)
		p := plan.Make(want, state, plan.Options{})
		have := map[string]topology.Policy{}
		for _, x := range state.Have.Policies {
			have[x.Name] = x
		}
		for _, c := range p.Changes {
			x, ok := c.After.(topology.Policy)
			switch {
			case ok:
				have[x.Name] = x
			case c.Action == plan.Delete:
				delete(have, c.Name)
			}
			used := map[string]string{}
			for _, name := range slices.Sorted(maps.Keys(have)) {
				key := fmt.Sprint(have[name].ApplyTo, have[name].Priority)
				if other, ok := used[key]; ok && topology.IsMatchPolicyName("shop", name) {
					t.Errorf("%s: after the change of %s, %s and %s have the priority %d",
						order, c.Name, other, name, have[name].Priority)
				}
				used[key] = name
			}
		}
		for _, kind := range []string{topology.Quorum, topology.Classic} {
			last := int64(math.MaxInt64)
			for _, m := range want.Matches {
				x := have[m.PolicyNames("shop")[kind]]
				if x.Priority >= last || x.IsPending() {
					t.Errorf("%s: the policy %s has the priority %d, after one of %d", order, x.Name, x.Priority, last)
				}
				last = x.Priority
			}
		}
		state.Have.Policies = slices.Collect(maps.Values(have))
		if again := plan.Make(want, state, plan.Options{}).Changes; len(again) > 0 {
			t.Errorf("%s: the plan is not empty: %v", order, again)
		}
	}
}

// The dead-letter queue of an entry that ends stays while it holds dead letters, without consent,
// as long as the file has another entry: also where nothing is bound to it any more. One that goes
// with the last entry needs consent.
func TestADeadLetterQueueOfAMatchStays(t *testing.T) {
	t.Parallel()
	const graves = `{match: '^svc\.', external: true, dead: {queue: graves}}`
	const dead = `{match: '^svc\.', external: true, dead: {queue: svcs.dead}}`
	for name, tc := range map[string]struct {
		before, after string
		queue         string
		held          int64
		want          plan.Action // empty: it stays
	}{
		"another queue, with dead letters": {graves, svc, "graves", 3, ""},
		"another name, with dead letters":  {dead, svc, "svcs.dead", 3, ""},
		"the shared one":                   {svc, graves, "shop.dead", 3, ""},
		"an entry ends":                    {graves, `{match: '^other', external: true}`, "graves", 3, ""},
		"empty":                            {graves, svc, "graves", 0, plan.Delete},
		"the last entry ends":              {graves, "{name: q}", "graves", 3, plan.Delete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := holding(matching(t, tc.before), nil)
			state.Usage = map[string]topology.Usage{tc.queue: {Ready: tc.held}}
			want := matching(t, tc.after)
			for _, bound := range []bool{true, false} { // as before the apply, and after it
				if !bound {
					state.Have.Bindings = slices.DeleteFunc(slices.Clone(state.Have.Bindings), func(b topology.Binding) bool {
						return b.Destination == tc.queue
					})
				}
				var got plan.Action
				hazards := 0
				p := plan.Make(want, state, plan.Options{})
				for _, c := range p.Changes {
					if c.Kind == topology.KindQueue && c.Name == tc.queue {
						got, hazards = c.Action, len(c.Hazards)
					}
				}
				stays := slices.Contains(p.RetiringDead, tc.queue)
				last := tc.after == "{name: q}"
				if last != bound && tc.want == plan.Delete {
					continue // an empty one is unbound first, and what goes with the last entry goes at once
				}
				if got != tc.want || stays != (tc.want == "") || hazards > 0 != last {
					t.Errorf("bound %t: %q with %d hazards, stays %t", bound, got, hazards, stays)
				}
			}
		})
	}
}

// What is in effect on a queue is of the topology itself while an entry changes, and dead-letters.
func TestNoWarningOfAnotherEntry(t *testing.T) {
	t.Parallel()
	before := matching(t, `{match: '^svc\.a', external: true}`, svc)
	state := holding(before, []topology.Queue{ofService("svc.a", "quorum")})
	for reported, warns := range map[string]bool{`dlxctl.shop.match.quorum.^svc\.a`: false, "other": true} {
		state.QueuePolicies = map[string]string{"svc.a": reported}
		p := plan.Make(matching(t, svc), state, plan.Options{})
		overruled := func(w plan.Warning) bool { return w.Name == topology.WarnOverruled }
		if got := slices.ContainsFunc(p.Warnings, overruled); got != warns {
			t.Errorf("with %q in effect it warns: %t (%v)", reported, got, p.Warnings)
		}
	}
}

// A limit of another team's policy that the policies of a match take over drops what a queue holds
// above it, which needs consent.
func TestMatchTakesOverALimit(t *testing.T) {
	t.Parallel()
	want := matching(t, svc)
	limit := queuePolicy("team", "^svc", 5, args{"max-length": int64(3)})
	queues := []topology.Queue{ofService("svc.a", "quorum"), ofService("svc.b", "quorum"), ofService("svc.c", "classic")}
	state := holding(want, queues, limit)
	state.Usage = map[string]topology.Usage{"svc.a": {Ready: 9}, "svc.b": {Ready: 3}, "svc.c": {Ready: 4}}
	reasons := map[string]string{}
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		if slices.Contains(c.Hazards, topology.LosesMessages) {
			reasons[c.Name] = c.Reason
		}
	}
	const leave = " and the oldest leave it at once, down to 3 messages: they count as failed, and are dead-lettered without a confirmation"
	if d := cmp.Diff(map[string]string{
		`dlxctl.shop.match.quorum.^svc\.`: "starts from the policy team, which it overrides; svc.a holds 9 messages," + leave +
			"; RabbitMQ deletes what it is dead-lettering at that moment",
		`dlxctl.shop.match.classic.^svc\.`: "starts from the policy team, which it overrides; svc.c holds 4 messages," + leave,
	}, reasons); d != "" {
		t.Errorf("the hazards (-want +got):\n%s", d)
	}
}
