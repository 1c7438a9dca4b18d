package spec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Compile returns the objects that s compiles to: those of the file, and for each work queue
// its dead-lettering, its return path and the queues and exchanges of its backoff.
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
func Compile(s *Spec) (topology.Compiled, error) {
	if problems := checkNames(s); len(problems) > 0 {
		return topology.Compiled{}, &Error{Problems: byPlace(problems)}
	}
	c := compiler{spec: s, places: map[string]int{}, out: topology.Compiled{
		Name: s.Name, VHost: s.VHost, Cluster: s.Cluster, CountHeader: s.CountHeader, Messages: s.Messages,
		Accepted: s.Accept, Notify: s.Notify, Places: map[topology.Key]topology.Place{},
	}}
	for _, e := range s.Exchanges {
		c.declared(e)
	}
	managed := func(q Queue) bool { return !q.Unmanaged }
	if len(s.Matches) > 0 || len(s.Delays) > 0 || slices.ContainsFunc(s.Queues, managed) {
		c.safetyNet()
	}
	c.loops()
	c.delays()
	for _, q := range s.Queues {
		c.work(q)
		if q.Replace {
			c.out.Replace = append(c.out.Replace, q.Name)
		}
		if !q.Unmanaged {
			c.deadLetters(q)
		}
	}
	c.messages()
	c.matches()
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
	out    topology.Compiled
	places map[string]int // by name: the index of the queue in out
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

// mark puts the owner mark on everything but external objects. It runs last, so that no
// argument of the file can replace the owner mark.
func (c *compiler) mark() {
	mark := topology.OwnerMark(c.spec.Name)
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

// declared adds an exchange of the file and the bindings to it. An external exchange is
// added too, so that plan checks that it exists.
func (c *compiler) declared(e Exchange) {
	label := topology.Label{Role: topology.RoleBusiness}
	c.out.Exchanges = append(c.out.Exchanges, topology.Exchange{
		Name: e.Name, Type: e.Type, Durable: !e.External, Internal: e.Internal,
		Arguments: e.Arguments, External: e.External, Label: label,
	})
	for _, b := range e.Bindings {
		for i, key := range b.Keys {
			c.bindExchange(b.Exchange, e.Name, key, b.Arguments, label)
			c.placeBinding(b, i)
		}
	}
	c.place(topology.Key{Kind: topology.KindExchange, Name: e.Name}, placed(e.Pos, e.Overlay))
}

// place notes where the file declares an object.
func (c *compiler) place(key topology.Key, at topology.Place) { c.out.Places[key] = at }

// placed returns the place of what stands at a place, and is changed at another, if that is not
// zero.
func placed(at, overlay Pos) topology.Place {
	out := topology.Place{File: at.File, Line: at.Line}
	if overlay != (Pos{}) {
		out.Overlay = fmt.Sprintf("%s:%d", overlay.File, overlay.Line)
	}
	return out
}

// placeBinding notes where the file has the key of index i of b, for the binding that was added
// last.
func (c *compiler) placeBinding(b Binding, i int) {
	added := c.out.Bindings[len(c.out.Bindings)-1]
	added.Arguments = added.Arguments.With(topology.ArgManagedBy, topology.OwnerMark(c.spec.Name))
	at := b.Pos
	if i < len(b.KeyPos) {
		at = b.KeyPos[i]
	}
	c.place(added.ID(), placed(at, Pos{}))
}

// safetyNet adds what every topology with a queue needs: the exchange for failures, the
// exchange that routes to dead-letter queues, the exchange that returns messages to their
// work queues, and the unroutable exchange and queue.
//
// Queues without a backoff have a return path too: a message may wait in a retry queue when
// its work queue loses its backoff.
func (c *compiler) safetyNet() {
	unroutable := topology.UnroutableName(c.spec.Name)
	label := topology.Label{Role: topology.RoleUnroutable}
	c.exchange(unroutable, topology.Fanout, nil, label)
	c.queue(unroutable, c.holding(), label)
	c.bind(unroutable, unroutable, "", nil, label)

	c.withNext(topology.DeadLetterName(c.spec.Name), topology.Direct, unroutable,
		topology.Label{Role: topology.RoleDeadLetter})
	c.exchange(topology.ReturnExchangeName(c.spec.Name), topology.Direct,
		topology.Arguments{topology.ArgAlternateExchange: unroutable},
		topology.Label{Role: topology.RoleReturn})
	failed := topology.Label{Role: topology.RoleFailed}
	if len(c.spec.Matches) > 0 {
		others := topology.AnyFailedExchangeName(c.spec.Name)
		c.withNext(others, topology.Fanout, unroutable, failed)
		unroutable = others
	}
	c.withNext(topology.FailedExchangeName(c.spec.Name), topology.Direct, unroutable, failed)
}

// withNext adds an exchange whose bindings can change under load: what none of them matches goes
// to its next exchange, which has bindings only during a change, and from there to spare.
func (c *compiler) withNext(name, kind, spare string, label topology.Label) {
	next := topology.NextExchangeName(name)
	c.exchange(next, kind, topology.Arguments{topology.ArgAlternateExchange: spare}, label)
	c.exchange(name, kind, topology.Arguments{topology.ArgAlternateExchange: next}, label)
}

// native returns the backoff of q if RabbitMQ does its retries.
func (c *compiler) native(q Queue) (topology.Backoff, bool) {
	i := slices.IndexFunc(c.out.Native, func(b topology.Backoff) bool { return b.Name == q.Backoff })
	if i < 0 {
		return topology.Backoff{}, false
	}
	return c.out.Native[i], true
}

// failures adds the binding that decides where the failures of q go: to the failed queue
// of its backoff, or without one to the exchange that routes to dead-letter queues. What RabbitMQ
// dead-letters from a queue with a native backoff has no attempts left.
func (c *compiler) failures(q Queue) {
	label := topology.Label{Role: topology.RoleFailed, Queue: q.Name}
	exchange, key := topology.FailedExchangeName(c.spec.Name), topology.AddressKey(q.Name)
	if _, native := c.native(q); native || q.Backoff == topology.NoBackoff {
		c.bindExchange(exchange, topology.DeadLetterName(c.spec.Name), key, nil, label)
		return
	}
	c.bind(exchange, topology.FailedQueueName(c.spec.Name, q.Backoff), key, nil, label)
}

// work adds a work queue and its bindings.
func (c *compiler) work(q Queue) {
	label := topology.Label{Role: topology.RoleWork, Queue: q.Name}
	c.out.Queues = append(c.out.Queues, topology.Queue{
		Name: q.Name, Durable: true, External: q.External, Arguments: c.workArguments(q), Label: label,
	})
	for _, b := range q.Bindings {
		for i, key := range b.Keys {
			c.bind(b.Exchange, q.Name, key, b.Arguments, topology.Label{Role: topology.RoleBusiness, Queue: q.Name})
			c.placeBinding(b, i)
		}
	}
	c.place(topology.Key{Kind: topology.KindQueue, Name: q.Name}, placed(q.Pos, q.Overlay))
}

// deadLetters adds what dlxctl makes for the failures of a work queue: its dead-lettering, the
// return path, and its dead-letter queue.
func (c *compiler) deadLetters(q Queue) {
	if q.ByPolicy {
		c.policy(q)
	}
	c.failures(q)
	c.bind(topology.ReturnExchangeName(c.spec.Name), q.Name, topology.AddressKey(q.Name), nil,
		topology.Label{Role: topology.RoleReturn, Queue: q.Name})
	c.out.WorkQueues = append(c.out.WorkQueues, topology.WorkQueue{
		Name: q.Name, Backoff: q.Backoff, DeadLetterQueue: q.Dead.Queue, Owner: q.Owner, Severity: q.Severity,
		SeverityRules: q.SeverityRules, Replaces: q.Replaces, RetryTo: q.RetryTo,
	})
	c.dead(q)
}

// messages adds what applies to the messages of each queue: what the file says of it, and of the
// queues whose messages may come to it by retryTo. Else it would show what those mask.
func (c *compiler) messages() {
	queues := make(map[string]Queue, len(c.spec.Queues))
	all := make(map[string]topology.QueueMessages, len(c.spec.Queues))
	for _, q := range c.spec.Queues {
		queues[q.Name] = q
		if q.Messages.Queue != "" {
			all[q.Name] = q.Messages
		}
	}
	for _, q := range c.spec.Queues {
		seen := map[string]bool{q.Name: true}
		for to := q.RetryTo; q.Messages.Queue != "" && to != "" && !seen[to]; to = queues[to].RetryTo {
			seen[to] = true
			m := all[to]
			m.Queue = to
			m.Types = slices.Concat(m.Types, q.Messages.Types)
			m.Redact.Paths = slices.Concat(m.Redact.Paths, q.Messages.Redact.Paths)
			m.Redact.Types = slices.Concat(m.Redact.Types, q.Messages.Redact.Types)
			m.Redact.HideBodies = m.Redact.HideBodies || q.Messages.Redact.HideBodies
			all[to] = m
		}
	}
	for _, q := range c.spec.Queues {
		if m, ok := all[q.Name]; ok {
			c.out.Messages.Queues = append(c.out.Messages.Queues, m)
		}
	}
}

// dead adds the dead-letter queue of q, unless another queue shares it and has
// brought it along, and the binding that picks it.
func (c *compiler) dead(q Queue) {
	label := topology.Label{Role: topology.RoleDeadLetter, Queue: q.Name}
	c.bind(topology.DeadLetterName(c.spec.Name), q.Dead.Queue, topology.AddressKey(q.Name), nil, label)
	c.deadQueue(q, label)
}

// deadQueue adds the dead-letter queue of q, as dead does.
func (c *compiler) deadQueue(q Queue, label topology.Label) {
	if i, ok := c.places[q.Dead.Queue]; ok {
		c.out.Queues[i].Label.Queue = "" // it serves several
		return
	}
	if q.Dead.Keep > 0 {
		c.out.Keeps = append(c.out.Keeps, topology.Keep{Queue: q.Dead.Queue, Age: q.Dead.Keep})
	}
	if q.Dead.Queue == topology.DeadLetterName(c.spec.Name) {
		label.Queue = ""
	}
	if q.Dead.External {
		c.queue(q.Dead.Queue, nil, label)
		c.out.Queues[len(c.out.Queues)-1].External = true
		return
	}
	args := c.holding()
	maps.Copy(args, q.Dead.Arguments)
	c.queue(q.Dead.Queue, args, label)
}
