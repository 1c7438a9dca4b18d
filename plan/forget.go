package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// forget adds to what was found the objects that carry our mark and are no
// longer in the file, so that Diff deletes them. A retired tier stays out of it
// as long as messages can wait there: it is unbound at once, and deleted by a
// later apply, when it is empty. What leads its messages back stays as long: at
// their TTL the broker would drop them, or hold them for ever.
func (r *resolver) forget() {
	r.living()
	queues := r.forgotten()
	_, returns := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })[topology.ReturnName(r.want.Name)]
	keeps := len(r.out.Retiring) > 0 && !returns
	going := map[string]bool{}
	for _, q := range queues {
		stays := keeps && leadsBack(q.Label) || r.keptLoop(q.Label)
		going[q.Name] = !stays
		r.out.Have.Queues = append(r.out.Have.Queues, q)
		if stays {
			r.out.Want.Queues = append(r.out.Want.Queues, q)
		}
	}
	exchanges := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, e := range r.state.Have.Exchanges {
		if _, wanted := exchanges[e.Name]; !wanted && r.ours(e.Arguments) && !r.switches(e.Name) && !r.legacy[e.Name] {
			e.Label = r.labelOf(e.Name, topology.RoleBusiness)
			r.out.Have.Exchanges = append(r.out.Have.Exchanges, e)
			if keeps && leadsBack(e.Label) || r.keptLoop(e.Label) || r.keeps(topology.KindExchange, e.Name) {
				r.out.Want.Exchanges = append(r.out.Want.Exchanges, e)
			}
		}
	}
	for _, b := range r.state.Have.Bindings {
		if r.ours(b.Arguments) && !r.wanted[b.Identity()] && !r.switches(b.Source) && !r.switches(b.Destination) && !r.governed(b) {
			b.Label = r.labelOf(b.Source, topology.RoleBusiness)
			r.out.Have.Bindings = append(r.out.Have.Bindings, b)
			if keeps && leadsBack(b.Label) && !leadsTo(b, going) || r.keptLoop(b.Label) && b.Label.Role == topology.RoleRetry || r.keeps(topology.KindBinding, b.Identity()) {
				r.out.Want.Bindings = append(r.out.Want.Bindings, b)
			}
		}
	}
	policies := byName(r.want.Policies, func(p topology.Policy) string { return p.Name })
	for _, p := range r.state.Have.Policies {
		owner, _ := topology.PolicyOwner(p.Name)
		if _, wanted := policies[p.Name]; !wanted && owner == r.want.Name && !r.switches(p.Name) && !r.protects(p.Name) {
			p.Label = topology.Label{Role: topology.RoleWork, Queue: strings.TrimPrefix(p.Name, topology.PolicyName(r.want.Name, ""))}
			r.out.Have.Policies = append(r.out.Have.Policies, p)
			if r.keeps(topology.KindPolicy, p.Name) {
				r.out.Want.Policies = append(r.out.Want.Policies, p)
				continue
			}
			r.out.bared[p.Label.Queue] = r.bares(p.Label.Queue)
		}
	}
	r.ghosts(policies)
}

// forgotten gives the queues that carry our mark and are no longer in the file,
// and notes which of them are retired tiers that stay.
func (r *resolver) forgotten() []topology.Queue {
	var out []topology.Queue
	queues := byName(r.want.Queues, func(q topology.Queue) string { return q.Name })
	bound := map[string]bool{}
	for _, b := range r.state.Have.Bindings {
		bound[b.Destination] = bound[b.Destination] || b.DestinationType == topology.ToQueue
	}
	for _, q := range r.state.Have.Queues { // first: they say which tiers stay
		if _, wanted := queues[q.Name]; !wanted && r.ours(q.Arguments) && !r.keeps(topology.KindQueue, q.Name) {
			r.retireFailed(q)
		}
	}
	for _, q := range r.state.Have.Queues {
		if _, wanted := queues[q.Name]; wanted || !r.ours(q.Arguments) {
			continue
		}
		q.Label = r.labelOf(q.Name, topology.RoleWork)
		if r.keeps(topology.KindQueue, q.Name) {
			r.out.Have.Queues = append(r.out.Have.Queues, q)
			r.out.Want.Queues = append(r.out.Want.Queues, q)
			r.out.Staying = append(r.out.Staying, q)
			continue
		}
		if r.keptLoop(q.Label) {
			out = append(out, q)
			continue
		}
		if q.Label.Role == topology.RoleRetry && r.retiring(q, bound[q.Name]) {
			continue
		}
		out = append(out, q)
	}
	return out
}

// retireFailed notes a failed queue whose backoff is no longer in the file, and that
// cannot be deleted now: it holds messages, a processor with an older file reads it, or
// failures still go there. Until it can be, all of its loop stays: such a processor sends
// messages to its tiers, and a tier that lets go of one too early would make it a dead
// letter.
func (r *resolver) retireFailed(q topology.Queue) {
	backoff, is := topology.FailedBackoff(r.want.Name, q.Name)
	u := r.state.Usage[q.Name]
	bound := slices.ContainsFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
		return b.Destination == q.Name && b.DestinationType == topology.ToQueue && r.governed(b)
	})
	held := u.Ready + u.Unacknowledged
	goes := !slices.ContainsFunc(r.want.Exchanges, func(e topology.Exchange) bool { return e.Name == topology.FailedExchangeName(r.want.Name) })
	if !is || goes || // without a queue in the file there is nobody to hand its messages to
		held == 0 && u.Consumers == 0 && !bound {
		return
	}
	text := fmt.Sprintf("the failed queue %s is no longer in the file", display(q.Name))
	switch {
	case u.Consumers > 0:
		text += fmt.Sprintf(", and %s with an older file still %s it; restart them with the new file", countOf(int(u.Consumers), "processor"), verb(u.Consumers, "reads", "read"))
	case held > 0:
		text += fmt.Sprintf(" and holds %s; apply hands them on to the backoff that their queue has now", countOf(int(held), "message"))
	default:
		text += "; failures go there until apply has changed their way"
	}
	r.warn("retired-backoff", text+"; run apply again then, or now with --wait, to delete it")
	r.out.Retiring = append(r.out.Retiring, q.Name)
	r.loops[backoff] = true
}

// verb gives the form of a verb that goes with a number.
func verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// keptLoop reports whether an object belongs to the loop of a backoff whose failed queue
// is not deleted yet.
func (r *resolver) keptLoop(l topology.Label) bool {
	return (l.Role == topology.RoleFailed || l.Role == topology.RoleRetry) && r.loops[l.Backoff]
}

// leadsBack reports whether a message that left a tier goes through what has
// this label: to its queue, or to the place for what has no queue any more.
func leadsBack(l topology.Label) bool {
	return l.Role == topology.RoleReturn || l.Role == topology.RoleUnroutable
}

// leadsTo reports whether b ends at one of queues.
func leadsTo(b topology.Binding, queues map[string]bool) bool {
	return b.DestinationType == topology.ToQueue && queues[b.Destination]
}

// ghosts adds to what was found the policies of ours that are gone from the broker's
// list and still in force. All that is known of them is the name and the queue.
func (r *resolver) ghosts(wanted map[string]topology.Policy) {
	listed := byName(r.state.Have.Policies, func(p topology.Policy) string { return p.Name })
	for queue, name := range r.state.InForce {
		_, isWanted := wanted[name]
		_, isListed := listed[name]
		if name == topology.PolicyName(r.want.Name, queue) && !isWanted && !isListed {
			r.out.Have.Policies = append(r.out.Have.Policies, topology.Policy{Name: name, Label: topology.Label{Role: topology.RoleWork, Queue: queue}})
		}
	}
}

// retiring reports whether messages wait in a retired tier, or can still come to
// it, and says so. The counts that it goes by are up to 5 seconds old: a tier
// that is bound now is deleted by a later apply.
func (r *resolver) retiring(q topology.Queue, bound bool) bool {
	u := r.state.Usage[q.Name]
	if u.Ready+u.Unacknowledged == 0 && !bound {
		return false
	}
	text := fmt.Sprintf("the tier %s is no longer in the file and holds %d messages", display(q.Name), u.Ready+u.Unacknowledged)
	if bound {
		text += ", or a few more: the broker counts every 5 seconds"
	}
	if ttl, ok := q.Arguments[topology.ArgMessageTTL].(int64); ok {
		text += fmt.Sprintf("; the last leaves within %s", formatMillis(ttl))
	}
	r.out.Warnings = append(r.out.Warnings, Warning{Name: "retired-tier", Text: text + "; run apply again then, or now with --wait, to delete it"})
	r.out.Retiring = append(r.out.Retiring, q.Name)
	return true
}

// switches reports whether an exchange or policy is that of a migration under
// way, which alone takes it away.
func (r *resolver) switches(name string) bool { return topology.IsSwitchName(r.want.Name, name) }

// ours reports whether args carry the mark of the wanted topology.
func (r *resolver) ours(args topology.Arguments) bool {
	owner, ok := topology.Owner(args)
	return ok && owner == r.want.Name
}

// governed reports whether a binding leads failures, and NextReroutes sees to it.
func (r *resolver) governed(b topology.Binding) bool {
	main, next := topology.FailedExchangeName(r.want.Name), topology.NextFailedExchangeName(r.want.Name)
	return (b.Source == main || b.Source == next) && r.rerouted[b.Key] || r.legacy[b.Source]
}

// labelOf says by its name what an object is for that is not in the file, role
// for one that was declared.
func (r *resolver) labelOf(name string, role topology.Role) topology.Label {
	switch {
	case name == topology.UnroutableName(r.want.Name):
		return topology.Label{Role: topology.RoleUnroutable}
	case name == topology.DeadName(r.want.Name):
		return topology.Label{Role: topology.RoleDead}
	case name == topology.ReturnName(r.want.Name):
		return topology.Label{Role: topology.RoleReturn}
	case name == topology.FailedExchangeName(r.want.Name) || name == topology.NextFailedExchangeName(r.want.Name):
		return topology.Label{Role: topology.RoleFailed}
	case strings.HasSuffix(name, ".dead"):
		return topology.Label{Role: topology.RoleDead, Queue: strings.TrimSuffix(name, ".dead")}
	case topology.IsRetryQueueName(r.want.Name, name):
		return topology.Label{Role: topology.RoleRetry, Backoff: backoffOf(r.want.Name, name)}
	case strings.HasPrefix(name, r.want.Name+".") && strings.HasSuffix(name, ".failed"):
		return topology.Label{Role: topology.RoleFailed, Backoff: backoffOf(r.want.Name, name)}
	case strings.HasPrefix(name, r.want.Name+".") && strings.HasSuffix(name, ".dlx"):
		return topology.Label{Role: topology.RoleRetry, Backoff: backoffOf(r.want.Name, name)}
	default:
		return topology.Label{Role: role, Queue: name}
	}
}

// backoffOf gives the backoff in a generated name.
func backoffOf(top, name string) string {
	backoff, _, _ := strings.Cut(strings.TrimPrefix(name, top+"."), ".")
	return backoff
}

// drift lists what nobody declared and what touches ours: bindings without a
// mark that end at a queue of the file or start at a generated exchange.
func (r *resolver) drift() {
	queues := map[string]bool{}
	for _, q := range r.want.Queues {
		queues[q.Name] = true
	}
	generated := map[string]bool{}
	for _, e := range r.want.Exchanges {
		generated[e.Name] = e.Label.Role != topology.RoleBusiness
	}
	var unmarked []topology.Binding
	for _, b := range r.state.Have.Bindings {
		_, marked := topology.Owner(b.Arguments)
		atOurs := b.DestinationType == topology.ToQueue && queues[b.Destination] || generated[b.Source]
		if !marked && atOurs {
			unmarked = append(unmarked, b)
		}
	}
	if len(unmarked) == 0 {
		return // as a rule: what is wanted need not be gone through
	}
	wanted := map[string]bool{}
	for _, b := range r.want.Bindings {
		b.Arguments = b.Arguments.Without(topology.ArgManagedBy)
		wanted[b.Identity()] = true
	}
	for _, b := range unmarked {
		if !wanted[b.Identity()] {
			r.out.Drift = append(r.out.Drift, b)
		}
	}
}

// Later gives what is left to do after done was carried out, without what only
// time can bring: a tier that was unbound just now is deleted by a later apply,
// once the counts of the broker can show that it is empty, and with it what
// leads its messages back.
func Later(done, left Plan) Plan {
	deleted := map[topology.Key]bool{}
	for _, c := range done.Changes {
		if c.Action == Delete {
			deleted[c.key()] = true
		}
	}
	retired := map[string]bool{} // backoffs whose failed queue the plan has left
	for _, name := range done.Retiring {
		if backoff, is := topology.FailedBackoff(done.Topology, name); is {
			retired[backoff] = true
		}
	}
	out := left
	out.Changes = nil
	waits := false
	for _, c := range left.Changes { // what leads back comes behind the tiers
		switch tier := c.Action == Delete && c.Kind == topology.KindQueue && c.Label.Role == topology.RoleRetry; {
		case c.Action == Delete && retired[c.Label.Backoff] && (c.Label.Role == topology.RoleFailed || c.Label.Role == topology.RoleRetry):
			if c.Kind == topology.KindQueue {
				out.Retiring = append(out.Retiring, c.Name)
			}
		case tier && !deleted[c.key()]:
			waits = true
			out.Retiring = append(out.Retiring, c.Name)
		case waits && c.LeadsBack() && !deleted[c.key()]:
		default:
			out.Changes = append(out.Changes, c)
		}
	}
	return out
}
