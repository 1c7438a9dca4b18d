package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// stake says what deleting a queue would do to whom: the counts, and a hazard
// for each that is not zero.
func (r Resolved) stake(q topology.Queue) (*Usage, []Hazard) {
	u := r.Usage[q.Name]
	var hazards []Hazard
	if u.Ready+u.Unacknowledged > 0 || q.Type() == topology.Stream { // the broker does not count what is in a stream
		hazards = append(hazards, LosesMessages)
	}
	if u.Consumers > 0 {
		hazards = append(hazards, StopsConsumers)
	}
	if r.routed[q.Name] {
		hazards = append(hazards, DropsRouting)
	}
	return &u, hazards
}

// routedQueues gives the queues to which an exchange leads that is not one of
// the loop.
func (r Resolved) routedQueues() map[string]bool {
	routed := map[string]bool{}
	for _, b := range r.Bindings {
		if b.DestinationType == topology.ToQueue && !r.generates(b.Source) {
			routed[b.Destination] = true
		}
	}
	return routed
}

// generates reports whether an exchange is one of those that lead messages
// through the loop: what only they lead to a queue has no publisher.
func (r Resolved) generates(exchange string) bool {
	res := resolver{want: r.Want}
	return res.labelOf(exchange, topology.RoleBusiness).Role != topology.RoleBusiness
}

// deletions gives the changes that take away what is ours and no longer wanted.
// wanted are the identities of the wanted bindings.
func (r Resolved) deletions(wanted map[string]bool) []Change {
	var out []Change
	exchanges := byName(r.Want.Exchanges, func(e topology.Exchange) string { return e.Name })
	sources, foreign := map[string]bool{}, map[string]bool{} // exchanges that lead somewhere, or that others have bound
	for _, b := range r.Bindings {
		sources[b.Source] = true
		if _, ours := topology.Owner(b.Arguments); !ours {
			foreign[b.Source] = true
			foreign[b.Destination] = foreign[b.Destination] || b.DestinationType == topology.ToExchange
		}
	}
	for _, have := range r.Have.Exchanges {
		if _, wanted := exchanges[have.Name]; wanted {
			continue
		}
		c := deleted(topology.KindExchange, have.Name, have, have.Label)
		if foreign[have.Name] || have.Label.Role == topology.RoleBusiness && sources[have.Name] {
			c.Hazards = []Hazard{DropsRouting}
		}
		out = append(out, c)
	}
	going := map[string]bool{} // what returns to them has another place to go
	queues := byName(r.Want.Queues, func(q topology.Queue) string { return q.Name })
	for _, have := range r.Have.Queues {
		if _, wanted := queues[have.Name]; wanted {
			continue
		}
		c := deleted(topology.KindQueue, have.Name, have, have.Label)
		c.Stake, c.Hazards = r.stake(have)
		out = append(out, c)
		going[have.Name] = have.Label.Role != topology.RoleUnroutable
	}
	for _, have := range r.Have.Bindings {
		if !wanted[have.Identity()] {
			out = append(out, r.unbinding(have))
		}
	}
	if _, stays := exchanges[topology.ReturnName(r.Want.Name)]; !stays {
		for i, c := range out {
			b, _ := c.Before.(topology.Binding)
			if leadsBack(c.Label) && !leadsTo(b, going) {
				out[i].Rank += rankLeadsBack
			}
		}
	}
	return out
}

// unbinding gives the change that takes a binding away. A binding of a generated
// exchange routes nothing that has not another place to go.
func (r Resolved) unbinding(b topology.Binding) Change {
	c := deleted(topology.KindBinding, b.String(), b, b.Label)
	if !r.generates(b.Source) {
		c.Hazards = []Hazard{DropsRouting}
	}
	return c
}

func deleted(kind topology.Kind, name string, before any, label topology.Label) Change {
	c := Change{Action: Delete, Kind: kind, Name: name, Before: before, Label: label, Reason: "no longer in the file"}
	c.Rank = deletionRank(before)
	return c
}

// The ranks of deletions come after those of all creations, so that messages
// always have somewhere to go, and go the other way: business bindings first.
// The exchange that messages return by, where nothing needs it any more, goes in
// a second round with all that belongs to it: the broker alone knows whether a
// tier is empty, and says so when it is asked to delete it.
const (
	rankUnbind = 20 + iota
	rankDeletePolicy
	rankDeleteQueue
	rankDeleteExchange

	rankLeadsBack = 10 // more than the ranks of the first round
)

func deletionRank(object any) int {
	switch object.(type) {
	case topology.Binding:
		return rankUnbind
	case topology.Policy:
		return rankDeletePolicy
	case topology.Queue:
		return rankDeleteQueue
	default:
		return rankDeleteExchange
	}
}

// replaced gives the change for a queue of ours whose arguments differ: deleted
// and made again if it is empty and unused, else blocked.
func (r Resolved) replaced(have, want topology.Queue, fields []Field) Change {
	c := blocked(topology.KindQueue, want.Name, have, want, want.Label, fields)
	u, hazards := r.stake(have)
	c.Stake = u
	switch owner, ours := topology.Owner(r.marks[have.Name]); {
	case !ours || owner != r.Want.Name:
		return c
	case have.Type() != want.Type() && want.Label.Role != topology.RoleWork:
		c.Reason = "the type of a generated queue cannot be changed while its loop may hold messages: give the queues a new backoff beside the old one, with the new type, and take the old one out when it is empty"
		return c
	case slices.Contains(hazards, LosesMessages) || slices.Contains(hazards, StopsConsumers):
		c.Reason = "the queue must be deleted and made again, and that is done only while it is empty and has no consumers. " + c.Reason
		return c
	}
	c.Action, c.Hazards, c.Rank = Replace, append(hazards, hops(want.Arguments)...), rank(Change{After: want, Label: want.Label})
	c.Reason = "its arguments cannot be changed in place: it is deleted and made again, with its bindings; between the two, messages for it have no queue"
	return c
}

// replacedExchange gives the change for an exchange that differs: deleted and
// made again if it is ours and nothing is bound to it or by it, else blocked.
func (r Resolved) replacedExchange(have, want topology.Exchange, fields []Field) Change {
	c := blocked(topology.KindExchange, want.Name, have, want, want.Label, fields)
	owner, ours := topology.Owner(r.exchangeMarks[have.Name])
	used := slices.ContainsFunc(r.Bindings, func(b topology.Binding) bool {
		return b.Source == have.Name || b.DestinationType == topology.ToExchange && b.Destination == have.Name
	})
	if !ours || owner != r.Want.Name || used || want.Label.Role != topology.RoleBusiness {
		for _, f := range fields {
			if f.Name == "durable" || f.Name == "auto-delete" {
				c.Reason = fmt.Sprintf("the exchange was declared with %s %s, and a topology file has no key for that: declare it with external: true, and it stays as it is", f.Name, topology.FormatValue(f.Before))
			}
		}
		return c
	}
	c.Action, c.Hazards, c.Rank = Replace, []Hazard{DropsRouting}, rank(Change{After: want, Label: want.Label})
	c.Reason = "it cannot be changed in place: it is deleted and made again; between the two, publishers find no exchange"
	return c
}

// rebindings gives the changes that make the bindings of replaced queues again,
// whoever made them: they go with the queue.
func (r Resolved) rebindings(replaced, wanted map[string]bool) []Change {
	var out []Change
	for _, b := range r.Bindings {
		if b.DestinationType != topology.ToQueue || !replaced[b.Destination] {
			continue
		}
		owner, marked := topology.Owner(b.Arguments)
		if marked && owner == r.Want.Name && !wanted[b.Identity()] {
			continue
		}
		label := topology.Label{Role: topology.RoleBusiness, Queue: b.Destination}
		if r.generates(b.Source) {
			label.Role = topology.RoleReturn
		}
		c := created(topology.KindBinding, b.String(), b, label, fieldsOf(b.Arguments))
		c.Reason = "goes with the queue and is made again"
		out = append(out, c)
	}
	return out
}
