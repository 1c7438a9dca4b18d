package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Each way in which dead letters of a work queue come to go to a queue that does not keep them
// needs consent, once, by the name of what changes. Large limits of the length are a warning.
func TestLosingDeadLetters(t *testing.T) {
	t.Parallel()
	const (
		one     = "{name: q1, backoff: none, dead: %}"
		two     = "{name: q1, backoff: none, dead: %}, {name: q2, backoff: none, dead: %}"
		keeps   = "{queue: graves}"
		deletes = "{queue: graves, arguments: {x-message-ttl: 0}}"
		gone    = "{queue: gone, external: true}"
	)
	with := func(queues, dead string) string { return strings.ReplaceAll(queues, "%", dead) }
	limited := func(arguments string) string { return with(one, "{queue: graves, arguments: {"+arguments+"}}") }
	external := func(arguments args) topology.Queue {
		arguments["x-queue-type"] = "classic"
		return topology.Queue{Name: "gone", Durable: true, Arguments: arguments}
	}
	ttl := topology.Policy{
		Name: "short", Pattern: "^gone$", ApplyTo: "queues", Definition: topology.Arguments{"message-ttl": int64(0)},
	}
	for name, tc := range map[string]struct {
		before, after string
		gone          *topology.Queue
		policies      []topology.Policy
		operator      []topology.Policy
		accept        string
		needs         string // flags
		reason        string // of a change that needs consent
		warns         string
		only          string // the only warnings, by name; empty: any
	}{
		"a dead-letter queue that is created": {
			after: with(one, deletes), needs: "--allow loses-messages=graves",
			reason: "it deletes dead letters at once (x-message-ttl)",
		},
		"created for two queues": {after: with(two, deletes), needs: "--allow loses-messages=graves"},
		"replaced": {
			before: with(one, keeps), after: with(one, deletes), needs: "--allow loses-messages=graves",
			reason: "it deletes dead letters at once (x-message-ttl)",
		},
		"replaced, with another TTL": {
			before: with(one, deletes), after: limited("x-message-ttl: 60000"), needs: "--allow loses-messages=graves",
			reason: "it deletes dead letters after 1m (x-message-ttl)",
		},
		"replaced for another argument": {
			before: with(one, deletes), after: limited("x-message-ttl: 0, x-queue-leader-locator: balanced"),
		},
		"a queue is rerouted to it": {
			before: "{name: q1, backoff: none, dead: " + deletes + "}, {name: q2, backoff: none}", after: with(two, deletes),
			needs:  "--allow loses-messages=q2",
			reason: "what is in q2.dead stays there; dead letters of q2 go to graves, which deletes dead letters at once (x-message-ttl)",
		},
		"a queue joins": {
			before: with(one, deletes), after: with(two, deletes), needs: "--allow loses-messages=q2",
			reason: "dead letters of q2 go to graves, which deletes dead letters at once (x-message-ttl)",
		},
		"a queue leaves": {before: with(two, deletes), after: with(one, deletes)},
		"rerouted to one that is new": {
			before: with(one, "own"), after: with(one, deletes), needs: "--allow loses-messages=graves",
		},
		"external, by argument": {
			after: with(two, gone), gone: new(external(args{"x-message-ttl": int64(0)})),
			needs:  "--allow loses-messages=q1 --allow loses-messages=q2",
			reason: "dead letters of q1 go to gone, which deletes dead letters at once (x-message-ttl)",
		},
		"external, by a policy": {
			after: with(one, gone), gone: new(external(args{})), policies: []topology.Policy{ttl},
			needs:  "--allow loses-messages=q1",
			reason: "dead letters of q1 go to gone, which deletes dead letters at once (message-ttl of the policy short)",
		},
		"external, by an operator policy": {
			after: with(one, gone), gone: new(external(args{})), operator: []topology.Policy{ttl},
			needs:  "--allow loses-messages=q1",
			reason: "dead letters of q1 go to gone, which deletes dead letters at once (message-ttl of the operator policy short)",
		},
		"external, which dead-letters on": {
			after: with(one, gone), gone: new(external(args{
				"x-message-ttl": int64(0), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1.other",
			})),
		},
		"external, which dead-letters to nothing": {
			after: with(one, gone), gone: new(external(args{"x-message-ttl": int64(0), "x-dead-letter-exchange": "none"})),
			needs: "--allow loses-messages=q1",
		},
		"external, deleted with its last consumer": {
			after: with(one, gone), gone: &topology.Queue{
				Name: "gone", Durable: true, AutoDelete: true, Arguments: topology.Arguments{"x-queue-type": "classic"},
			},
			needs:  "--allow loses-messages=q1",
			reason: "dead letters of q1 go to gone, which is deleted with its dead letters when its last consumer disconnects (auto-delete)",
		},
		"external, a queue is rerouted": {
			before: with(one, "own"), after: with(one, gone), gone: new(external(args{"x-expires": int64(1000)})),
			needs: "--allow loses-messages=q1",
			reason: "what is in q1.dead stays there; " +
				"dead letters of q1 go to gone, which is deleted with its dead letters after 1s without a consumer (x-expires)",
		},
		"x-expires": {
			after: limited("x-expires: 1000"), needs: "--allow loses-messages=graves",
			reason: "it is deleted with its dead letters after 1s without a consumer (x-expires)",
		},
		"a small length": {
			after: limited("x-max-length: 1"), needs: "--allow loses-messages=graves",
			reason: "it deletes its oldest dead letter above 1 message (x-max-length)",
		},
		"bytes": {
			after: limited("x-max-length-bytes: 5000"), needs: "--allow loses-messages=graves",
			reason: "it deletes its oldest dead letter above 5000 bytes (x-max-length-bytes)",
		},
		"two reasons": {
			after: limited("x-message-ttl: 5000, x-max-length: 10"), needs: "--allow loses-messages=graves",
			reason: "it deletes dead letters after 5s (x-message-ttl), and deletes its oldest dead letter above 10 messages (x-max-length)",
		},
		"a large length": {
			after: limited("x-max-length: 10000"),
			warns: "limited-dead-letters: graves, where dead letters of q1 go, deletes its oldest dead letter above 10000 messages (x-max-length)",
		},
		"a match joins": {
			before: with(one, deletes),
			after:  with(one+", {match: '^svc', external: true, backoff: s, dead: %}", deletes),
			needs:  `--allow 'loses-messages=^svc'`,
			reason: "dead letters of queues that match ^svc go to graves, which deletes dead letters at once (x-message-ttl)",
		},
		"a large length that the file accepts": {
			after: limited("x-max-length: 10000"), accept: "accept: [limited-dead-letters=graves]\n",
		},
		"a large length in place": {before: limited("x-max-length: 10000"), after: limited("x-max-length: 10000")},
		"a full queue refuses quorum queues that keep what it refuses": {
			after: limited("x-max-length: 1, x-overflow: reject-publish"),
		},
		"a full queue refuses classic queues": {
			after: "{name: q1, backoff: none, type: classic, dead: {queue: graves, arguments: {x-max-length: 1, x-overflow: reject-publish}}}",
			warns: "limited-dead-letters: graves, where dead letters of q1 go, refuses more than 1 message, and what it refuses is lost, as they dead-letter to it at most once",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := func(queues string) topology.Compiled {
				if queues == "" {
					return topology.Compiled{}
				}
				return loaded(t, "version: 1\nname: shop\nbackoff: {s: {tiers: [1s]}}\n"+tc.accept+"queues: ["+queues+"]\n")
			}
			have := file(tc.before)
			f := &fake{objects: map[string]topology.Object{}}
			if tc.gone != nil {
				if err := f.create(*tc.gone); err != nil {
					t.Fatal(err)
				}
				if err := f.create(queue("q1.other", args{"x-managed-by": nil})); err != nil {
					t.Fatal(err)
				}
			}
			state := func() topology.State {
				s := f.state()
				s.Have.Policies, s.OperatorPolicies = slices.Concat(s.Have.Policies, tc.policies), tc.operator
				return s
			}
			carry := func(want topology.Compiled, p plan.Plan) {
				t.Helper()
				if err := apply.ExecuteWithReroutes(t.Context(), f, want, p, 0, func(plan.Change) {}); err != nil {
					t.Fatal(err)
				}
			}
			if tc.before != "" {
				carry(have, plan.Make(have, state(), plan.Options{}))
			}
			want := file(tc.after)
			p := plan.Make(want, state(), plan.Options{})
			losing := filter(p.Changes, func(c plan.Change) bool { return slices.Contains(c.Hazards, topology.LosesMessages) })
			loses := plan.Plan{Changes: losing}
			if d := cmp.Diff(tc.needs, loses.Needs(plan.Allow(topology.DropsRouting))); d != "" {
				t.Errorf("consent (-want +got):\n%s", d)
			}
			has := func(c plan.Change) bool { return strings.HasSuffix(c.Reason, tc.reason) }
			if tc.reason != "" && !slices.ContainsFunc(losing, has) {
				t.Errorf("no change says why:\n%v", text(t, p))
			}
			var warned string
			for _, w := range p.Warnings {
				if w.Name == topology.WarnLimitedDeadLetters {
					warned += w.Name + ": " + w.Text
				}
			}
			if d := cmp.Diff(tc.warns, warned); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
			// Once it is carried out, nothing is asked.
			carry(want, p)
			again := plan.Make(want, state(), plan.Options{})
			for _, c := range again.Changes {
				if slices.Contains(c.Hazards, topology.LosesMessages) {
					t.Errorf("asks again: %v", summarize(again.Changes))
				}
			}
		})
	}
}

func filter(list []plan.Change, keep func(plan.Change) bool) []plan.Change {
	return slices.DeleteFunc(slices.Clone(list), func(c plan.Change) bool { return !keep(c) })
}

// What was not allowed is skipped with --skip-blocked, and asked for again: no work queue comes to
// the dead-letter queue meanwhile.
func TestSkippedLosingIsAskedForAgain(t *testing.T) {
	t.Parallel()
	const deletes = "{queue: graves, arguments: {x-message-ttl: 0}}"
	file := func(queues string) topology.Compiled {
		return loaded(t, "version: 1\nname: shop\nqueues: ["+strings.ReplaceAll(queues, "%", deletes)+"]\n")
	}
	for name, tc := range map[string]struct{ before, after string }{
		"a queue that joins":       {"{name: q1, backoff: none, dead: %}", "{name: q1, backoff: none, dead: %}, {name: q2, backoff: none, dead: %}"},
		"a queue that is rerouted": {"{name: q1, backoff: none, dead: %}, {name: q2, backoff: none}", "{name: q1, backoff: none, dead: %}, {name: q2, backoff: none, dead: %}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{objects: map[string]topology.Object{}}
			before, after := file(tc.before), file(tc.after)
			carry := func(want topology.Compiled, p plan.Plan) {
				t.Helper()
				if err := apply.ExecuteWithReroutes(t.Context(), f, want, p, 0, func(plan.Change) {}); err != nil {
					t.Fatal(err)
				}
			}
			carry(before, plan.Make(before, f.state(), plan.Options{}))
			for range 2 {
				p := plan.Make(after, f.state(), plan.Options{SkipBlocked: true})
				if d := cmp.Diff("--allow loses-messages=q2", p.Needs(nil)); d != "" {
					t.Fatalf("consent (-want +got):\n%s", d)
				}
				carry(after, plan.Allowed(p, nil))
			}
			objects := slices.Collect(maps.Values(f.objects))
			both := func(o topology.Object) bool {
				b, ok := o.(topology.Binding)
				return ok && b.Source == "shop.dead" && b.Key == "@q2" && b.Destination == "graves"
			}
			queue := func(o topology.Object) bool { q, ok := o.(topology.Queue); return ok && q.Name == "q2" }
			if slices.ContainsFunc(objects, both) && slices.ContainsFunc(objects, queue) {
				t.Error("q2 was led to graves")
			}
		})
	}
}
