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
	if u.mayBeConsumed() {
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
	sources := map[string]bool{} // exchanges that lead somewhere
	for _, b := range r.Bindings {
		sources[b.Source] = true
	}
	foreign := r.foreignBindings()
	for _, have := range r.Have.Exchanges {
		if _, wanted := exchanges[have.Name]; wanted {
			continue
		}
		c := deleted(topology.KindExchange, have.Name, have, have.Label)
		taken := foreign[c.key()]
		if len(taken) > 0 || have.Label.Role == topology.RoleBusiness && sources[have.Name] {
			c.Hazards = []Hazard{DropsRouting}
		}
		c.Reason += takes(taken)
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
		c.Reason += takes(foreign[c.key()])
		if remedy := remedy(c); remedy != "" {
			c.Reason += "; " + remedy
		}
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

// foreignBindings gives the bindings that this topology has not made, by what they
// go with when it is deleted.
func (r Resolved) foreignBindings() map[topology.Key][]string {
	out := map[topology.Key][]string{}
	for _, b := range r.Bindings {
		if owner, marked := topology.Owner(b.Arguments); marked && owner == r.Want.Name {
			continue
		}
		for _, end := range []topology.Key{{Kind: topology.KindExchange, Name: b.Source}, {Kind: topology.Kind(b.DestinationType), Name: b.Destination}} {
			out[end] = append(out[end], topology.Printable(b.String()))
		}
	}
	return out
}

// takes names the bindings of others that a deletion takes along.
func takes(bindings []string) string {
	if len(bindings) == 0 {
		return ""
	}
	return "; it takes along what others have bound: " + some(bindings)
}

// remedy says what saves the messages of a failed queue that is deleted. It is empty
// for any other change, and for an empty queue.
func remedy(c Change) string {
	if c.Label.Role != topology.RoleFailed || c.Kind != topology.KindQueue || c.Stake == nil || c.Stake.Ready+c.Stake.Unacknowledged == 0 {
		return ""
	}
	return fmt.Sprintf("to keep the messages of %s, first run 'dlxctl process --until-empty' with the file that still has the backoff %s", display(c.Name), display(c.Label.Backoff))
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
	c.Rank = deletionRank(before, label)
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
	rankUnbindFailures // what a work queue rejects has its way until the queue is gone
	rankDeleteFailed   // failed queues
	rankDeleteExchange

	rankLeadsBack = 10 // more than the ranks of the first round

	// rankReroute is that of a change of where failures go: what it leads to is there,
	// and what it leads away from is deleted afterwards.
	rankReroute = 15
)

func deletionRank(object any, label topology.Label) int {
	failed := label.Role == topology.RoleFailed
	switch object.(type) {
	case topology.Binding:
		if failed {
			return rankUnbindFailures
		}
		return rankUnbind
	case topology.Policy:
		return rankDeletePolicy
	case topology.Queue:
		if failed {
			return rankDeleteFailed
		}
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
		c.Reason = typeRemedy(have, want)
		return c
	case slices.Contains(hazards, LosesMessages) || slices.Contains(hazards, StopsConsumers):
		c.Reason = "the queue must be deleted and made again, and that is done only while it is empty and has no consumers. " + c.Reason
		return c
	}
	if want.Label.Role != topology.RoleWork && r.bound(have.Name) && !slices.Contains(hazards, DropsRouting) {
		hazards = append(hazards, DropsRouting)
	}
	c.Action, c.Hazards, c.Rank = Replace, append(hazards, hops(want.Arguments)...), rank(Change{After: want, Label: want.Label})
	c.Reason = "its arguments cannot be changed in place: it is deleted and made again, with its bindings; between the two, messages for it have no queue"
	return c
}

// bound reports whether any exchange leads to a queue.
func (r Resolved) bound(queue string) bool {
	return slices.ContainsFunc(r.Bindings, func(b topology.Binding) bool {
		return b.DestinationType == topology.ToQueue && b.Destination == queue
	})
}

// typeRemedy says what to do where defaults.type has changed: generated queues have
// that type, and messages come through them.
func typeRemedy(have, want topology.Queue) string {
	text := fmt.Sprintf("the type of a generated queue is defaults.type, and it cannot be changed in place. Shortest: write defaults.type: %s again, and type: %s at the work queues", display(have.Type()), display(want.Type()))
	if want.Label.Backoff != "" {
		return text + "; or give the work queues a backoff of another name, whose queues are made anew"
	}
	return text + fmt.Sprintf("; or delete %s by hand when it is empty, and apply again", display(have.Name))
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
