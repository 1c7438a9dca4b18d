package plan_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// compiled returns the topology of a file whose first lines are the same each time.
func compiled(t *testing.T, queueType string, lines ...string) topology.Compiled {
	t.Helper()
	text := "version: 1\nname: shop\ndefaults: {type: " + queueType + ", backoff: a}\nbackoff: {a: {tiers: [1s, 1m]}}\n" +
		strings.Join(lines, "\n") + "\n"
	return loaded(t, text)
}

const oneQueue = "queues: [{name: w, dead: {queue: w.dead, arguments: {x-max-length: 7}}}]"

// catchAll is a policy over everything.
func catchAll(name string, priority int64, definition args) topology.Policy {
	return topology.Policy{Name: name, Pattern: ".*", ApplyTo: "all", Priority: priority, Definition: definition}
}

// applied is what a broker has after a plan: its queues, and the policies of others
// next to those of the topology.
func applied(want topology.Compiled, policies []topology.Policy, plans ...plan.Plan) topology.State {
	state := topology.State{
		Version: "4.3.6", VHost: "/",
		Have: topology.Topology{Exchanges: want.Exchanges, Queues: slices.Clone(want.Queues), Bindings: want.Bindings},
	}
	byName := map[string]topology.Policy{}
	for _, p := range policies {
		byName[p.Name] = p
	}
	for _, p := range plans {
		for _, c := range p.Changes {
			if after, ok := c.After.(topology.Policy); ok && c.Action != plan.Blocked {
				byName[c.Name] = after
			} else if c.Kind == topology.KindPolicy && c.Action == plan.Delete {
				delete(byName, c.Name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		state.Have.Policies = append(state.Have.Policies, byName[name])
	}
	for i := range state.Have.Queues {
		state.Have.Queues[i].Label = topology.Label{}
	}
	state.QueuePolicies = map[string]string{}
	for _, q := range state.Have.Queues {
		if p, ok := policy.All(state).For(q); ok {
			state.QueuePolicies[q.Name] = p.Name
		}
	}
	return state
}

// protecting returns the policies of a plan that override others, by role.
func protecting(p plan.Plan) map[topology.Role]topology.Policy {
	out := map[topology.Role]topology.Policy{}
	for _, c := range p.Changes {
		if role, _, _, ok := topology.ProtectionOf("shop", c.Name); ok && c.After != nil {
			out[role], _ = c.After.(topology.Policy)
		}
	}
	return out
}

// values are those of keys with which they do harm, if they do any.
func values() map[string]any {
	out := map[string]any{
		"message-ttl": int64(500), "expires": int64(60000), "max-length": int64(3), "max-length-bytes": int64(30),
		"delivery-limit": int64(3),
		"overflow":       "reject-publish-dlx", "dead-letter-exchange": "dlx", "dead-letter-routing-key": "dead",
		"dead-letter-strategy": "at-most-once", "delayed-retry-type": "all",
	}
	for _, e := range policy.Table() {
		if out[e.Key] == nil {
			out[e.Key] = "some"
		}
	}
	return out
}

// Every cell of the table: a harmful key is overridden on the queues of its role,
// by the same policy without it; any other is left alone. The operator's needs
// consent where something is lost or misrouted.
func TestPolicyEffects(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{topology.Quorum, topology.Classic} {
		lines := []string{oneQueue}
		if queueType == topology.Quorum { // those of delays are, in each file
			lines = append(lines, "exchanges: [{name: events}]",
				"delays: [{name: later, to: events, max: 2s}, {name: timed, to: events, max: 2s, engine: native}]")
		}
		want := compiled(t, queueType, lines...)
		harms := func(e policy.Cell) bool { // whether queues of the type know the key
			return e.Effect == policy.Harmful &&
				(queueType == topology.Quorum || e.Key != "delivery-limit" && e.Key != "delayed-retry-type" &&
					(e.Key != "overflow" || e.Role != topology.RoleRetry))
		}
		for _, e := range policy.Table() {
			if e.Exchange || e.Part != "" && queueType == topology.Classic {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%s %s", queueType, e.Key, e.Role, e.Part), func(t *testing.T) {
				t.Parallel()
				// A key that the type does not know keeps all of a policy from applying.
				for _, kept := range []args{nil, {"queue-version": int64(1)}} {
					definition := args{e.Key: values()[e.Key]}
					maps.Copy(definition, kept)
					policies := []topology.Policy{catchAll("all", 7, definition)}
					p := plan.Make(want, topology.State{Version: "4.3.6", Have: topology.Topology{Policies: policies}}, plan.Options{})
					got := protecting(p)[e.Role]
					there := slices.Contains(topology.PatternQueues(got.Pattern), queueOf(want, e))
					if there != harms(e) {
						t.Fatalf("it is overridden: %t; the table says %s", there, e.Effect)
					}
					if kept == nil {
						kept = args{"max-length": int64(1) << 31}
					}
					if there && (!got.Definition.Equal(kept) || got.Priority <= 7) {
						t.Errorf("the policy has the priority %d and the definition %s", got.Priority, got.Definition)
					}
					state := applied(want, policies, p)
					if left := plan.Make(want, state, plan.Options{}); !left.Empty() {
						t.Errorf("it is not done with one apply:\n%s", text(t, left))
					}
				}
				operator := []topology.Policy{catchAll("op", 0, args{e.Key: values()[e.Key]})}
				p := plan.Make(want, topology.State{Version: "4.3.6", OperatorPolicies: operator}, plan.Options{})
				asked := slices.ContainsFunc(p.Changes,
					func(c plan.Change) bool { return c.IsEndured() && slices.Contains(c.Hazards, e.Hazard) })
				lost := slices.ContainsFunc(policy.Table(),
					func(o policy.Cell) bool { return o.Key == e.Key && o.Hazard == e.Hazard && harms(o) })
				if e.Hazard != "" && asked != lost {
					t.Errorf("the operator's needs consent to %s: %t; the table says %s", e.Hazard, asked, e.Effect)
				}
			})
		}
	}
}

// queueOf returns a queue to which a cell applies.
func queueOf(want topology.Compiled, e policy.Cell) string {
	i := slices.IndexFunc(want.Queues, func(q topology.Queue) bool {
		return q.Label.Role == e.Role && policy.PartOf(q) == e.Part
	})
	return want.Queues[i].Name
}

// What a protection looks like, and when it comes and goes.
func TestProtection(t *testing.T) {
	t.Parallel()
	want := compiled(t, topology.Classic, "queues: [{name: w}]")
	mirrored := catchAll("all", 5, args{"message-ttl": int64(500), "queue-version": int64(1)})
	first := func(policies ...topology.Policy) topology.State {
		return topology.State{Version: "4.3.6", Have: topology.Topology{Policies: policies}}
	}
	after := func(policies ...topology.Policy) topology.State {
		return applied(want, policies, plan.Make(want, first(mirrored), plan.Options{}))
	}
	changed := mirrored
	changed.Definition = args{"message-ttl": int64(500), "queue-version": int64(2)}
	louder := mirrored
	louder.Priority = 999999999
	harmless := mirrored
	harmless.Definition = args{"queue-version": int64(1)}
	narrow := mirrored
	narrow.Pattern = "^w\\.dead$"
	dead := "dlxctl.shop.protect.dead.1.all"
	without := func(s topology.State, name string) topology.State {
		s.Have.Policies = slices.DeleteFunc(slices.Clone(s.Have.Policies),
			func(p topology.Policy) bool { return p.Name == name })
		return s
	}
	for name, tc := range map[string]struct {
		state topology.State
		want  []string // of the policy for dead-letter queues and of those endured
	}{
		"new": {first(mirrored), []string{
			`create dlxctl.shop.protect.dead.1.all 1000 ^w\.dead$ {"queue-version":1}: the policy all (pattern .*) would delete the messages in w.dead after 500ms; this policy overrides it there and keeps its other settings`,
		}},
		"done": {after(mirrored), nil},
		"changed": {
			after(changed),
			[]string{`update dlxctl.shop.protect.dead.1.all 1000 ^w\.dead$ {"queue-version":2}: the policy all (pattern .*) would delete the messages in w.dead after 500ms; this policy overrides it there and keeps its other settings`},
		},
		"louder": {
			after(louder),
			[]string{`update dlxctl.shop.protect.dead.1.all 1000000002 ^w\.dead$ {"queue-version":1}: the policy all (pattern .*) would delete the messages in w.dead after 500ms; this policy overrides it there and keeps its other settings`},
		},
		"harmless": {
			after(harmless),
			[]string{`delete dlxctl.shop.protect.dead.1.all: there is no harmful policy left to override`},
		},
		"gone": {
			after(),
			[]string{`delete dlxctl.shop.protect.dead.1.all: there is no harmful policy left to override`},
		},
		"narrower": {after(narrow), nil},
		"deleted": {
			without(after(mirrored), dead),
			[]string{`create dlxctl.shop.protect.dead.1.all 1000 ^w\.dead$ {"queue-version":1}: the policy all (pattern .*) would delete the messages in w.dead after 500ms; this policy overrides it there and keeps its other settings`},
		},
		"overridden": {
			after(mirrored, catchAll("more", 2000, args{"expires": int64(60000)})),
			[]string{`create dlxctl.shop.protect.dead.1.more 2002 ^w\.dead$ {"max-length":2147483648}: the policy more (pattern .*) would delete w.dead, with all messages in it, after 1m without a consumer; this policy overrides it there`, `delete dlxctl.shop.protect.dead.1.all: there is no harmful policy left to override`},
		},
		"equals": {first(catchAll("a", 5, args{"queue-version": int64(1)}),
			catchAll("b", 5, args{"max-length": int64(9)}), catchAll("c", 4, args{"expires": int64(9)})), []string{
			`create dlxctl.shop.protect.dead.1.b 1000 ^w\.dead$ {"max-length":2147483648}: the policy b (pattern .*) would drop the oldest message of w.dead above 9 messages; this policy overrides it there`,
		}},
		"a weaker one": {first(catchAll("a", 6, args{"queue-version": int64(1)}),
			catchAll("b", 5, args{"max-length": int64(9)})), nil},
		"the highest": {first(catchAll("a", math.MaxInt64,
			args{"dead-letter-routing-key": "k", "message-ttl": int64(500), "dead-letter-exchange": "x"})), []string{
			`blocked a [loses-messages drops-routing]: the policy a (pattern .*) would move the messages in shop.a.failed to the exchange shop.dead after 500ms; and send every retry that leaves shop.a.retry.1m, shop.a.retry.1s to the routing key "k" instead of its work queue; and move the messages in shop.unroutable to the exchange x after 500ms; and move the messages in w.dead to the exchange x after 500ms; it has the highest possible priority: lower it, or consent to what it does`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range plan.Make(want, tc.state, plan.Options{}).Changes {
				role, _, _, protects := topology.ProtectionOf("shop", c.Name)
				if c.Kind != topology.KindPolicy || protects && role != topology.RoleDeadLetter {
					continue
				}
				line := fmt.Sprintf("%s %s", c.Action, c.Name)
				if p, ok := c.After.(topology.Policy); ok {
					line += fmt.Sprintf(" %d %s %s", p.Priority, p.Pattern, p.Definition)
				}
				if len(c.Hazards) > 0 {
					line += fmt.Sprint(" ", c.Hazards)
				}
				got = append(got, line+": "+c.Reason)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
		})
	}
}

// numbered returns a file with so many work queues, each with a dead-letter queue.
func numbered(t *testing.T, n int) topology.Compiled {
	t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("{name: queue%04d}", i))
	}
	return compiled(t, topology.Classic, "queues: ["+strings.Join(names, ", ")+"]")
}

// Many queues share few policies, no pattern is too long for RabbitMQ 4.3, and a
// queue that comes or goes moves no other from one policy to the next.
func TestProtectionOfManyQueues(t *testing.T) {
	t.Parallel()
	policies := []topology.Policy{catchAll("all", 0, args{"expires": int64(60000)})}
	var state topology.State
	state.Version = "4.3.6"
	state.Have.Policies = policies
	before := map[string]string{} // by queue, its policy
	for _, n := range []int{300, 301, 299, 300} {
		want := numbered(t, n)
		p := plan.Make(want, state, plan.Options{})
		now := map[string]string{}
		state = applied(want, state.Have.Policies, p)
		for _, policy := range state.Have.Policies {
			if len(policy.Pattern) > 1024 {
				t.Errorf("the pattern of %s has %d bytes", policy.Name, len(policy.Pattern))
			}
			for _, q := range topology.PatternQueues(policy.Pattern) {
				if now[q] != "" {
					t.Errorf("%s is in two policies", q)
				}
				now[q] = policy.Name
			}
		}
		for _, q := range want.Queues {
			if is := now[q.Name]; is == "" && q.Label.Role != topology.RoleWork || before[q.Name] != "" && before[q.Name] != is {
				t.Errorf("the policy of %s was %q and is %q", q.Name, before[q.Name], is)
			}
		}
		if len(state.Have.Policies) > 12 {
			t.Errorf("there are %d policies", len(state.Have.Policies))
		}
		if left := plan.Make(want, state, plan.Options{}); !left.Empty() {
			t.Errorf("left to do:\n%s", text(t, left))
		}
		before = now
	}
}

// The protection of a topology that is taken from the broker goes after its queues,
// and stays as long as one of these does.
func TestProtectionGoesLast(t *testing.T) {
	t.Parallel()
	policies := []topology.Policy{catchAll("all", 0, args{"message-ttl": int64(500)})}
	want := compiled(t, topology.Classic, "queues: [{name: w}]")
	state := applied(want, policies,
		plan.Make(want, topology.State{Version: "4.3.6", Have: topology.Topology{Policies: policies}}, plan.Options{}))
	for i, b := range state.Have.Bindings { // the tiers hold nothing, and nothing leads there
		if b.Source == "shop.a.dlx" {
			state.Have.Bindings[i].Destination = "elsewhere"
		}
	}
	empty := topology.Compiled{Name: "shop"}
	p := plan.Make(empty, state, plan.Options{})
	last := plan.Phase(0)
	for _, c := range p.Changes {
		if c.Kind != topology.KindPolicy {
			last = c.Phase
		} else if c.Action != plan.Delete || c.Phase < last || !c.ReturnPath {
			t.Errorf("%s %s has phase %d, behind %d", c.Action, c.Name, c.Phase, last)
		}
	}
	if n := len(p.Changes); n == 0 || p.Changes[n-1].Kind != topology.KindPolicy {
		t.Fatalf("the plan is %v", summarize(p.Changes))
	}
	state.Usage = map[string]topology.Usage{"w.dead": {Ready: 3}}
	p = plan.Make(empty, state, plan.Options{})
	for _, c := range plan.Allowed(p, plan.Allow(topology.DropsRouting)).Changes {
		if c.Name == "w.dead" || strings.HasPrefix(c.Name, "dlxctl.shop.protect.dead.") {
			t.Errorf("%s %s, though there are dead letters", c.Action, c.Name)
		}
	}
	// Out of the file, and still there: it is still protected.
	state.Have.Policies = policies
	state.QueuePolicies = map[string]string{}
	other := compiled(t, topology.Classic, "queues: [{name: v}]")
	if p := protecting(plan.Make(other, state,
		plan.Options{}))[topology.RoleDeadLetter]; !slices.Contains(topology.PatternQueues(p.Pattern), "w.dead") {
		t.Errorf("the pattern is %q", p.Pattern)
	}
}

// An interrupted write of dlxctl, a pattern that another team changed, and one that only
// the broker can read.
func TestProtectionThatIsNotInEffect(t *testing.T) {
	t.Parallel()
	want := compiled(t, topology.Classic, "queues: [{name: w}]")
	policies := []topology.Policy{catchAll("all", 0, args{"message-ttl": int64(500)})}
	done := func() topology.State {
		return applied(want, policies,
			plan.Make(want, topology.State{Version: "4.3.6", Have: topology.Topology{Policies: policies}}, plan.Options{}))
	}
	set := func(s topology.State, change func(p *topology.Policy)) topology.State {
		for i, p := range s.Have.Policies {
			if p.Name == "dlxctl.shop.protect.dead.1.all" {
				change(&s.Have.Policies[i])
			}
		}
		return s
	}
	silent := done()
	delete(silent.QueuePolicies, "w.dead")
	unreadable := done()
	for i, p := range unreadable.Have.Policies {
		if p.Name == "all" {
			unreadable.Have.Policies[i].Pattern = "(?R)?("
		}
	}
	exchanges := done()
	for i, p := range exchanges.Have.Policies {
		if p.Name == "all" {
			exchanges.Have.Policies[i].ApplyTo = "exchanges"
		}
	}
	foreign := set(done(), func(p *topology.Policy) { p.Pattern = "^(?:foreign|w\\.dead)$" })
	foreign.Have.Queues = append(foreign.Have.Queues,
		topology.Queue{Name: "foreign", Durable: true, Arguments: args{"x-queue-type": "classic"}})
	for name, tc := range map[string]struct {
		state topology.State
		want  string
	}{
		"done":             {done(), ""},
		"interrupted":      {set(done(), func(p *topology.Policy) { p.Priority++ }), `update 1002 ^w\.dead$`},
		"not in effect":    {silent, `update 1002 ^w\.dead$`},
		"another pattern":  {set(done(), func(p *topology.Policy) { p.Pattern = "^w" }), `update 1000 ^w\.dead$`},
		"a foreign queue":  {foreign, `update 1000 ^w\.dead$`},
		"one that is gone": {set(done(), func(p *topology.Policy) { p.Pattern = "^(?:gone|w\\.dead)$" }), ""},
		"other settings": {
			set(done(), func(p *topology.Policy) { p.Definition = args{"expires": int64(1)} }),
			`update 1000 ^w\.dead$`,
		},
		"unreadable":        {unreadable, ""},
		"for exchanges now": {exchanges, "delete 0 delete 0 delete 0 delete 0 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			for _, c := range plan.Make(want, tc.state, plan.Options{}).Changes {
				p, _ := c.After.(topology.Policy)
				got += fmt.Sprintf("%s %d %s", c.Action, p.Priority, p.Pattern)
			}
			if got != tc.want {
				t.Errorf("the changes are %q, not %q", got, tc.want)
			}
		})
	}
}

// An operator policy moves what is above its limit only where the policy in effect has a
// dead-letter exchange; elsewhere the broker drops it.
func TestEnduredSaysWhatIsInEffect(t *testing.T) {
	t.Parallel()
	want := compiled(t, topology.Quorum, "queues: [{name: bypol}, {name: plain}, {name: prio}]")
	state := topology.State{Version: "4.0.5"}
	state.OperatorPolicies = []topology.Policy{catchAll("op", 0, args{"max-length": int64(9)})}
	moves := catchAll("moves", 2, args{"dead-letter-exchange": "dlx"})
	moves.Pattern = "^bypol"
	state.Have.Policies = []topology.Policy{moves, catchAll("ttl-all", 1, args{"message-ttl": int64(500)})}
	var reasons []string
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		if c.IsEndured() {
			reasons = append(reasons, c.Reason)
		}
	}
	got := strings.Join(reasons, "\n")
	for _, part := range []string{
		"move the oldest message of bypol.dead to the exchange dlx above 9 messages",
		"drop the oldest message of plain.dead, prio.dead above 9 messages",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("it does not say %q:\n%s", part, got)
		}
	}
}

// A policy that overrides another one shows each key once.
func TestProtectionShowsEachKeyOnce(t *testing.T) {
	t.Parallel()
	want := compiled(t, topology.Quorum, "queues: [{name: w}]")
	state := topology.State{Version: "4.0.5"}
	state.Have.Policies = []topology.Policy{catchAll("all", 1, args{"max-length": int64(9)})}
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		seen := map[string]bool{}
		for _, f := range c.Fields {
			if seen[f.Name] {
				t.Errorf("%s shows %s twice: %v", c.Name, f.Name, c.Fields)
			}
			seen[f.Name] = true
		}
	}
}

// What an operator's policy does holds a plan up until it is allowed, and is never
// taken for a change that was not carried out.
func TestEndured(t *testing.T) {
	t.Parallel()
	want := compiled(t, topology.Quorum, "queues: [{name: w}]")
	state := applied(want, nil)
	state.OperatorPolicies = []topology.Policy{catchAll("op", 0, args{"max-length": int64(9)})}
	p := plan.Make(want, state, plan.Options{})
	if d := cmp.Diff([]string{"blocked policy op [max-length] loses-messages"}, summarize(p.Changes)); d != "" {
		t.Fatalf("changes (-want +got):\n%s", d)
	}
	if err := plan.Check(p, nil); err == nil {
		t.Error("it may be carried out without consent")
	}
	if err := plan.Check(p, plan.Allow(topology.LosesMessages)); err != nil {
		t.Error(err)
	}
	if todo := plan.Allowed(p, plan.Allow(topology.LosesMessages)); !todo.Empty() {
		t.Errorf("to be done: %v", summarize(todo.Changes))
	}
	if rights := plan.Rights(p); len(rights) > 0 {
		t.Errorf("it takes %v", rights)
	}
	state.OperatorPolicies = []topology.Policy{catchAll("op", 0, args{"message-ttl": int64(9)})}
	state.OperatorPolicies[0].Pattern = "retry"
	if p := plan.Make(want, state, plan.Options{}); !p.Empty() || len(p.Warnings) != 1 ||
		p.Warnings[0].Name != "overruled" {
		t.Errorf("a wait that is too short is %v, %v", summarize(p.Changes), p.Warnings)
	}
}

// A failed queue that was made without dead-lettering stays: its processors consume it, so that it
// cannot be replaced. Whatever else differs is shown.
func TestAFailedQueueStaysAsItIs(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{topology.Quorum, topology.Classic} {
		want := compiled(t, queueType, oneQueue)
		for name, tc := range map[string]struct {
			set  topology.Arguments
			want plan.Action
		}{
			"without":               {},
			"with another limit":    {topology.Arguments{topology.ArgDeliveryLimit: int64(7)}, plan.Blocked},
			"with another exchange": {topology.Arguments{topology.ArgDeadLetterExchange: "elsewhere"}, plan.Blocked},
		} {
			state := applied(want, nil)
			i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == "shop.a.failed" })
			args := want.Queues[i].Arguments.Without(topology.ArgDeadLetterExchange,
				topology.ArgDeadLetterStrategy, topology.ArgOverflow)
			maps.Copy(args, tc.set)
			state.Have.Queues[i].Arguments = args
			state.Usage = map[string]topology.Usage{"shop.a.failed": {Consumers: 1}}
			var got plan.Action
			for _, c := range plan.Make(want, state, plan.Options{}).Changes {
				if c.Kind == topology.KindQueue {
					got = c.Action
				}
			}
			if got != tc.want {
				t.Errorf("%s, %s: the plan would %q, not %q", queueType, name, got, tc.want)
			}
		}
	}
}
