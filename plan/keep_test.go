package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// loaded compiles a file.
func loaded(t interface{ Fatal(args ...any) }, text string) topology.Compiled {
	top, _, err := spec.Load([]spec.Source{{Name: "f", Data: []byte(text)}},
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// takers returns the queues that a message comes to which is published to an exchange
// with these routing keys and this count, as a broker routes.
func (f *fake) takers(exchange string, keys []string, count int64) []string {
	e, ok := f.objects["exchange "+exchange].(topology.Exchange)
	if !ok {
		return nil
	}
	found := map[string]bool{}
	for _, o := range f.objects {
		b, ok := o.(topology.Binding)
		matches := e.Type == topology.Fanout || e.Type != topology.Headers && slices.Contains(keys, b.Key) ||
			e.Type == topology.Headers && b.Arguments["count"] == count
		if !ok || b.Source != exchange || !matches {
			continue
		}
		if b.DestinationType == topology.ToQueue {
			found[b.Destination] = true
			continue
		}
		for _, q := range f.takers(b.Destination, keys, count) {
			found[q] = true
		}
	}
	if alternate, ok := e.Arguments["alternate-exchange"].(string); ok && len(found) == 0 {
		return f.takers(alternate, keys, count)
	}
	return slices.Sorted(maps.Keys(found))
}

// dying returns the exchange and key of what dies in a queue: by arguments, or by our policy.
func (f *fake) dying(queue string) (exchange, key string) {
	q, _ := f.objects["queue "+queue].(topology.Queue)
	args := q.Arguments
	if p, ok := f.objects["policy "+topology.PolicyName("shop", queue)].(topology.Policy); ok &&
		args["x-dead-letter-exchange"] == nil {
		args = topology.Arguments{
			"x-dead-letter-exchange":    p.Definition["dead-letter-exchange"],
			"x-dead-letter-routing-key": p.Definition["dead-letter-routing-key"],
		}
	}
	exchange, _ = args["x-dead-letter-exchange"].(string)
	key, _ = args["x-dead-letter-routing-key"].(string)
	return exchange, key
}

// journey follows what a work queue rejects: to one failed queue, by each count to one
// tier and back, and in the end to one queue of dead letters. It says where it ends
// too early, or doubles.
func (f *fake) journey(queue string) error {
	exchange, key := f.dying(queue)
	failed := f.takers(exchange, []string{key}, 0)
	if len(failed) != 1 {
		return fmt.Errorf("%s dead-letters to %v by %s", queue, failed, exchange)
	}
	backoff, isFailed := strings.CutSuffix(strings.TrimPrefix(failed[0], "shop."), ".failed")
	if !isFailed {
		return nil // dead at once
	}
	address := []string{"k", topology.AddressKey(queue)}
	if dead := f.takers("shop.dead", address, -1); len(dead) != 1 || dead[0] == "shop.unroutable" {
		return fmt.Errorf("the dead letters of %s go to %v", queue, dead)
	}
	tiers := 0
	for count := int64(1); count < 5; count++ {
		tier := f.takers(topology.RetryExchangeName("shop", backoff), address, count)
		if len(tier) != 1 {
			return fmt.Errorf("attempt %d of %s goes to %v", count, queue, tier)
		}
		if !topology.IsRetryQueueName("shop", tier[0]) {
			continue // after the last tier it is dead
		}
		tiers++
		back, _ := f.dying(tier[0])
		if home := f.takers(back, address, 0); !slices.Equal(home, []string{queue}) {
			return fmt.Errorf("attempt %d of %s returns to %v", count, queue, home)
		}
	}
	if tiers == 0 {
		return fmt.Errorf("%s has no tier in %s", queue, backoff)
	}
	return nil
}

// drawn returns a file with some queues, whose backoffs, tiers and dead-letter queues
// differ from those of another.
func drawn(t *rapid.T) topology.Compiled {
	var b strings.Builder
	one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	fmt.Fprintf(&b, "version: 1\nname: shop\ndefaults: {type: %s}\nbackoff:\n", one("type", "quorum", "quorum", "classic"))
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "  %s: {tiers: %s}\n", name,
			one("tiers", "[1s]", "[1s, 1m]", "[1m, 1s]", "[{delay: 2s, attempts: 2}]"))
	}
	b.WriteString("exchanges: [{name: e}]\nqueues:\n")
	for i := range 4 {
		if i > 0 && one("there", "yes", "yes", "no") == "no" {
			continue
		}
		fmt.Fprintf(&b, "  - {name: q%d, backoff: %s, dead: %s, deadLetterBy: %s, arguments: %s, bindings: [{exchange: e, key: k}]}\n", i,
			one("backoff", "a", "b", "c", "none"), one("dead", "own", "shared", "{queue: graves}"),
			one("by", "arguments", "policy"), one("arguments", "{}", "{}", "{x-single-active-consumer: true}"))
	}
	return loaded(t, b.String())
}

// trouble draws what queues hold, so that changes of them are blocked or hazardous.
func trouble(t *rapid.T, s topology.State) map[string]topology.Usage {
	usage := map[string]topology.Usage{}
	for _, q := range s.Have.Queues {
		usage[q.Name] = rapid.SampledFrom([]topology.Usage{{}, {}, {}, {Ready: 1}, {Consumers: 1}}).Draw(t,
			"usage of "+q.Name)
	}
	return usage
}

// consented draws consents, wide ones and those of one queue.
func consented(t *rapid.T) []plan.Consent {
	var out []plan.Consent
	for _, h := range topology.Hazards() {
		switch rapid.SampledFrom([]string{"no", "yes", "one"}).Draw(t, string(h)) {
		case "yes":
			out = append(out, plan.Consent{Hazard: h})
		case "one":
			out = append(out, plan.Consent{Hazard: h, Object: fmt.Sprintf("q%d", rapid.IntRange(0, 3).Draw(t, "of"))})
		}
	}
	return out
}

// The law of --skip-blocked: whatever is held back, what a queue rejects that still
// exists goes its whole way, in one copy. What a foreign queue rejects has a place to
// go, unless the user consented to losing messages.
func TestSkippingLosesNothing(t *testing.T) {
	t.Parallel()
	skipped := 0
	rapid.Check(t, func(t *rapid.T) {
		f := &fake{objects: map[string]topology.Object{}}
		a, b := drawn(t), drawn(t)
		if err := apply.ExecuteWithReroutes(t.Context(), f, a, plan.Make(a, f.state(), plan.Options{}), 0,
			func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
		foreign := topology.Queue{Name: "foreign", Durable: true, Arguments: topology.Arguments{"x-queue-type": "classic"}}
		foreign.Arguments["x-dead-letter-exchange"] = rapid.SampledFrom(a.Exchanges).Draw(t, "foreign").Name
		if err := f.create(foreign); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second finds what the first has left
			s := f.state()
			usage := trouble(t, s)
			s.Usage = usage
			allow := consented(t)
			p := plan.Make(b, s, plan.Options{})
			todo := plan.Allowed(p, allow)
			skipped += len(p.Changes) - len(todo.Changes)
			before := slices.Clone(s.Have.Queues)
			target, _ := f.dying("foreign")
			had := f.anywhere(target)
			if err := apply.ExecuteWithReroutes(t.Context(), f, b, todo, 0, func(plan.Change) {}); err != nil {
				t.Fatal(err)
			}
			s = f.state()
			s.Usage = usage
			// What was held may be free now: a message that dies in foreign came to it by the previous
			// route of a queue, which has another one now.
			left := plan.Later(todo, plan.Allowed(plan.Make(b, s, plan.Options{}), allow))
			left.Changes = slices.DeleteFunc(left.Changes, func(c plan.Change) bool {
				name := bare(plan.Plan{Changes: []plan.Change{c}})[0]
				return slices.Contains(bare(p), name) && !slices.Contains(bare(todo), name)
			})
			if !left.Empty() {
				t.Fatalf("left to do: %v\nof the plan\n%s\nthis was done: %v", bare(left), text(t, p), bare(todo))
			}
			for _, q := range before {
				if _, lives := f.objects["queue "+q.Name]; !lives || !strings.HasPrefix(q.Name, "q") ||
					strings.HasSuffix(q.Name, ".dead") {
					continue
				}
				if err := f.journey(q.Name); err != nil {
					t.Fatalf("%v\nof the plan\n%s\nthis was done: %v", err, text(t, p), bare(todo))
				}
			}
			loses := slices.ContainsFunc(allow, func(c plan.Consent) bool { return c.Hazard == topology.LosesMessages })
			if had && !f.anywhere(target) && !loses {
				t.Fatalf("what foreign rejects is lost with %s\nof the plan\n%s\nthis was done: %v", target, text(t, p), bare(todo))
			}
		}
	})
	if skipped == 0 {
		t.Error("nothing was ever skipped")
	}
}

// anywhere reports whether an exchange leads any message to a queue.
func (f *fake) anywhere(exchange string) bool {
	e, ok := f.objects["exchange "+exchange].(topology.Exchange)
	if !ok {
		return false
	}
	for _, o := range f.objects {
		b, isBinding := o.(topology.Binding)
		if isBinding && b.Source == exchange && (b.DestinationType == topology.ToQueue || f.anywhere(b.Destination)) {
			return true
		}
	}
	alternate, ok := e.Arguments["alternate-exchange"].(string)
	return ok && f.anywhere(alternate)
}
