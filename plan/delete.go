package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// stake says what deleting a queue would do to whom: the counts, and a hazard
// for each that is not zero.
func (r resolved) stake(q topology.Queue) (*topology.Usage, []topology.Hazard) {
	u := r.usage(q.Name)
	var hazards []topology.Hazard
	if u.Ready+u.Unacknowledged > 0 || q.Type() == topology.Stream { // the broker does not count what is in a stream
		hazards = append(hazards, topology.LosesMessages)
	}
	if u.MayBeConsumed() {
		hazards = append(hazards, topology.StopsConsumers)
	}
	if r.routed[q.Name] && q.Label.Delay == "" { // the exchange of the delay has the hazard
		hazards = append(hazards, topology.DropsRouting)
	}
	return &u, hazards
}

// routedQueues returns the queues to which an exchange leads that is not one of
// the loop.
func (r resolved) routedQueues() map[string]bool {
	routed := map[string]bool{}
	for _, b := range r.bindings {
		if b.DestinationType == topology.ToQueue && !r.generates(b.Source) {
			routed[b.Destination] = true
		}
	}
	return routed
}

// deletions returns the changes that take away what this topology owns and the file no longer
// wants. wanted are the identities of the wanted bindings.
func (r resolved) deletions(wanted map[string]bool) []Change {
	var out []Change
	exchanges := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	foreign := r.foreignBindings()
	for _, have := range r.have.Exchanges {
		if _, wanted := exchanges[have.Name]; wanted {
			continue
		}
		c := deleted(have)
		taken := foreign[c.key()]
		if len(taken) > 0 || have.Label.Role == topology.RoleBusiness {
			c.Hazards = []topology.Hazard{topology.DropsRouting}
		}
		c.Reason += takes(taken)
		out = append(out, c)
	}
	going := map[string]bool{} // what returns to them has another place to go
	queues := namesOf(r.want.Queues, func(q topology.Queue) string { return q.Name })
	for _, have := range r.have.Queues {
		if queues[have.Name] {
			continue
		}
		c := deleted(have)
		c.Delays = r.delays(have)
		c.Stake, c.Hazards = r.stake(have)
		c.Outdated = r.orphans.outdated[have.Name]
		c.Reason += takes(foreign[c.key()])
		if remedy := remedy(c); remedy != "" {
			c.Reason += "; " + remedy
		}
		out = append(out, c)
		going[have.Name] = have.Label.Role != topology.RoleUnroutable
	}
	for i, have := range r.have.Bindings {
		if !wanted[r.haveIDs[i]] {
			out = append(out, r.unbinding(have))
		}
	}
	if _, stays := exchanges[topology.ReturnExchangeName(r.want.Name)]; !stays {
		for i, c := range out {
			b, _ := c.Before.(topology.Binding)
			if leadsBack(c.Label) && !leadsTo(b, going) {
				out[i].ReturnPath = true
				out[i].Phase = deletionPhase(out[i])
			}
		}
	}
	return out
}

// foreignBindings returns the bindings that this topology has not made, by what they
// go with when it is deleted.
func (r resolved) foreignBindings() map[topology.Key][]string {
	out := map[topology.Key][]string{}
	for _, b := range r.bindings {
		if owner, marked := topology.Owner(b.Arguments); marked && owner == r.want.Name {
			continue
		}
		for _, end := range []topology.Key{
			{Kind: topology.KindExchange, Name: b.Source},
			{Kind: topology.Kind(b.DestinationType), Name: b.Destination},
		} {
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
	return "; this also deletes bindings that dlxctl did not create: " + text.Some(bindings)
}

// remedy says what saves the messages of a failed queue that is deleted. It is empty
// for any other change, and for an empty queue.
func remedy(c Change) string {
	if c.Label.Role != topology.RoleFailed || c.Label.Delay != "" || c.Kind != topology.KindQueue || c.Stake == nil ||
		c.Stake.Ready+c.Stake.Unacknowledged == 0 {
		return ""
	}
	return fmt.Sprintf("to keep the messages of %s, first run 'dlxctl process --until-empty' with the file that still has the backoff %s", text.Name(c.Name), text.Name(c.Label.Backoff))
}

// unbinding returns the change that takes a binding away. A binding of a generated
// exchange routes nothing that has not another place to go.
func (r resolved) unbinding(b topology.Binding) Change {
	c := deleted(b)
	if !r.generates(b.Source) {
		c.Hazards, c.Phase = []topology.Hazard{topology.DropsRouting}, phaseUnbind
	}
	return c
}

func deleted(o topology.Object) Change {
	c := Change{
		Action: Delete, Kind: o.Kind(), Name: o.DisplayName(), Before: o, Label: o.Purpose(), Reason: gone,
	}
	c.Phase = deletionPhase(c)
	return c
}

// whileUnused begins the reason of a change of a queue that is in use.
const whileUnused = "the queue must be deleted and created again, which dlxctl does only while it is empty and has no consumers"

// replaced returns the change for a queue whose arguments differ: deleted
// and created again if this topology owns it and it is empty and unused, else blocked.
func (r resolved) replaced(have, want topology.Queue, fields []Field) Change {
	c := blocked(have, want, fields)
	u, hazards := r.stake(have)
	c.Stake, c.Delays = u, r.delays(have)
	switch owner, marked := topology.Owner(r.queueArguments[have.Name]); {
	case !marked || owner != r.want.Name:
		return r.replacing(c, have, want)
	case have.Type() != want.Type() && want.Label.Role != topology.RoleWork:
		c.Reason, c.Immutable, c.Fixes = typeRemedy(have, want), false, nil
		return c
	case slices.Contains(hazards, topology.LosesMessages) || slices.Contains(hazards, topology.StopsConsumers):
		if c = r.replacing(c, have, want); !c.ReplacesQueue() {
			c.Reason, c.Brief = whileUnused+". "+c.Reason, strings.TrimSuffix(whileUnused+"; or "+c.Brief, "; or ")
		}
		return c
	}
	if slices.Contains(hazards, topology.DropsRouting) && slices.Contains(r.want.Replace, want.Name) {
		if c := r.replacing(c, have, want); c.ReplacesQueue() { // which keeps what is routed to it
			return c
		}
	}
	if want.Label.Role != topology.RoleWork && r.bound(have.Name) && !slices.Contains(hazards, topology.DropsRouting) {
		hazards = append(hazards, topology.DropsRouting)
	}
	c.Immutable, c.Fixes = false, nil
	c.Action, c.Hazards, c.Phase = Replace, hazards, creationPhase(Change{After: want, Label: want.Label})
	c.AtMostOnce = deadLettersAtMostOnce(want.Arguments)
	c.Reason = "its arguments cannot be changed in place: the queue is deleted and created again with its bindings; in between, messages for it have no queue"
	return c
}

// bound reports whether any exchange leads to a queue.
func (r resolved) bound(queue string) bool {
	return slices.ContainsFunc(r.bindings, func(b topology.Binding) bool {
		return b.DestinationType == topology.ToQueue && b.Destination == queue
	})
}

// typeRemedy says what to do where defaults.type has changed: generated queues have
// that type, and messages come through them.
func typeRemedy(have, want topology.Queue) string {
	advice := fmt.Sprintf("generated queues have the type of defaults.type, which cannot be changed in place. Shortest fix: set defaults.type: %s again, and type: %s on the work queues", text.Name(have.Type()), text.Name(want.Type()))
	if want.Label.Backoff != "" {
		return advice + "; or give the work queues a backoff with another name, which gets new queues"
	}
	return advice + fmt.Sprintf("; or delete %s manually when it is empty, and run apply again", text.Name(have.Name))
}

// replacedExchange returns the change for an exchange that differs: deleted and
// created again if this topology owns it and nothing is bound to it or by it, else blocked.
func (r resolved) replacedExchange(have, want topology.Exchange, fields []Field) Change {
	c := blocked(have, want, fields)
	owner, marked := topology.Owner(r.exchangeArguments[have.Name])
	used := slices.ContainsFunc(r.bindings, func(b topology.Binding) bool {
		return b.Source == have.Name || b.DestinationType == topology.ToExchange && b.Destination == have.Name
	})
	spare := want.Name == topology.NextExchangeName(topology.FailedExchangeName(r.want.Name)) && len(fields) == 1 &&
		fields[0].Name == topology.ArgAlternateExchange
	if !marked || owner != r.want.Name || used || want.Label.Role != topology.RoleBusiness && !spare {
		for _, f := range fields {
			if f.Name == "durable" || f.Name == "auto-delete" {
				c.Immutable = false
				c.Reason = fmt.Sprintf("the exchange was declared with %s %s, for which topology files have no key; set external: true to keep the exchange as it is", f.Name, topology.FormatValue(f.Before))
			}
		}
		if spare && owner == r.want.Name && r.inReroute(have.Name) {
			way := "with an entry with match, as the file before had"
			if len(r.want.Matches) > 0 {
				way = "without its entries with match"
			}
			c.Immutable, c.Fixes = false, nil
			c.Reason = "a change of the backoff of a queue was interrupted: its failures go by this exchange until that is completed, and match changes the exchange itself. First apply this file " +
				way + ", which completes the change; then apply it as it is"
		}
		return c
	}
	c.Immutable, c.Fixes = false, nil
	c.Action, c.Hazards = Replace, []topology.Hazard{topology.DropsRouting}
	c.Phase = creationPhase(Change{After: want, Label: want.Label})
	c.Reason = "it cannot be changed in place: the exchange is deleted and created again; in between, publishers find no exchange"
	if spare {
		c.Reason = "match changes where failures without an address go, and an exchange cannot be changed in place: it is deleted and created again; in between, a message that fails under an address without a binding has no route"
	}
	return c
}

// inReroute reports whether all bindings of an exchange are left to the reroutes.
func (r resolved) inReroute(exchange string) bool {
	return !slices.ContainsFunc(r.bindings, func(b topology.Binding) bool {
		owner, _ := topology.Owner(b.Arguments)
		return b.DestinationType == topology.ToExchange && b.Destination == exchange ||
			b.Source == exchange && owner != r.want.Name
	})
}

// rebindings returns the changes that make the bindings of replaced queues again,
// foreign ones included: they are deleted with the queue.
func (r resolved) rebindings(replaced, wanted map[string]bool) []Change {
	var out []Change
	for _, b := range r.bindings {
		if b.DestinationType != topology.ToQueue || !replaced[b.Destination] {
			continue
		}
		owner, marked := topology.Owner(b.Arguments)
		if marked && owner == r.want.Name && !wanted[b.Identity()] {
			continue
		}
		b.Label = topology.Label{Role: topology.RoleBusiness, Queue: b.Destination}
		if r.generates(b.Source) {
			b.Label.Role = topology.RoleReturn
		}
		c := created(b)
		c.Reason = "deleted with the queue and created again"
		out = append(out, c)
	}
	return out
}

// rebind adds to the replacements of queues among changes their bindings among rebindings, those
// of the return path first. A queue whose policy changes is bound later: without it, the queue may
// drop what its consumers reject.
func rebind(changes, rebindings, policies []Change) {
	order(rebindings)
	for i, c := range changes {
		attached := func(p Change) bool { return p.After != nil && p.Label.Queue == c.Name }
		if c.Action != Replace || c.Kind != topology.KindQueue || slices.ContainsFunc(policies, attached) {
			continue
		}
		for _, r := range rebindings {
			if b, is := r.After.(topology.Binding); is && b.Destination == c.Name {
				changes[i].Rebinds = append(changes[i].Rebinds, b)
			}
		}
	}
}
