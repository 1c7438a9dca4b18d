package plan_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// file returns a topology file with some queues, the sources of which are drawn.
func file(t *rapid.T) topology.Compiled {
	var b strings.Builder
	b.WriteString("version: 1\nname: shop\n")
	fmt.Fprintf(&b, "defaults: {type: %s, backoff: a}\n", rapid.SampledFrom([]string{"quorum", "classic"}).Draw(t, "type"))
	b.WriteString("backoff:\n")
	for _, name := range []string{"a", "b"} {
		fmt.Fprintf(&b, "  %s: {tiers: %s%s}\n", name,
			rapid.SampledFrom([]string{"[1s]", "[1s, 1m]", "[0s, 1m, 1m]", "[1m, {delay: 1s, attempts: 3}]"}).Draw(t, name),
			rapid.SampledFrom([]string{"", ", outage: {}"}).Draw(t, "outage"))
	}
	b.WriteString("exchanges:\n  - {name: e}\n  - {name: f, type: fanout, bindings: [{exchange: e, key: x}]}\nqueues:\n")
	for i := range rapid.IntRange(1, 5).Draw(t, "queues") {
		fmt.Fprintf(&b, "  - {name: q%d, backoff: %s, dead: %s, bindings: [{exchange: e, key: k%d}%s]}\n", i,
			rapid.SampledFrom([]string{"a", "b", "none"}).Draw(t, "backoff"),
			rapid.SampledFrom([]string{"own", "shared"}).Draw(t, "dead"),
			rapid.IntRange(0, 3).Draw(t, "key"), rapid.SampledFrom([]string{"", ", {exchange: f}"}).Draw(t, "more"))
	}
	return loaded(t, b.String())
}

// fake is a virtual host in memory. It refuses what a broker would refuse.
type fake struct {
	mu      sync.Mutex
	objects map[string]topology.Object
}

func key(o topology.Object) string { return string(o.Kind()) + " " + o.ID().Name }

func (f *fake) Apply(_ context.Context, c plan.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c.Action {
	case plan.Create:
		return f.create(c.After)
	case plan.Delete:
		f.remove(c.Before)
	case plan.Replace:
		f.remove(c.Before)
		return f.create(c.After)
	case plan.Update:
		return f.create(c.After)
	case plan.Migrate, plan.Blocked:
		return errors.New("not expected")
	}
	return nil
}

func (f *fake) create(object topology.Object) error {
	if b, ok := object.(topology.Binding); ok {
		if f.objects["exchange "+b.Source] == nil || f.objects[b.DestinationType+" "+b.Destination] == nil {
			return fmt.Errorf("404: %s has no end", b)
		}
	}
	f.objects[key(object)] = object
	return nil
}

// remove takes an object away, and with it the bindings that end at it.
func (f *fake) remove(object topology.Object) {
	delete(f.objects, key(object))
	maps.DeleteFunc(f.objects, func(_ string, o topology.Object) bool {
		b, ok := o.(topology.Binding)
		return ok && (key(object) == "exchange "+b.Source || key(object) == b.DestinationType+" "+b.Destination)
	})
}

// Inspect returns what the broker holds.
func (f *fake) Inspect(context.Context) (topology.State, error) { return f.state(), nil }

func (f *fake) state() topology.State {
	s := topology.State{Version: "4.0.5", VHost: "/", Usage: map[string]topology.Usage{}}
	for _, k := range slices.Sorted(maps.Keys(f.objects)) {
		switch o := f.objects[k].(type) {
		case topology.Exchange:
			o.Label, o.External = topology.Label{}, false
			s.Have.Exchanges = append(s.Have.Exchanges, o)
		case topology.Queue:
			o.Label = topology.Label{}
			s.Have.Queues = append(s.Have.Queues, o)
		case topology.Binding:
			o.Label = topology.Label{}
			s.Have.Bindings = append(s.Have.Bindings, o)
		case topology.Policy:
			o.Label = topology.Label{}
			s.Have.Policies = append(s.Have.Policies, o)
		}
	}
	return s
}

// The law: after a plan was carried out nothing is left to do, whatever was there
// before; and what is foreign stays as it was.
func TestApplyConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		foreign := []topology.Object{
			topology.Exchange{Name: "foreign", Type: "topic", Durable: true},
			topology.Queue{Name: "foreign", Durable: true, Arguments: topology.Arguments{"x-queue-type": "classic"}},
			topology.Binding{Source: "foreign", Destination: "foreign", DestinationType: topology.ToQueue, Key: "#"},
			topology.Exchange{
				Name: "other.dead", Type: "direct", Durable: true,
				Arguments: topology.Arguments{"x-managed-by": "dlxctl/other"},
			},
		}
		f := &fake{objects: map[string]topology.Object{}}
		for _, o := range foreign {
			if err := f.create(o); err != nil {
				t.Fatal(err)
			}
		}
		a, b := file(t), file(t)
		for _, want := range []topology.Compiled{a, b, a} {
			for range 3 { // a retired tier goes in a second apply
				p := plan.Make(want, f.state(), plan.Options{})
				if typeChanged(p) {
					return // refused, with the remedy; TestDiff has it
				}
				if err := apply.ExecuteWithReroutes(t.Context(), f, want, p, 0, func(plan.Change) {}); err != nil {
					t.Fatal(err)
				}
				for _, q := range f.state().Have.Queues {
					if target, ok := q.Arguments["x-dead-letter-exchange"].(string); ok && f.objects["exchange "+target] == nil {
						t.Fatalf("%s dead-letters to %s, which is gone", q.Name, target)
					}
				}
			}
			if p := plan.Make(want, f.state(), plan.Options{}); !p.Empty() || len(p.Retiring) > 0 {
				t.Fatalf("left to do: %s", text(t, p))
			}
			for _, o := range foreign {
				if d := cmp.Diff(o, f.objects[key(o)]); d != "" {
					t.Fatalf("a foreign object changed (-before +after):\n%s", d)
				}
			}
		}
	})
}

// typeChanged reports whether a plan is blocked by a change of the type of
// generated queues.
func typeChanged(p plan.Plan) bool { return p.Count(plan.Blocked) > 0 }

func text(t interface{ Fatal(args ...any) }, p plan.Plan) string {
	var b strings.Builder
	if err := planview.WriteText(&b, p, planview.TextOptions{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Creations come in the safe order: both ends before a binding, the safety net
// before all else, business bindings last; deletions after every creation.
func TestPhases(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := plan.Make(file(t), topology.State{Version: "4.0.5"}, plan.Options{})
		phase := map[string]plan.Phase{}
		for _, c := range p.Changes {
			if c.Kind != topology.KindBinding {
				phase[string(c.Kind)+" "+c.Name] = c.Phase
			}
		}
		last := plan.Phase(0)
		for _, c := range p.Changes {
			if c.Phase < last {
				t.Fatalf("%s comes after a higher phase", c.Name)
			}
			last = c.Phase
			b, ok := c.After.(topology.Binding)
			if !ok {
				continue
			}
			for _, end := range []string{"exchange " + b.Source, b.DestinationType + " " + b.Destination} {
				if r, made := phase[end]; made && r >= c.Phase {
					t.Fatalf("binding %s has phase %d, its end %s has %d", c.Name, c.Phase, end, r)
				}
			}
			if c.Label.Role == topology.RoleBusiness && c.Phase < plan.PhaseAttach || c.Label.Role == topology.RoleUnroutable &&
				c.Phase > plan.PhaseBindSafetyNet {
				t.Fatalf("binding %s for %s has phase %d", c.Name, c.Label.Role, c.Phase)
			}
		}
	})
}
