package migrate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	emulator "github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The law of a cutover: however often migrate and abort are killed and run after each other, a
// message has one queue after each single change, and a run that is left alone comes to its end.
func TestAMessageHasOneQueueAtEachMoment(t *testing.T) {
	t.Parallel()
	m := Move{Topology: "shop", Legacy: "old", New: "new", Wanted: []topology.Binding{to("new", "a"), to("new", "b")}}
	rapid.Check(t, func(t *rapid.T) {
		v := prepared(m)
		for range rapid.IntRange(0, 6).Draw(t, "runs that are killed") {
			v.run(t, m, rapid.Bool().Draw(t, "abort"), rapid.IntRange(0, 14).Draw(t, "killed after"))
		}
		abort := rapid.Bool().Draw(t, "the last run is an abort")
		v.run(t, m, abort, 1000)
		if abort {
			v.expect(t, "old")
		} else {
			v.expect(t, "new")
		}
	})
}

// A queue that is replaced under its name is bound as before in the end: each binding has the owner
// mark that it had, or none. Meanwhile those of the switch exchange have the mark of the move: the
// plan of no other owner deletes them.
func TestAReplacedQueueIsBoundAsBefore(t *testing.T) {
	t.Parallel()
	m := replacementOf("shop", "old")
	v := prepared(m)
	v.Have.Queues = append(v.Have.Queues, topology.Queue{
		Name: m.New, Arguments: topology.Arguments{topology.ArgManagedBy: topology.DeskMark("shop")},
	})
	for key, owner := range map[string]string{"own": "shop", "of others": "bill"} {
		b := to("old", key)
		b.Arguments = topology.Arguments{topology.ArgManagedBy: topology.OwnerMark(owner)}
		v.Have.Bindings = append(v.Have.Bindings, b)
	}
	compares := to("old", "") // each of its arguments is a header to match
	compares.Arguments = topology.Arguments{topology.ArgMatch: "all-with-x", "x-kind": "pdf"}
	v.Have.Bindings = append(v.Have.Bindings, compares)

	before := topology.Identities(m.find(v.State).onLegacy)
	v.take(t, m.park)
	f := m.find(v.State)
	if len(f.onLegacy) > 0 || len(f.onSwitch) != len(before) {
		t.Errorf("the queue has the bindings %v, and the switch exchange %v", f.onLegacy, f.onSwitch)
	}
	for _, b := range f.onSwitch {
		owner, _ := topology.Owner(b.Arguments)
		if with := comparesX(b.Arguments); !with && owner != "shop" || with && len(b.Arguments) != 2 {
			t.Errorf("the switch exchange has the binding %s", b.Identity())
		}
	}
	v.take(t, m.unpark)
	v.take(t, m.nextBack)
	after := topology.Identities(m.find(v.State).onLegacy)
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		t.Errorf("the queue had the bindings %q, and has %q", before, after)
	}
}

// take takes the steps that next returns, until there is none.
func (v *virtualHost) take(t *testing.T, next func(topology.State) cutoverStep) {
	t.Helper()
	for range 30 {
		step := next(v.State)
		if step.Doing == "" {
			return
		}
		slices.SortStableFunc(step.Changes, func(a, b plan.Change) int { return int(a.Phase - b.Phase) })
		for _, c := range step.Changes {
			v.apply(c)
		}
	}
	t.Fatal("it does not end")
}

// to returns a binding of the exchange events.
func to(queue, key string) topology.Binding {
	return topology.Binding{Source: "events", Destination: queue, DestinationType: topology.ToQueue, Key: key}
}

// virtualHost is a virtual host of which only the objects exist.
type virtualHost struct{ topology.State }

// prepared returns what exists after the stage prepare.
func prepared(m Move) *virtualHost {
	v := &virtualHost{topology.State{Version: "4.0.5", ExchangePolicies: map[string]string{}}}
	v.Have.Exchanges = []topology.Exchange{
		{Name: "events", Type: topology.Topic, Durable: true}, {Name: "shop.return", Type: topology.Direct, Durable: true},
	}
	v.Have.Queues = []topology.Queue{{Name: "old", Durable: true}, {Name: "new", Durable: true}}
	back := topology.Binding{
		Source: "shop.return", Destination: "new", DestinationType: topology.ToQueue, Key: topology.AddressKey("new"),
		Arguments: m.ownerMark(),
	}
	v.Have.Bindings = []topology.Binding{to("old", "a"), to("old", "b"), back}
	return v
}

// run takes steps until none is left, or so many changes are made. The changes of a phase are
// carried out at the same time, in any order.
func (v *virtualHost) run(t *rapid.T, m Move, abort bool, changes int) {
	for range 30 {
		step := m.next(v.State, nil)
		if abort {
			step = m.nextBack(v.State)
		}
		if step.Doing == "" {
			return
		}
		if step.Doubled {
			t.Fatalf("it says that a service has bound the queue again")
		}
		todo := rapid.Permutation(step.Changes).Draw(t, "changes")
		slices.SortStableFunc(todo, func(a, b plan.Change) int { return int(a.Phase - b.Phase) })
		for _, c := range todo {
			if changes--; changes < 0 {
				return
			}
			v.apply(c)
			t.Logf("%s: %s %s", step.Doing, c.Action, c.Name)
			v.expect(t, "")
		}
	}
	t.Fatal("it does not end")
}

// apply carries out a change.
func (v *virtualHost) apply(c plan.Change) {
	if c.Action != plan.Create {
		v.remove(c.Before)
	}
	switch o := c.After.(type) {
	case topology.Exchange:
		v.Have.Exchanges = append(v.Have.Exchanges, o)
	case topology.Binding:
		v.Have.Bindings = append(v.Have.Bindings, o)
	case topology.Policy:
		v.Have.Policies = append(v.Have.Policies, o)
	case topology.Queue:
		v.Have.Queues = append(v.Have.Queues, o)
	}
}

// remove deletes an object. The bindings of an exchange go with it.
func (v *virtualHost) remove(o topology.Object) {
	same := func(other topology.Object) bool { return other.DisplayName() == o.DisplayName() }
	switch o := o.(type) {
	case topology.Exchange:
		v.Have.Exchanges = slices.DeleteFunc(v.Have.Exchanges, func(e topology.Exchange) bool { return same(e) })
		v.Have.Bindings = slices.DeleteFunc(v.Have.Bindings, func(b topology.Binding) bool {
			return b.Source == o.Name || b.DestinationType == topology.ToExchange && b.Destination == o.Name
		})
	case topology.Binding:
		v.Have.Bindings = slices.DeleteFunc(v.Have.Bindings, func(b topology.Binding) bool {
			return b.Identity() == o.Identity()
		})
	case topology.Policy:
		v.Have.Policies = slices.DeleteFunc(v.Have.Policies, func(p topology.Policy) bool { return same(p) })
	case topology.Queue:
		v.Have.Queues = slices.DeleteFunc(v.Have.Queues, func(q topology.Queue) bool { return same(q) })
	}
}

// expect fails unless each message has one queue: that of the name, if there is one.
func (v *virtualHost) expect(t *rapid.T, name string) {
	router := emulator.New(v.State)
	for _, p := range []struct{ exchange, key string }{{"events", "a"}, {"events", "b"}, {"shop.return", "@new"}} {
		queues := router.Publish(p.exchange, p.key, nil).Queues
		if len(queues) != 1 || name != "" && p.exchange == "events" && queues[0] != name {
			t.Fatalf("a message for %s with key %s comes to %q", p.exchange, p.key, queues)
		}
	}
}
