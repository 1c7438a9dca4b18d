package spec

import (
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Compile gives the objects that s becomes: those of the file, and around each
// work queue the dead-lettering, the return path and the loop of its backoff.
//
// It is a pure function: equal Specs give equal, sorted topologies, and s stays
// as it is. Backoffs that no queue uses compile to nothing. Everything made
// carries the mark of ownership, but for the exchanges of others. The error, an
// [*Error], is for a Spec that did not come from [Decode], which finds the same:
// names that are taken or too long.
//
// Three laws hold for what it gives (a property test proves them): a message
// published to a backoff's headers exchange ends in exactly one queue whatever
// its count header holds; no exchange on the way can drop it; and no queue leads
// back to itself by dead-lettering alone, since the broker cuts such cycles.
func Compile(s *Spec) (topology.Topology, error) {
	if problems := checkNames(s); len(problems) > 0 {
		return topology.Topology{}, &Error{Problems: byPlace(problems)}
	}
	c := compiler{spec: s, places: map[string]int{}, out: topology.Topology{
		Name: s.Name, VHost: s.VHost, Cluster: s.Cluster, CountHeader: s.CountHeader,
	}}
	for _, e := range s.Exchanges {
		c.declared(e)
	}
	if len(s.Queues) > 0 {
		c.safetyNet()
	}
	c.loops()
	for _, q := range s.Queues {
		c.work(q)
		c.dead(q)
	}
	for _, r := range s.Removed {
		c.out.Removed = append(c.out.Removed, r.Name)
	}
	c.mark()
	c.out.Sort()
	// A binding that the file lists twice is one binding.
	c.out.Bindings = slices.CompactFunc(c.out.Bindings, func(a, b topology.Binding) bool {
		return a.Key == b.Key && a.Destination == b.Destination && a.Identity() == b.Identity() // most differ in their keys
	})
	return c.out, nil
}

// compiler collects the objects of one Spec.
type compiler struct {
	spec   *Spec
	out    topology.Topology
	places map[string]int // by name, where a queue stands in out
}

func (c *compiler) exchange(name, kind string, args topology.Arguments, label topology.Label) {
	c.out.Exchanges = append(c.out.Exchanges, topology.Exchange{
		Name: name, Type: kind, Durable: true, Arguments: args, Label: label,
	})
}

func (c *compiler) queue(name string, args topology.Arguments, label topology.Label) {
	c.places[name] = len(c.out.Queues)
	c.out.Queues = append(c.out.Queues, topology.Queue{
		Name: name, Durable: true, Arguments: args, Label: label,
	})
}

// bind adds a binding from source to the queue of that name.
func (c *compiler) bind(source, queue, key string, args topology.Arguments, label topology.Label) {
	c.out.Bindings = append(c.out.Bindings, topology.Binding{
		Source: source, Destination: queue, DestinationType: topology.ToQueue,
		Key: key, Arguments: args, Label: label,
	})
}

// bindExchange adds a binding from source to the exchange of that name.
func (c *compiler) bindExchange(source, exchange, key string, args topology.Arguments, label topology.Label) {
	c.bind(source, exchange, key, args, label)
	c.out.Bindings[len(c.out.Bindings)-1].DestinationType = topology.ToExchange
}

// mark puts the mark of ownership on everything but what belongs to others. It
// comes last, so that no argument of the file can take its place.
func (c *compiler) mark() {
	mark := topology.Mark(c.spec.Name)
	for i, e := range c.out.Exchanges {
		if !e.External {
			c.out.Exchanges[i].Arguments = e.Arguments.With(topology.ArgManagedBy, mark)
		}
	}
	for i, q := range c.out.Queues {
		if q.External {
			continue
		}
		c.out.Queues[i].Arguments = q.Arguments.With(topology.ArgManagedBy, mark)
	}
	for i, b := range c.out.Bindings {
		c.out.Bindings[i].Arguments = b.Arguments.With(topology.ArgManagedBy, mark)
	}
}

// declared adds an exchange of the file and the bindings that lead to it. An
// exchange of somebody else stands there so that it is looked for.
func (c *compiler) declared(e Exchange) {
	label := topology.Label{Role: topology.RoleBusiness}
	c.out.Exchanges = append(c.out.Exchanges, topology.Exchange{
		Name: e.Name, Type: e.Type, Durable: !e.External, Internal: e.Internal,
		Arguments: e.Arguments, External: e.External, Label: label,
	})
	for _, b := range e.Bindings {
		for _, key := range b.Keys {
			c.bindExchange(b.Exchange, e.Name, key, b.Arguments, label)
		}
	}
}

// safetyNet adds what every topology with a queue needs: the exchange that all
// failures come to, the one that picks the dead-letter queue, the one that brings
// messages back, and the place for what fits nowhere.
//
// The way back is there for queues without a backoff too: a message may wait in a tier
// when its queue loses its backoff.
func (c *compiler) safetyNet() {
	unroutable := topology.UnroutableName(c.spec.Name)
	label := topology.Label{Role: topology.RoleUnroutable}
	c.exchange(unroutable, topology.Fanout, nil, label)
	c.queue(unroutable, c.resting(), label)
	c.bind(unroutable, unroutable, "", nil, label)

	c.exchange(topology.DeadName(c.spec.Name), topology.Direct,
		topology.Arguments{topology.ArgAlternateExchange: unroutable},
		topology.Label{Role: topology.RoleDead})
	c.exchange(topology.ReturnName(c.spec.Name), topology.Direct,
		topology.Arguments{topology.ArgAlternateExchange: unroutable},
		topology.Label{Role: topology.RoleReturn})

	next := topology.NextFailedExchangeName(c.spec.Name)
	failed := topology.Label{Role: topology.RoleFailed}
	c.exchange(next, topology.Direct, topology.Arguments{topology.ArgAlternateExchange: unroutable}, failed)
	c.exchange(topology.FailedExchangeName(c.spec.Name), topology.Direct,
		topology.Arguments{topology.ArgAlternateExchange: next}, failed)
}

// failures adds the binding that decides where the failures of q go: to the failed queue
// of its backoff, or without one to the exchange that picks the dead-letter queue.
func (c *compiler) failures(q Queue) {
	label := topology.Label{Role: topology.RoleFailed, Queue: q.Name}
	exchange, key := topology.FailedExchangeName(c.spec.Name), topology.AddressKey(q.Name)
	if q.Backoff == topology.NoBackoff {
		c.bindExchange(exchange, topology.DeadName(c.spec.Name), key, nil, label)
		return
	}
	c.bind(exchange, topology.FailedName(c.spec.Name, q.Backoff), key, nil, label)
}

// work adds a work queue, its bindings, and the way back to it.
func (c *compiler) work(q Queue) {
	label := topology.Label{Role: topology.RoleWork, Queue: q.Name}
	c.out.Queues = append(c.out.Queues, topology.Queue{
		Name: q.Name, Durable: true, External: q.External, Arguments: c.workArguments(q), Label: label,
	})
	if q.ByPolicy {
		c.policy(q)
	}
	for _, b := range q.Bindings {
		for _, key := range b.Keys {
			c.bind(b.Exchange, q.Name, key, b.Arguments, topology.Label{Role: topology.RoleBusiness, Queue: q.Name})
		}
	}
	c.failures(q)
	c.bind(topology.ReturnName(c.spec.Name), q.Name, topology.AddressKey(q.Name), nil,
		topology.Label{Role: topology.RoleReturn, Queue: q.Name})
	c.out.Works = append(c.out.Works, topology.Work{
		Queue: q.Name, Backoff: q.Backoff, Dead: q.Dead.Queue, Owner: q.Owner, Severity: q.Severity, Replaces: q.Replaces,
	})
}

// dead adds the dead-letter queue of q, unless another queue shares it and has
// brought it along, and the binding that picks it.
func (c *compiler) dead(q Queue) {
	label := topology.Label{Role: topology.RoleDead, Queue: q.Name}
	c.bind(topology.DeadName(c.spec.Name), q.Dead.Queue, topology.AddressKey(q.Name), nil, label)

	if i, ok := c.places[q.Dead.Queue]; ok {
		c.out.Queues[i].Label.Queue = "" // it serves several
		return
	}
	if q.Dead.Queue == topology.DeadName(c.spec.Name) {
		label.Queue = ""
	}
	args := c.resting()
	maps.Copy(args, q.Dead.Arguments)
	c.queue(q.Dead.Queue, args, label)
}
