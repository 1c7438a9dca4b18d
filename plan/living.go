package plan

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Plane returns the objects of a topology that one of its queues needs while the queue exists,
// even if the file does not name them: the queue itself, its bindings and its policy, the
// failed queue, the tiers and the exchanges that its rejected messages go through, its address
// on the exchanges that return messages and pick dead-letter queues, and its dead-letter queue.
// The key of a binding is its identity. For a queue that does not belong to the topology it
// gives nothing, but for one that a service declared and whose failures go by this topology, as an
// earlier file had it.
//
// The objects are found by following the messages, on what the broker has: a queue that was
// made from an earlier file may use a backoff that the file no longer has.
func Plane(topologyName string, state topology.State, queue string) map[topology.Key]bool {
	mark := topology.OwnerMark(topologyName)
	route := func(b topology.Binding) bool {
		return b.Source == topology.FailedExchangeName(topologyName) && b.Key == topology.AddressKey(queue) &&
			b.Arguments[topology.ArgManagedBy] == mark
	}
	for _, q := range state.Have.Queues {
		_, marked := topology.Owner(q.Arguments)
		if q.Name == queue && (q.Arguments[topology.ArgManagedBy] == mark ||
			!marked && slices.ContainsFunc(state.Have.Bindings, route)) {
			return planeOf(topologyName, state, queue)
		}
	}
	return nil
}

// planeOf returns the plane of a queue, also of one that a service has declared.
func planeOf(topologyName string, state topology.State, queue string) map[topology.Key]bool {
	p := plane{
		name: topologyName, root: queue, address: topology.AddressKey(queue),
		resolver: &resolver{
			want: topology.Compiled{Name: topologyName}, state: state, foreign: policy.All(state),
			working: foundWork(topologyName, state),
		},
		keys:      map[topology.Key]bool{},
		queues:    byName(state.Have.Queues, func(q topology.Queue) string { return q.Name }),
		exchanges: byName(state.Have.Exchanges, func(e topology.Exchange) string { return e.Name }),
	}
	p.queue(queue)
	p.keys[topology.Key{Kind: topology.KindPolicy, Name: topology.PolicyName(topologyName, queue)}] = true
	for _, b := range state.Have.Bindings {
		if b.DestinationType == topology.ToQueue && b.Destination == queue && p.resolver.owns(b.Arguments) {
			p.binding(b)
			p.keys[topology.Key{Kind: topology.KindExchange, Name: b.Source}] = true
		}
	}
	p.exchange(topology.ReturnExchangeName(topologyName))
	p.exchange(topology.DeadLetterName(topologyName))
	return p.keys
}

// plane collects what a queue needs.
type plane struct {
	name      string
	root      string // the queue
	address   string // of the queue
	resolver  *resolver
	queues    map[string]topology.Queue
	exchanges map[string]topology.Exchange
	keys      map[topology.Key]bool
}

func (p *plane) binding(b topology.Binding) {
	p.keys[topology.Key{Kind: topology.KindBinding, Name: b.Identity()}] = true
}

// queue adds a queue and what its messages are dead-lettered to. What the processor takes from
// a failed queue it publishes to the exchange of the tiers.
func (p *plane) queue(name string) {
	q, exists := p.queues[name]
	key := topology.Key{Kind: topology.KindQueue, Name: name}
	if !exists || p.keys[key] || name != p.root && !p.resolver.owns(q.Arguments) {
		return
	}
	p.keys[key] = true
	target, _ := q.Arguments[topology.ArgDeadLetterExchange].(string)
	for _, x := range p.resolver.foreign.InEffect(q) {
		if target == "" {
			target, _ = x.Definition[topology.KeyDeadLetterExchange].(string)
		}
	}
	p.exchange(target)
	if l := p.resolver.queueLabel(name, topology.RoleWork); l.Role == topology.RoleFailed {
		p.exchange(topology.RetryExchangeName(p.name, l.Backoff))
	}
}

// exchange adds an exchange and where it leads the messages of the queue: a direct exchange
// by the queue's address alone.
func (p *plane) exchange(name string) {
	e, exists := p.exchanges[name]
	key := topology.Key{Kind: topology.KindExchange, Name: name}
	if !exists || p.keys[key] || !p.resolver.owns(e.Arguments) {
		return
	}
	p.keys[key] = true
	if alternate, ok := e.Arguments[topology.ArgAlternateExchange].(string); ok {
		p.exchange(alternate)
	}
	for _, b := range p.resolver.state.Have.Bindings {
		if b.Source != name || !p.resolver.owns(b.Arguments) || e.Type == topology.Direct && b.Key != p.address {
			continue
		}
		p.binding(b)
		switch {
		case b.DestinationType == topology.ToExchange:
			p.exchange(b.Destination)
		case b.Key == p.address && p.resolver.queueLabel(b.Destination, topology.RoleWork).Role == topology.RoleFailed:
			p.queue(b.Destination) // where its failures go
		case b.Key == p.address:
			// The queue itself, its successor, or its dead-letter queue: what else the
			// successor needs is in the file.
			p.keys[topology.Key{Kind: topology.KindQueue, Name: b.Destination}] = true
		default:
			p.queue(b.Destination)
		}
	}
}

// living notes what legacy queues still need of this topology, also those that a service declared:
// an earlier file may have had them. While one exists, all of its plane stays wanted, with its
// bindings: its consumers and publishers still use it, and migrate alone takes it away. When it is
// gone, its address stays wanted as long as a failed queue or a tier can hold a message of it. So
// does the plane of a queue that is being replaced under its name and that the file no longer has:
// its consumers still reject messages.
func (r *orphans) living() {
	for queue := range r.begun {
		if r.abandoned(queue) {
			r.plane(queue)
		}
	}
	for _, w := range r.want.WorkQueues {
		if w.Replaces == "" {
			continue
		}
		if _, alive := r.existing[w.Replaces]; alive {
			r.plane(w.Replaces)
		} else if r.circulates(nil) {
			r.address(w)
		}
	}
}

// plane keeps the plane of such a queue, but for the tiers of a backoff that the file has too.
// There the file decides: an attempt that waited in a tier of before and in one of the file
// would be doubled.
func (r *orphans) plane(legacy string) {
	needed := planeOf(r.want.Name, r.state, legacy)
	if backoff, leaves := r.leaving(legacy); leaves {
		for key := range needed { // the loop that its failures leave is retired like any other
			l := r.queueLabel(key.Name, topology.RoleWork)
			if key.Kind == topology.KindExchange {
				l = r.exchangeLabel(key.Name)
			}
			if l.Backoff == backoff && (l.Role == topology.RoleFailed || l.Role == topology.RoleRetry) {
				delete(needed, key)
			}
		}
		for _, b := range r.state.Have.Bindings {
			if r.exchangeLabel(b.Source).Backoff == backoff || r.routes.governs(b) {
				delete(needed, topology.Key{Kind: topology.KindBinding, Name: b.Identity()})
			}
		}
	}
	exchanges := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, b := range r.state.Have.Bindings {
		_, inFile := exchanges[b.Source]
		own := b.Key == topology.AddressKey(legacy) || b.DestinationType == topology.ToQueue && b.Destination == legacy
		if key := (topology.Key{Kind: topology.KindBinding, Name: b.Identity()}); inFile && !own {
			delete(needed, key)
		}
	}
	for key := range needed {
		l := r.queueLabel(key.Name, topology.RoleWork)
		_, inFile := exchanges[topology.RetryExchangeName(r.want.Name, l.Backoff)]
		if key.Kind != topology.KindQueue || l.Role != topology.RoleRetry || !inFile {
			r.kept[key] = true
		}
	}
}

// leaving returns the backoff that the failures of a living legacy queue leave: see
// legacyRoutes.
func (r *orphans) leaving(legacy string) (backoff string, leaves bool) {
	failed := topology.FailedExchangeName(r.want.Name)
	if !r.routes.slots[slotKey{failed, topology.AddressKey(legacy)}] {
		return "", false
	}
	for _, b := range r.state.Have.Bindings {
		if b.Source == failed && b.Key == topology.AddressKey(legacy) && r.owns(b.Arguments) {
			backoff = backoffAt(r.want.Name, b)
		}
	}
	return backoff, backoff != "" && backoff != topology.NoBackoff
}

// address keeps the address of a legacy queue that is gone: what waits in a tier under it comes
// back to the successor, and what dies finds the dead-letter queue that it had.
func (r *orphans) address(w topology.WorkQueue) {
	kept := false
	for _, b := range r.state.Have.Bindings {
		if b.Key != topology.AddressKey(w.Replaces) || !r.owns(b.Arguments) || b.DestinationType != topology.ToQueue {
			continue
		}
		if b.Source != topology.ReturnExchangeName(r.want.Name) && !r.picksDeadLetterQueue(b.Source) {
			continue
		}
		kept = true
		r.kept[topology.Key{Kind: topology.KindBinding, Name: b.Identity()}] = true
		if b.Destination != w.Name {
			r.kept[topology.Key{Kind: topology.KindQueue, Name: b.Destination}] = true
		}
	}
	if kept {
		r.warn(topology.WarnRetiredAddress,
			fmt.Sprintf("%s replaced %s, and failed messages of %s may still be waiting for a retry: they return to %s; when the tiers are empty, run apply again to remove the address %s",
				text.Name(w.Name), text.Name(w.Replaces), text.Name(w.Replaces), text.Name(w.Name),
				text.Name(topology.AddressKey(w.Replaces))))
	}
}

// circulates reports whether a failed queue or a tier of the topology holds a message. Failed
// queues of the backoffs in but are passed over, and what belongs to a delay: no message there has
// an address. The counts are up to 5 seconds old. Once a legacy queue is gone, no message gets its
// address any more: what comes back is in the successor, and fails under the address of that. So
// the counts miss a message only if a processor that was down takes it at this moment; it then ends
// in the unroutable queue, and is not lost.
func (r *resolver) circulates(but map[string]bool) bool {
	return slices.ContainsFunc(r.state.Have.Queues, func(q topology.Queue) bool {
		l := r.queueLabel(q.Name, topology.RoleWork)
		waits := l.Role == topology.RoleFailed && !but[l.Backoff] || l.Role == topology.RoleRetry
		return waits && l.Delay == "" && r.owns(q.Arguments) && r.held(q.Name) > 0
	})
}

// returnsToLegacy reports whether want returns messages to a successor that already return to its
// legacy queue, or to the switch exchange: the rollback of a migration has moved that binding, and
// the next cutover moves it back. With both, each message that leaves a tier would come to both
// queues.
func (r *resolver) returnsToLegacy(want topology.Binding) bool {
	legacy := r.works[want.Destination].Replaces
	if legacy == "" || want.Source != topology.ReturnExchangeName(r.want.Name) {
		return false
	}
	exchange := topology.SwitchExchangeName(r.want.Name, legacy)
	return slices.ContainsFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
		moved := b.DestinationType == topology.ToQueue && b.Destination == legacy ||
			b.DestinationType == topology.ToExchange && b.Destination == exchange
		return moved && b.Source == want.Source && b.Key == want.Key
	})
}

// keeps reports whether a queue of living still needs an object.
func (r *orphans) keeps(kind topology.Kind, name string) bool {
	return r.kept[topology.Key{Kind: kind, Name: name}]
}

// Forwards reports whether a legacy queue of a topology only forwards to its successor.
func Forwards(topologyName string, state topology.State, legacy string) bool {
	r := &resolver{want: topology.Compiled{Name: topologyName}, state: state}
	return r.forwards(legacy)
}

// forwards reports whether a legacy queue is but a forwarder: migrate --forward has left a
// policy that hands everything on, and no exchange leads to the queue any more. To bind its
// successor then doubles nothing.
func (r *resolver) forwards(legacy string) bool {
	name := topology.ForwardPolicyName(r.want.Name, legacy)
	i := slices.IndexFunc(r.state.Have.Policies, func(p topology.Policy) bool { return p.Name == name })
	bound := slices.ContainsFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
		return b.DestinationType == topology.ToQueue && b.Destination == legacy
	})
	return i >= 0 && !bound && r.state.Have.Policies[i].Pattern == "^"+regexp.QuoteMeta(legacy)+"$" &&
		r.state.QueuePolicies[legacy] == name
}
