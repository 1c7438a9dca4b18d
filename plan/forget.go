package plan

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// forget adds to what was found the objects that carry our mark and are no
// longer in the file, so that Diff deletes them. A retired tier stays out of it
// as long as messages can wait there: it is unbound at once, and deleted by a
// later apply, when it is empty.
func (r *resolver) forget() {
	exchanges := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, e := range r.state.Have.Exchanges {
		if _, wanted := exchanges[e.Name]; !wanted && r.ours(e.Arguments) && !r.switches(e.Name) {
			e.Label = r.labelOf(e.Name, topology.RoleBusiness)
			r.out.Have.Exchanges = append(r.out.Have.Exchanges, e)
		}
	}
	for _, b := range r.state.Have.Bindings {
		if r.ours(b.Arguments) && !r.wanted[b.Identity()] && !r.switches(b.Source) && !r.switches(b.Destination) {
			b.Label = r.labelOf(b.Source, topology.RoleBusiness)
			r.out.Have.Bindings = append(r.out.Have.Bindings, b)
		}
	}
	policies := byName(r.want.Policies, func(p topology.Policy) string { return p.Name })
	for _, p := range r.state.Have.Policies {
		owner, _ := topology.PolicyOwner(p.Name)
		if _, wanted := policies[p.Name]; !wanted && owner == r.want.Name && !r.switches(p.Name) {
			p.Label = topology.Label{Role: topology.RoleWork, Queue: strings.TrimPrefix(p.Name, topology.PolicyName(r.want.Name, ""))}
			r.out.Have.Policies = append(r.out.Have.Policies, p)
			r.out.bared[p.Label.Queue] = r.bares(p.Label.Queue)
		}
	}
	r.ghosts(policies)
	queues := byName(r.want.Queues, func(q topology.Queue) string { return q.Name })
	bound := map[string]bool{}
	for _, b := range r.state.Have.Bindings {
		bound[b.Destination] = bound[b.Destination] || b.DestinationType == topology.ToQueue
	}
	for _, q := range r.state.Have.Queues {
		if _, wanted := queues[q.Name]; wanted || !r.ours(q.Arguments) {
			continue
		}
		q.Label = r.labelOf(q.Name, topology.RoleWork)
		if q.Label.Role == topology.RoleRetry && r.retiring(q, bound[q.Name]) {
			continue
		}
		r.out.Have.Queues = append(r.out.Have.Queues, q)
	}
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
// once the counts of the broker can show that it is empty.
func Later(done, left Plan) Plan {
	deleted := map[string]bool{}
	for _, c := range done.Changes {
		deleted[c.Name] = deleted[c.Name] || c.Action == Delete && c.Kind == topology.KindQueue
	}
	out := left
	out.Changes = nil
	for _, c := range left.Changes {
		if c.Action == Delete && c.Kind == topology.KindQueue && c.Label.Role == topology.RoleRetry && !deleted[c.Name] {
			out.Retiring = append(out.Retiring, c.Name)
			continue
		}
		out.Changes = append(out.Changes, c)
	}
	return out
}
