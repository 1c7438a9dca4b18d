package survey_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// drawState draws a virtual host with all kinds of dead-lettering, loops and mistakes.
func drawState(t *rapid.T) topology.State {
	return drawNamed(t, []string{"q0", "q1", "q2", "q3", "q4", "q5"}, []string{"x0", "x1", "x2", "amq.topic"})
}

// drawNamed draws one with names for six queues and three exchanges, and one that always exists.
func drawNamed(t *rapid.T, names, exchanges []string) topology.State {
	keys := rapid.SampledFrom([]string{"", "a", "b", "a.b", "#", "a.*", "*.b", "a.#", names[0], names[3], "missing"})
	target := rapid.SampledFrom(append([]string{"", "missing"}, exchanges...))
	var have topology.Topology
	for i, name := range exchanges[:3] {
		e := topology.Exchange{Name: name, Durable: i > 0, Type: rapid.SampledFrom(
			append(topology.ExchangeTypes(), "x-delayed-message")).Draw(t, "type")}
		if rapid.IntRange(0, 3).Draw(t, "alternate") == 0 {
			e.Arguments = topology.Arguments{topology.ArgAlternateExchange: target.Draw(t, "alternate")}
		}
		have.Exchanges = append(have.Exchanges, e)
	}
	for _, name := range names {
		have.Queues = append(have.Queues, topology.Queue{
			Name: name, Durable: rapid.Bool().Draw(t, "durable"), AutoDelete: rapid.IntRange(0, 5).Draw(t, "auto") == 0,
			Arguments: drawArguments(t, target, keys),
		})
	}
	for range rapid.IntRange(0, 12).Draw(t, "bindings") {
		b := topology.Binding{
			Source:          rapid.SampledFrom(append([]string{"missing"}, exchanges...)).Draw(t, "source"),
			Destination:     rapid.SampledFrom(append([]string{"missing"}, names...)).Draw(t, "queue"),
			DestinationType: topology.ToQueue,
			Key:             keys.Draw(t, "key"),
		}
		if rapid.IntRange(0, 4).Draw(t, "to exchange") == 0 {
			b.Destination, b.DestinationType = rapid.SampledFrom(exchanges).Draw(t, "exchange"), topology.ToExchange
		}
		if rapid.Bool().Draw(t, "headers") {
			b.Arguments = topology.Arguments{"x-match": "any", "h": int64(1)}
		}
		have.Bindings = append(have.Bindings, b)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "policies") {
		definition := topology.Arguments{}
		for name, v := range drawArguments(t, target, keys) { // drawn before, in a fixed order
			if name != topology.ArgQueueType {
				definition[topology.PolicyKey(name)] = v
			}
		}
		have.Policies = append(have.Policies, topology.Policy{
			Name: fmt.Sprint("p", i), Pattern: rapid.SampledFrom([]string{".*", "^q[0-2]$", "q3", "(", "^x"}).Draw(t, "pattern"),
			ApplyTo:  rapid.SampledFrom([]string{"queues", "all", "exchanges", "quorum_queues"}).Draw(t, "apply-to"),
			Priority: rapid.Int64Range(0, 2).Draw(t, "priority"), Definition: definition,
		})
	}
	have.Sort()
	return topology.State{
		VHost: "/", Have: have,
		Version: rapid.SampledFrom([]string{"", "3.10.8", "3.13.1", "4.0.5", "4.3.6"}).Draw(t, "version"),
	}
}

func drawArguments(t *rapid.T, target, keys *rapid.Generator[string]) topology.Arguments {
	args := topology.Arguments{}
	kinds := []string{topology.Classic, topology.Quorum, topology.Stream}
	args[topology.ArgQueueType] = rapid.SampledFrom(kinds).Draw(t, "type")
	if rapid.IntRange(0, 3).Draw(t, "dead-letters") > 0 {
		args[topology.ArgDeadLetterExchange] = target.Draw(t, "dead-letter exchange")
		if rapid.Bool().Draw(t, "has key") {
			args[topology.ArgDeadLetterRoutingKey] = keys.Draw(t, "dead-letter key")
		}
	}
	choices := map[string][]any{
		topology.ArgMessageTTL: {int64(0), int64(1000)}, topology.ArgMaxLength: {int64(5)}, "x-expires": {int64(1000)},
		topology.ArgOverflow:           {"drop-head", "reject-publish", "reject-publish-dlx"},
		topology.ArgDeliveryLimit:      {int64(-1), int64(3), topology.Unlimited, "3"},
		topology.ArgDeadLetterStrategy: {topology.AtLeastOnce}, "max-length": {int64(1)},
	}
	for _, name := range slices.Sorted(maps.Keys(choices)) {
		if rapid.IntRange(0, 4).Draw(t, name) == 0 {
			args[name] = rapid.SampledFrom(choices[name]).Draw(t, name+" value")
		}
	}
	return args
}

func allRules() []string {
	var out []string
	for _, r := range audit.Rules() {
		out = append(out, r.ID)
	}
	return out
}

// An audit never fails, gives the same for the same input, and sorts it.
func TestAuditOfGeneratedTopologies(t *testing.T) {
	t.Parallel()
	rules := allRules()
	rapid.Check(t, func(t *rapid.T) {
		in := audit.Input{State: drawState(t), Rules: rules, Live: &topology.Live{Now: time.Unix(0, 0)}}
		before := fmt.Sprint(in.State)
		report := audit.Run(in)
		if d := cmp.Diff(report, audit.Run(in)); d != "" {
			t.Fatalf("a second audit differs:\n%s", d)
		}
		if fmt.Sprint(in.State) != before {
			t.Fatal("the audit has changed its input")
		}
		rank := func(f audit.Finding) int {
			return slices.Index([]audit.Severity{audit.Error, audit.Warning, audit.Note}, f.Severity)
		}
		if !slices.IsSortedFunc(report.Findings, func(a, b audit.Finding) int { return rank(a) - rank(b) }) {
			t.Fatal("the findings are not sorted")
		}
		for _, f := range report.Findings {
			if rank(f) < 0 || f.Evidence == "" || f.Consequence == "" || f.Remedy == "" || f.Object.Kind == "" {
				t.Fatalf("incomplete: %+v", f)
			}
		}
	})
}

// Where a rule says that every dead letter is lost, the router finds no queue for any key.
func TestWhatIsCalledLostIsLost(t *testing.T) {
	t.Parallel()
	loses := []string{"dead-letter-unrouted", "dead-letter-exchange-missing", "dead-letter-queue-missing"}
	rapid.Check(t, func(t *rapid.T) {
		state := drawState(t)
		report := audit.Run(audit.Input{State: state, Rules: loses})
		router := route.New(state)
		for _, f := range report.Findings {
			for _, key := range arrivals(state, f.Object.Name) {
				result := router.DeadLetter(f.Object.Name, route.Message{Keys: []string{key}}, route.Rejected)
				if len(result.Queues) > 0 {
					t.Fatalf("%s says %s: %s; but a message with key %q reaches %v", f.Rule, f.Object.Name, f.Evidence, key,
						result.Queues)
				}
			}
		}
	})
}

// arrivals returns keys with which publishers reach a queue, through exchanges that get messages
// from publishers alone: to others, exchanges are bound, or queues dead-letter.
func arrivals(state topology.State, queue string) []string {
	router := route.New(state)
	fed := map[string]bool{}
	for _, q := range state.Have.Queues {
		to, _ := router.DeadLettering(q.Name)
		fed[to.Exchange] = true
	}
	for _, b := range state.Have.Bindings {
		if b.DestinationType == topology.ToExchange {
			fed[b.Destination] = true
		}
	}
	var out []string
	for _, b := range state.Have.Bindings {
		for _, key := range []string{"", "a", "b", "a.b", "q0", "q3", "missing", "a.x", "x.b", "z"} {
			result := router.Publish(b.Source, key, nil)
			if !fed[b.Source] && len(result.Path(queue)) == 1 {
				out = append(out, key)
			}
		}
	}
	return out
}

// A message that the audit calls kept reaches a queue, whatever the way it dies first.
func TestWhatIsCalledKeptReachesAQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := drawState(t)
		router := route.New(state)
		for name, fate := range audit.Run(audit.Input{State: state}).Fates {
			if fate != audit.Kept {
				continue
			}
			to, ok := router.DeadLettering(name)
			if !ok {
				t.Fatalf("%s does not dead-letter, and is called kept", name)
			}
			keys := arrivals(state, name)
			if to.HasKey {
				keys = []string{""}
			}
			for _, key := range keys {
				result := router.DeadLetter(name, route.Message{Keys: []string{key}}, route.Rejected)
				if len(result.Queues)+len(result.Stuck)+len(result.Unknown) == 0 {
					t.Fatalf("%s is called kept, and a rejected message with key %q is lost: %v\n%+v", name, key, result.Lost, state)
				}
			}
		}
	})
}

// Each fix of an audit removes its finding, adds no error and no warning, and lets no queue lose
// messages that it kept: alone, and with all others.
func TestFixesOfGeneratedTopologies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := audit.Input{State: drawState(t)}
		if rapid.Bool().Draw(t, "live") {
			in.Live, in.State.QueuePolicies = &topology.Live{}, map[string]string{}
		}
		before := audit.Run(in)
		var fixed []audit.Finding
		var all []audit.Change
		for _, f := range before.Findings {
			if len(f.Fix.Changes) > 0 {
				fixed, all = append(fixed, f), append(all, f.Fix.Changes...)
			} else if strings.Contains(f.Remedy, "curl") {
				t.Fatalf("%s of %s has commands that were not tried: %s", f.Rule, f.DisplayName(), f.Remedy)
			}
		}
		if len(fixed) == 0 {
			return
		}
		checkFix(t, in, before, fixed, all)
		one := rapid.SampledFrom(fixed).Draw(t, "finding")
		checkFix(t, in, before, []audit.Finding{one}, one.Fix.Changes)
	})
}

// checkFix requires of changes what a fix promises.
func checkFix(t *rapid.T, in audit.Input, before audit.Report, fixed []audit.Finding, changes []audit.Change) {
	in.State = audit.Apply(in.State, changes)
	after := audit.Run(in)
	for _, f := range after.Findings {
		same := func(o audit.Finding) bool { return o.Rule == f.Rule && o.Object == f.Object }
		if slices.ContainsFunc(fixed, same) {
			t.Fatalf("%s of %s is still there after its fix", f.Rule, f.DisplayName())
		}
		if f.Severity != audit.Note && !slices.ContainsFunc(before.Findings, same) {
			t.Fatalf("a fix adds %s of %s: %s\n%+v", f.Rule, f.DisplayName(), f.Evidence, changes)
		}
	}
	for name, fate := range after.Fates {
		if before.Fates[name] == audit.Kept && fate != audit.Kept {
			t.Fatalf("failed messages of %s were kept, and are %s after a fix", name, fate)
		}
	}
}

// Import, audit, drawing, trace and router agree on where failed messages end.
func TestAllAgreeOnGeneratedTopologies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { agree(t, byKeys(drawState(t))) })
}

// They agree whatever the names are, where queues have owners, and where objects go with their
// connections.
func TestAllAgreeOnOddNames(t *testing.T) {
	t.Parallel()
	odd := []string{
		"orders", "orders.dead", "orders.retry", "main.orders", "main.dead", "main.standard.failed", "shop.dlx", "#", "*",
		"- a", "a: b", "[x]", "{x}", "'q'", `"q"`, "yes", "null", "~", "010", "1e3", "2020-01-01", "${HOME}", "a${b", "<<",
		"&a", "!t", "|", "%", "@", "`", " lead", "trail ", "a\tb", "a #b", "日本", "a\u2028b", "\x00", `back\slash`, "---", "=",
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.Permutation(odd).Draw(t, "names")
		state := drawNamed(t, names[:6], append(names[6:9:9], "amq.topic"))
		for i, q := range state.Have.Queues {
			state.Have.Queues[i].Exclusive = rapid.IntRange(0, 9).Draw(t, "exclusive") == 0
			if rapid.IntRange(0, 7).Draw(t, "owned") == 0 {
				q.Arguments[topology.ArgManagedBy] = rapid.SampledFrom([]any{
					"dlxctl/main", "dlxctl/shop/desk", "chef", int64(1),
				}).Draw(t, "owner")
			}
		}
		for i := range state.Have.Exchanges {
			state.Have.Exchanges[i].Internal = rapid.Bool().Draw(t, "internal")
		}
		agree(t, byKeys(state))
	})
}

// byKeys makes keys alone decide where messages go, and which of them come through a dead-letter
// exchange: only queues are bound to it, and no exchanges in a circle.
func byKeys(state topology.State) topology.State {
	router := route.New(state)
	takesDead := func(exchange string) bool {
		return slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool {
			to, ok := router.DeadLettering(q.Name)
			return ok && to.Exchange == exchange
		})
	}
	state.Have.Bindings = slices.DeleteFunc(state.Have.Bindings, func(b topology.Binding) bool {
		return b.DestinationType == topology.ToExchange &&
			(takesDead(b.Source) || takesDead(b.Destination) || b.Source >= b.Destination)
	})
	direct := map[string]bool{}
	for i, e := range state.Have.Exchanges {
		if !slices.Contains([]string{topology.Direct, topology.Fanout, topology.Topic}, e.Type) {
			state.Have.Exchanges[i].Type = topology.Topic
		}
		if to, _ := router.Alternate(e.Name); takesDead(e.Name) || takesDead(to) {
			state.Have.Exchanges[i].Arguments = nil
		}
		direct[e.Name] = e.Type == topology.Direct
	}
	for i, b := range state.Have.Bindings {
		if direct[b.Source] && strings.ContainsAny(b.Key, "*#") {
			state.Have.Bindings[i].Key = "a"
		}
	}
	return state
}
