package plan

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Reroute is the change of the bindings of an exchange that has a next exchange: where the
// failures of a work queue go, where its dead letters go, or in which tier an attempt of a backoff
// waits. It is carried out in steps, each read back from the broker: see [NextReroutes]. No
// message is lost, doubled or misplaced meanwhile.
type Reroute struct {
	// Exchange is the exchange whose bindings change. For queues that match it is that of all
	// failures, also where the one for failures under any address changes with it.
	Exchange string
	// Queue is the work queue, or the pattern of the first match. Empty for the tiers of a backoff.
	Queue string
	// From are the bindings of the topology that were found, also those of the next exchange. To are
	// the wanted ones. Their sources, with the next exchanges of these, are all that the steps write.
	From, To []topology.Binding
}

// rerouteKey identifies a reroute.
type rerouteKey struct{ exchange, queue string }

func (o Reroute) key() rerouteKey { return rerouteKey{o.Exchange, o.Queue} }

// slotKey is what the bindings of an exchange match: a routing key, or a count header. Two
// bindings of one slot are two routes of the same messages.
type slotKey struct{ exchange, match string }

// slotOf returns the slot of a binding of exchange, or of its next exchange.
func slotOf(exchange string, b topology.Binding) slotKey {
	match := b.Key
	_, owned := b.Arguments[topology.ArgManagedBy]
	if len(b.Arguments) > 1 || len(b.Arguments) == 1 && !owned {
		match += "\x00" + b.Arguments.Without(topology.ArgManagedBy).String()
	}
	return slotKey{exchange, match}
}

// slot is where the messages that match one slot of an exchange go.
type slot struct {
	key     slotKey
	reroute rerouteKey // what plans show it as
	want    topology.Binding
	*found
}

// found are the bindings of a slot that were found: those of the topology at the exchange and at
// its next exchange, and those of others at the exchange.
type found struct {
	at, next, others []topology.Binding
	listed           bool // as a slot
}

// foundIn are what was found, by slot.
type foundIn map[slotKey]*found

// of returns what was found of a slot, to be added to.
func (at foundIn) of(key slotKey) *found {
	if at[key] == nil {
		at[key] = new(found)
	}
	return at[key]
}

// changeable returns the exchanges of a topology that have a next exchange: by the name of each of
// both, the first.
func changeable(want topology.Compiled) map[string]string {
	out := map[string]string{}
	add := func(exchange string) { out[exchange], out[topology.NextExchangeName(exchange)] = exchange, exchange }
	add(topology.FailedExchangeName(want.Name))
	add(topology.DeadLetterName(want.Name))
	add(topology.AnyFailedExchangeName(want.Name))
	for _, b := range want.Backoffs {
		add(b.RetryExchange)
	}
	return out
}

// slotsOf returns the slots that want has a binding for, and those of [legacyRoutes].
func slotsOf(want topology.Compiled, state topology.State) []slot {
	exchanges := changeable(want)
	at := foundIn{}
	for _, b := range state.Have.Bindings {
		exchange, is := exchanges[b.Source]
		if !is {
			continue
		}
		f := at.of(slotOf(exchange, b))
		switch owner, _ := topology.Owner(b.Arguments); {
		case owner != want.Name && b.Source == exchange:
			f.others = append(f.others, b)
		case owner != want.Name: // nothing comes to the next exchange that it could divert
		case b.Source == exchange:
			f.at = append(f.at, b)
		default:
			f.next = append(f.next, b)
		}
	}
	out := make([]slot, 0, len(at)) // as a rule all are there
	add := func(b topology.Binding) {
		if exchanges[b.Source] != b.Source {
			return
		}
		key := slotOf(b.Source, b)
		if f := at.of(key); !f.listed {
			f.listed = true
			reroute := rerouteKey{b.Source, b.Label.Queue}
			if b.Source == topology.AnyFailedExchangeName(want.Name) {
				reroute.exchange = topology.FailedExchangeName(want.Name)
			}
			out = append(out, slot{key, reroute, b, f})
		}
	}
	for _, b := range want.Bindings {
		add(b)
	}
	for _, b := range legacyRoutes(want, state, at) {
		add(b)
	}
	return out
}

// legacyRoutes returns the wanted bindings of legacy queues of the topology that exist and whose
// backoff is no longer in the file: their failures go by the backoff of their successor. at are
// the bindings that were found.
func legacyRoutes(want topology.Compiled, state topology.State, at foundIn) []topology.Binding {
	successors := filtered(want.WorkQueues, func(w topology.WorkQueue) bool { return w.Replaces != "" })
	if len(successors) == 0 {
		return nil // as a rule: the queues need not be gone through
	}
	queues := byName(state.Have.Queues, func(q topology.Queue) string { return q.Name })
	failed := topology.FailedExchangeName(want.Name)
	var out []topology.Binding
	for _, w := range successors {
		legacy, alive := queues[w.Replaces]
		owner, marked := topology.Owner(legacy.Arguments)
		key := topology.AddressKey(w.Replaces)
		f := at.of(slotKey{failed, key})
		orphaned := slices.ContainsFunc(slices.Concat(f.at, f.next), func(b topology.Binding) bool {
			backoff := backoffAt(want.Name, b)
			_, inFile := want.Backoff(backoff)
			return backoff != topology.NoBackoff && !inFile
		})
		if !alive || marked && owner != want.Name || !orphaned {
			continue
		}
		i := slices.IndexFunc(want.Bindings, func(b topology.Binding) bool {
			return b.Source == failed && b.Key == topology.AddressKey(w.Name)
		})
		if i >= 0 {
			b := want.Bindings[i]
			b.Key, b.Label = key, topology.Label{Role: topology.RoleFailed, Queue: w.Replaces}
			out = append(out, b)
		}
	}
	return out
}

// same reports whether two bindings lead to the same place.
func same(a, b topology.Binding) bool {
	return a.Destination == b.Destination && a.DestinationType == b.DestinationType
}

// moves reports whether the topology has bound the slot to another place than the wanted one, or
// has begun to.
func (s slot) moves() bool {
	return len(s.next) > 0 || slices.ContainsFunc(s.at, func(b topology.Binding) bool { return !same(b, s.want) })
}

// NextReroutes returns the next changes on the way from where the messages of each slot go to where
// want has them go, for the given reroutes of a plan for want. It is a pure function of what the
// broker shows, so that it continues wherever a run was stopped. The broker must settle between two
// calls. No changes: nothing is left.
//
// To change a slot from A to B, B is bound to the next exchange, then A is unbound from the
// exchange, so that messages take the way over its alternate exchange, which is the next one, then
// B is bound to the exchange, then unbound from the next one. At each moment a message has one
// way. A run that was stopped, and continues with a file that wants C, may find other bindings at
// the next exchange: as long as the exchange has one they carry nothing, and when it has none the
// binding of C takes over at once.
//
// Slots do not depend on each other: a message passes each exchange once, and matches one slot
// there. So all of them take their step in the same round.
func NextReroutes(want topology.Compiled, state topology.State, reroutes []Change) []Change {
	chosen := map[rerouteKey]bool{}
	for _, c := range reroutes {
		chosen[c.Reroute.key()] = true
	}
	var out []Change
	for _, s := range slotsOf(want, state) {
		if s.moves() && chosen[s.reroute] {
			out = append(out, s.step()...)
		}
	}
	return out
}

// step returns the next changes for one slot.
func (s slot) step() []Change {
	right := func(b topology.Binding) bool { return same(b, s.want) }
	wrong := func(b topology.Binding) bool { return !same(b, s.want) }
	bound := slices.ContainsFunc(slices.Concat(s.at, s.others), right)
	previous, stale := filtered(s.at, wrong), filtered(s.next, wrong)
	diverted := slices.ContainsFunc(s.others, wrong)
	atNext := s.want
	atNext.Source = topology.NextExchangeName(s.key.exchange)
	switch {
	case bound && len(previous) > 0:
		return unbindings(previous) // it has two ways: each message is doubled until now
	case bound:
		return unbindings(s.next) // nothing goes this way: the exchange itself matches
	case len(s.at) > 0 && len(stale) > 0:
		return unbindings(stale) // nothing goes this way, as above
	case len(previous) == 0:
		return []Change{bindingOf(s.want)} // the next exchange had it until now, or nothing did
	case diverted:
		// The exchange matches by a binding of others too, so that nothing would come to its
		// alternate exchange, and messages without the previous binding would be lost. Until the
		// previous binding goes they are doubled.
		return []Change{bindingOf(s.want)}
	case !slices.ContainsFunc(s.next, right):
		return []Change{bindingOf(atNext)}
	default:
		return unbindings(previous) // from now on the next exchange leads to the wanted place
	}
}

func filtered[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !keep(x) })
}

func bindingOf(b topology.Binding) Change {
	return Change{Action: Create, Kind: topology.KindBinding, Name: b.String(), After: b, Label: b.Label}
}

func unbindings(list []topology.Binding) []Change {
	var out []Change
	for _, b := range list {
		out = append(out, Change{
			Action: Delete, Kind: topology.KindBinding, Name: b.String(), Before: b,
			Label: topology.Label{Role: topology.RoleFailed},
		})
	}
	return out
}
