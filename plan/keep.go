package plan

import (
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// needed returns, for changes that are not carried out, the deletions among the others
// that take something from their dead-lettering: what a message comes through that
// dies in a queue which stays as it is. stays says which of changes are held.
//
// A queue that stays is followed as the broker routes, with its own key where it is
// known, and through the processor: from a failed queue to the exchanges of its
// backoff. Where the file has another way for the message, the old one may go.
func (p *present) needed(changes []Change, stays []bool) []int {
	var todo []Change
	for i, c := range changes {
		if !stays[i] {
			todo = append(todo, c)
		}
	}
	n := needs{
		now: p.after(nil), then: p.after(todo), seen: map[target]bool{}, visited: map[visit]bool{},
		keep: newRoute(),
	}
	for i, c := range changes {
		if stays[i] {
			n.root(c)
		}
	}
	var out []int
	for i, c := range changes {
		if !stays[i] && c.Action == Delete && n.keep.has(c) {
			out = append(out, i)
		}
	}
	return out
}

// needs follows messages from the queues that stay as they are.
type needs struct {
	now, then world
	seen      map[target]bool
	visited   map[visit]bool
	keep      route
}

// visit is a queue, and the key of a message in it.
type visit struct {
	queue string
	target
}

// root begins at the queue that c would have changed, or whose failures it would have taken away.
func (n *needs) root(c Change) {
	b, isBinding := c.Before.(topology.Binding)
	switch {
	case isBinding && c.Label.Role == topology.RoleFailed && addressed(b) != "":
		n.queue(addressed(b), target{})
	case c.Kind == topology.KindQueue:
		n.queue(c.Name, target{})
	case c.Kind == topology.KindPolicy && topology.IsMatchPolicyName(n.now.resolver.want.Name, c.Name):
		n.match(c)
	case c.Kind == topology.KindPolicy && c.Label.Queue != "":
		n.queue(c.Label.Queue, target{})
	case c.Kind == topology.KindExchange && c.Action == Delete:
		n.exchange(target{exchange: c.Name})
	}
}

// match begins at the queues that a policy of a match is in effect on. The processor addresses what
// fails there: a retry to the queue, and a dead letter to the dead-letter queue of the match.
func (n *needs) match(c Change) {
	p, ok := c.Before.(topology.Policy)
	if !ok {
		return
	}
	top := n.now.resolver.want.Name
	for _, q := range n.now.resolver.state.Have.Queues {
		if in, _ := n.now.policies.For(q); in.Name == p.Name {
			n.queue(q.Name, target{})
			n.exchange(target{topology.ReturnExchangeName(top), topology.AddressKey(q.Name), true})
		}
	}
	for _, b := range n.now.from[topology.DeadLetterName(top)].all {
		if b.Key == topology.AddressKey(b.Destination) { // no work queue dead-letters by this key
			n.exchange(target{b.Source, b.Key, true})
		}
	}
}

// queue follows a message that came to a queue by a target.
func (n *needs) queue(name string, by target) {
	at := visit{name, target{key: by.key, known: by.known}}
	q, exists := n.then.find(topology.KindQueue, name).(topology.Queue)
	if !exists || n.visited[at] {
		return
	}
	n.visited[at] = true
	if to, ok := n.then.deadLetters(q, by); ok {
		n.exchange(to)
	}
	label := n.now.resolver.queueLabel(name, topology.RoleWork)
	if label.Role != topology.RoleFailed {
		return
	}
	top := n.now.resolver.want.Name
	if label.Delay != "" {
		n.exchange(target{topology.LevelExchangeName(top, label.Delay), by.key, by.known})
		n.exchange(target{topology.UnroutableName(top), by.key, by.known})
		return
	}
	for _, exchange := range []string{
		topology.RetryExchangeName(top, label.Backoff),
		topology.DeadLetterName(top), topology.UnroutableName(top),
	} {
		n.exchange(target{exchange, by.key, by.known})
	}
}

// exchange follows a message that is published to an exchange. What leads it on now
// is kept if nothing does then, or if the exchange itself only stays because a
// message can come to it.
func (n *needs) exchange(to target) {
	if n.seen[to] {
		return
	}
	n.seen[to] = true
	// Whose key is not known may go to the place for what has no queue any more.
	now, then := n.now.reach(to, !to.known), n.then.reach(to, !to.known)
	if len(then.queues) == 0 {
		maps.Copy(n.keep.queues, now.queues)
		maps.Copy(n.keep.exchanges, now.exchanges)
		maps.Copy(n.keep.bindings, now.bindings)
	}
	n.own(to)
	for _, queues := range []map[string]bool{now.queues, then.queues} {
		for q := range queues {
			n.queue(q, to)
		}
	}
	if e, ok := n.now.find(topology.KindExchange, to.exchange).(topology.Exchange); ok {
		if name, ok := n.now.alternate(e); ok {
			n.exchange(target{name, to.key, to.known})
		}
	}
}

// own goes on from an exchange to those that are bound to it. One that the file does not
// want any more is kept with all that it leads to.
func (n *needs) own(to target) {
	e, exists := n.now.find(topology.KindExchange, to.exchange).(topology.Exchange)
	if !exists {
		return
	}
	unwanted := n.unwanted(to)
	if unwanted {
		n.keep.exchanges[e.Name] = true
	}
	for _, b := range n.now.bindings(e, to) {
		if unwanted {
			n.keep.bindings[b.Identity()] = b
			n.keep.queues[b.Destination] = n.keep.queues[b.Destination] || b.DestinationType == topology.ToQueue
		}
		if b.DestinationType == topology.ToExchange {
			n.exchange(target{b.Destination, to.key, to.known})
		}
	}
}

// unwanted reports whether a target is an exchange of this topology that is not in the
// file. A direct exchange leads each message to one queue: without its key that is
// not known.
func (n *needs) unwanted(to target) bool {
	e, ok := n.now.find(topology.KindExchange, to.exchange).(topology.Exchange)
	return ok && (to.known || e.Type != topology.Direct) && n.now.resolver.owns(e.Arguments) &&
		!slices.ContainsFunc(n.now.resolver.want.Exchanges, func(w topology.Exchange) bool { return w.Name == to.exchange })
}
