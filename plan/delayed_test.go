package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// delayFile is a file with one delay, or with none if longest is empty.
func delayFile(t loader, longest string) topology.Compiled {
	file := "version: 1\nname: shop\nexchanges: [{name: events}]\nqueues: [{name: q, backoff: none}]\n"
	if longest != "" {
		return loaded(t, file+"delays: [{name: shop.later, to: events, max: "+longest+"}]\n")
	}
	file += "removed: [shop.later]\n"
	return loaded(t, file)
}

// planFor returns the plan for want where some queues hold a message.
func (f *fake) planFor(want topology.Compiled, holding ...string) plan.Plan {
	state := f.state()
	state.Version = "4.3.6"
	for _, q := range holding {
		state.Usage[q] = topology.Usage{Ready: 1}
	}
	return plan.Make(want, state, plan.Options{})
}

// A delay is not removed while a message is in one of its queues, and nothing of it is deleted. A
// level that the file has no longer stays until it is empty, and is unbound at once. Else all of it
// goes, with consent by the file.
func TestDelaysAreRemovedEmpty(t *testing.T) {
	t.Parallel()
	f := &fake{objects: map[string]topology.Object{}}
	run := func(p plan.Plan, want topology.Compiled) {
		t.Helper()
		if err := apply.ExecuteWithReroutes(t.Context(), f, want, p, 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
	}
	long, short, none := delayFile(t, "8s"), delayFile(t, "4s"), delayFile(t, "")
	run(f.planFor(long), long)
	if p := f.planFor(long); !p.Empty() {
		t.Fatalf("left to do: %s", text(t, p))
	}
	for _, q := range long.Queues {
		if q.Label.Delay == "" {
			continue
		}
		if p := f.planFor(plan.Nothing(long), q.Name); p.Count(plan.Blocked) != 1 {
			t.Errorf("destroy with a message in %s: %s", q.Name, text(t, p))
		}
		p := f.planFor(none, q.Name)
		if p.Count(plan.Blocked) != 1 || !strings.Contains(text(t, p), "the delay shop.later is to be removed, and 1 message waits for it") {
			t.Errorf("with a message in %s: %s", q.Name, text(t, p))
		}
		for _, c := range p.Changes {
			if c.Action != plan.Blocked {
				t.Errorf("with a message in %s the plan has %s %s", q.Name, c.Action, c.Name)
			}
		}
	}
	const level = "shop.delay.level.8s.shop.later"
	run(f.planFor(short, level), short)
	if f.objects["queue "+level] == nil {
		t.Fatal("a level that holds a message was deleted")
	}
	if got := f.goesBy("shop.delay.levels.shop.later", int64(3)); len(got) > 0 {
		t.Errorf("messages still come to %q", got)
	}
	run(f.planFor(short), short)
	if f.objects["queue "+level] != nil {
		t.Error("a level that is empty stays")
	}
	if p := f.planFor(none); p.Count(plan.Blocked) > 0 || plan.Check(p, nil) != nil {
		t.Errorf("the removal is refused: %s", text(t, p))
	}
	run(f.planFor(none), none)
	for name := range f.objects {
		if strings.Contains(name, "delay") || strings.Contains(name, "later") {
			t.Errorf("%s is left", name)
		}
	}
	if p := f.planFor(none); !p.Empty() {
		t.Errorf("left to do: %s", text(t, p))
	}
}

// A delay with engine: native is refused where RabbitMQ would give messages back at once.
func TestWhereNoTimerCanBe(t *testing.T) {
	t.Parallel()
	want := delayFile(t, "8s, engine: native")
	for version, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"3.10.8": {nil, "the delay shop.later has engine: native, which is for RabbitMQ 4.3.1 and later, " +
			"and this broker is 3.10.8; write engine: levels"},
		"4.3.0": {nil, "and this broker is 4.3.0; write engine: levels"},
		"4.3.6": {nil, ""},
		"4.3.7": {[]string{"rabbitmq_4.3.0"}, "the feature flag rabbitmq_4.3.0 is not enabled"},
	} {
		f := &fake{objects: map[string]topology.Object{}}
		state := f.state()
		state.Version, state.DisabledFlags = version, tc.flags
		p := plan.Make(want, state, plan.Options{})
		if blocked := p.Count(plan.Blocked); blocked > 0 != (tc.want != "") || !strings.Contains(text(t, p), tc.want) {
			t.Errorf("%s: %d changes are blocked: %s", version, blocked, text(t, p))
		}
	}
}

// When the engine of a delay changes, each queue that holds messages stays, and no message comes to
// it any more.
func TestTheEngineOfADelayChanges(t *testing.T) {
	t.Parallel()
	levels, native := delayFile(t, "8s"), delayFile(t, "8s, engine: native")
	for name, tc := range map[string]struct {
		from, to topology.Compiled
		holds    string
		value    any
		want     string
	}{
		"to native": {
			levels, native, "shop.delay.level.8s.shop.later", int64(3),
			"no longer has the level shop.delay.level.8s.shop.later",
		},
		"back": {
			native, levels, "shop.delay.timer.shop.later", "timer",
			"the delay shop.later no longer has the timer shop.delay.timer.shop.later, which stays until it is empty; it holds 1 message",
		},
	} {
		f := &fake{objects: map[string]topology.Object{}}
		for _, step := range []struct {
			want    topology.Compiled
			holding []string
		}{{tc.from, nil}, {tc.to, []string{tc.holds}}} {
			p := f.planFor(step.want, step.holding...)
			if len(step.holding) > 0 && !strings.Contains(fmt.Sprint(p.Warnings), tc.want) {
				t.Errorf("%s: the warnings are %v", name, p.Warnings)
			}
			if err := apply.ExecuteWithReroutes(t.Context(), f, step.want, p, 0, func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.goesBy("shop.delay.levels.shop.later", tc.value); f.objects["queue "+tc.holds] == nil || len(got) > 0 {
			t.Errorf("%s: %s is %v, and messages come to %v", name, tc.holds, f.objects["queue "+tc.holds], got)
		}
		if p := f.planFor(tc.to); p.Count(plan.Delete) == 0 {
			t.Errorf("%s: once it is empty the plan is %s", name, text(t, p))
		}
	}
}

// goesBy returns the queues to which the headers exchange of a delay leads a message with a level.
func (f *fake) goesBy(exchange string, level any) []string {
	var out []string
	for _, o := range f.objects {
		b, is := o.(topology.Binding)
		if is && b.Source == exchange && b.Arguments[topology.HeaderDelayLevel] == level {
			out = append(out, b.Destination)
		}
	}
	return out
}

// What a policy of another team does to the queues of a delay is said of each: what expires in the
// intake queue comes to the due queue, and needs no consent; what expires there is gone.
func TestPoliciesOnDelays(t *testing.T) {
	t.Parallel()
	want := delayFile(t, "2s")
	for name, tc := range map[string]struct {
		definition topology.Arguments
		says       []string
		ofPolicy   string // what only a policy is said to do: it loses nothing, and needs no consent
		warns      string // what a warning says, and no change
	}{
		"a TTL": {
			topology.Arguments{"message-ttl": int64(500)},
			[]string{"delete the messages in shop.delay.due.shop.later after 500ms"},
			"end the wait in shop.delay.level.1s.shop.later, shop.delay.level.2s.shop.later after 500ms, so that messages wait there again",
			"sets message-ttl to 500 (500ms) on shop.delay.in.shop.later, where the file sets none",
		},
		"a TTL with a dead-letter exchange": {
			topology.Arguments{"message-ttl": int64(500), "dead-letter-exchange": "x"},
			[]string{"move the messages in shop.delay.due.shop.later to the exchange x after 500ms"},
			"",
			"sets message-ttl to 500 (500ms) on shop.delay.in.shop.later, where the file sets none",
		},
		"a delivery limit": {
			topology.Arguments{"delivery-limit": int64(5)},
			[]string{"drop messages from shop.delay.due.shop.later that were returned more than 5 times"},
			"",
			"lowers delivery-limit to 5 on shop.delay.in.shop.later, shop.delay.level.1s.shop.later, shop.delay.level.2s.shop.later",
		},
		"a limit": {
			topology.Arguments{"max-length": int64(5)},
			[]string{
				"refuse messages for shop.delay.in.shop.later above 5 messages",
				"drop the oldest message of shop.delay.due.shop.later above 5 messages",
			},
			"refuse messages in shop.delay.level.1s.shop.later, shop.delay.level.2s.shop.later above 5 messages, so that they wait in shorter levels",
			"",
		},
		"an overflow": {
			topology.Arguments{"overflow": "drop-head"},
			[]string{
				"turn off the at-least-once dead-lettering of shop.delay.in.shop.later (overflow \"drop-head\"), so that a message that the due queue cannot accept is lost",
				"turn off the at-least-once dead-lettering of shop.delay.level.1s.shop.later, shop.delay.level.2s.shop.later (overflow",
			},
			"",
			"",
		},
		"a limit that drops": {
			topology.Arguments{"overflow": "drop-head", "max-length": int64(5)},
			[]string{"move the oldest message of shop.delay.in.shop.later to the exchange shop.delay.due.shop.later above 5 messages"},
			"move the oldest message of shop.delay.level.1s.shop.later, shop.delay.level.2s.shop.later to the exchange shop.delay.due.shop.later above 5",
			"",
		},
		"a key for dead letters": {
			topology.Arguments{"dead-letter-routing-key": "k"},
			[]string{
				`give every message that expires in shop.delay.in.shop.later the routing key "k", also when it is due`,
				`give every message that leaves shop.delay.level.1s.shop.later, shop.delay.level.2s.shop.later the routing key "k", also when it is due`,
			},
			"",
			"",
		},
	} {
		p := []topology.Policy{{Name: "p", Pattern: "delay", ApplyTo: "queues", Definition: tc.definition}}
		for kind, state := range map[string]topology.State{
			"operator policy": {Version: "4.3.6", OperatorPolicies: p},
			"policy":          {Version: "4.3.6", Have: topology.Topology{Policies: p}},
		} {
			out, says := "", tc.says
			p, warned := plan.Make(want, state, plan.Options{}), ""
			for _, c := range p.Changes {
				out += c.Reason
			}
			for _, w := range p.Warnings {
				warned += w.Text + "\n"
			}
			if !strings.Contains(warned, tc.warns) {
				t.Errorf("%s by %s: no %q in\n%s", name, kind, tc.warns, warned)
			}
			if tc.warns != "" && strings.Contains(out, "shop.delay.in.") {
				t.Errorf("%s by %s: more than a warning: %s", name, kind, out)
			}
			if kind == "policy" {
				says = append(says, tc.ofPolicy)
			}
			for _, part := range says {
				if !strings.Contains(out, part) {
					t.Errorf("%s by %s: no %q in\n%s", name, kind, part, out)
				}
			}
		}
	}
}
