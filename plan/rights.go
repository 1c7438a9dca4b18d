package plan

import (
	"cmp"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Permission is what RabbitMQ distinguishes: the three regular expressions of
// set_permissions, and the tag that a user needs to change policies.
type Permission string

// The permissions.
const (
	Configure   Permission = "configure"
	Write       Permission = "write"
	Read        Permission = "read"
	Policymaker Permission = "policymaker" // a tag
)

// Right is a permission for one object.
type Right struct {
	Permission Permission
	// Kind is that of the object: an exchange or a queue. Empty for a tag.
	Kind topology.Kind
	// Name is that of the object. Empty for a tag.
	Name string
}

// Rights returns what a user must be permitted for carrying out p, each right
// once, in a fixed order. The user needs the tag management in addition.
//
// Source: the checks of the broker's AMQP channel, through which the management
// API goes too. A queue with a dead-letter exchange takes read on the queue and
// write on the exchange, an exchange with an alternate one likewise; a binding
// takes write on its destination and read on its source.
func Rights(p Plan) []Right {
	r := map[Right]bool{}
	for _, c := range p.Changes {
		if c.Action == Blocked {
			if p.mayReplace(c, p.Allow) {
				p.replacementRights(c.Name, r)
			}
			continue
		}
		if c.Reroute != nil {
			c.Reroute.rights(r)
		}
		for _, object := range []topology.Object{c.Before, c.After} {
			switch o := object.(type) {
			case topology.Exchange:
				r[Right{Configure, topology.KindExchange, o.Name}] = true
				if alternate, ok := o.Arguments[topology.ArgAlternateExchange].(string); ok && c.After != nil {
					r[Right{Read, topology.KindExchange, o.Name}] = true
					r[Right{Write, topology.KindExchange, alternate}] = true
				}
			case topology.Queue:
				r[Right{Configure, topology.KindQueue, o.Name}] = true
				if target, ok := o.Arguments[topology.ArgDeadLetterExchange].(string); ok && c.After != nil {
					r[Right{Read, topology.KindQueue, o.Name}] = true
					r[Right{Write, topology.KindExchange, target}] = true
				}
				if c.Before != nil && o.Type() == topology.Quorum {
					r[Right{Read, topology.KindQueue, o.Name}] = true // it is asked whether it is empty
				}
			case topology.Binding:
				r[Right{Write, topology.Kind(o.DestinationType), o.Destination}] = true
				r[Right{Read, topology.KindExchange, o.Source}] = true
			case topology.Policy:
				r[Right{Permission: Policymaker}] = true
			}
		}
	}
	for _, name := range p.Retiring { // apply moves what a failed queue holds
		if backoff, failed := topology.FailedBackoff(p.Topology, name); failed {
			r[Right{Read, topology.KindQueue, name}] = true
			r[Right{Write, topology.KindExchange, topology.FailedExchangeName(p.Topology)}] = true
			r[Right{Write, topology.KindExchange, topology.RetryExchangeName(p.Topology, backoff)}] = true
		}
	}
	var out []Right
	for right := range r {
		out = append(out, right)
	}
	SortRights(out)
	return out
}

// replacementRights adds what it takes to replace a queue under its name, for the warning of a
// plan. Package migrate knows all of it, and checks that before the first write.
func (p Plan) replacementRights(queue string, r map[Right]bool) {
	hold := topology.ReplacementHoldName(p.Topology, queue)
	for _, permission := range []Permission{Configure, Write, Read} {
		r[Right{permission, topology.KindQueue, queue}] = true
		r[Right{permission, topology.KindQueue, hold}] = true
	}
	r[Right{Configure, topology.KindExchange, topology.SwitchExchangeName(p.Topology, queue)}] = true
	r[Right{Permission: Policymaker}] = true
	if p.present == nil {
		return
	}
	for _, b := range p.present().resolver.state.Have.Bindings {
		if b.DestinationType == topology.ToQueue && b.Destination == queue {
			r[Right{Read, topology.KindExchange, b.Source}] = true
		}
	}
}

// rights adds what the steps of a reroute take.
func (o Reroute) rights(r map[Right]bool) {
	for _, b := range o.To {
		r[Right{Read, topology.KindExchange, b.Source}] = true
		r[Right{Read, topology.KindExchange, topology.NextExchangeName(b.Source)}] = true
	}
	for _, b := range slices.Concat(o.From, o.To) {
		r[Right{Write, topology.Kind(b.DestinationType), b.Destination}] = true
	}
}

// SortRights sorts by permission, kind and name.
func SortRights(rights []Right) {
	order := []Permission{Configure, Write, Read, Policymaker}
	slices.SortFunc(rights, func(a, b Right) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Permission), slices.Index(order, b.Permission)),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}
