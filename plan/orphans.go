package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// orphans are the objects that carry the owner mark of this topology and are no longer
// in the file.
type orphans struct {
	*resolver
	findings

	routes  rerouting
	matched matchedBindings

	// found are the objects, and stay are those of them that are still needed.
	found, stay topology.Topology
	// retired are the retired tiers and failed queues that are deleted once they are empty and not
	// read, and stillRead those of them that have consumers.
	retired, stillRead []string
	// retiredDead are the previous dead-letter queues that are deleted once they are empty.
	retiredDead []string
	// staying are queues that stay for a legacy queue that dlxctl made.
	staying []topology.Queue
	// losesDLX are the queues that are without dead-lettering once a policy is gone, by its name.
	losesDLX map[string][]string
	// lost is what leaves the queues that stay when a policy goes, by its name.
	lost map[string]losses

	tiers map[string][]retiredTier // the tiers among retired, by backoff
	waits map[string]int64         // the delays that are no longer in the file and have messages; see delays
	loops map[string]bool          // the backoffs whose failed queue is retired and stays; see retireFailed
	kept  map[topology.Key]bool    // what queues still need that the file does not have; see living
	// outdated are the previous dead-letter queues that are deleted.
	outdated map[string]bool
}

func (r *resolver) orphans(routes rerouting, matched matchedBindings) *orphans {
	out := &orphans{
		resolver: r, routes: routes, matched: matched,
		losesDLX: map[string][]string{}, lost: map[string]losses{}, loops: map[string]bool{}, kept: map[topology.Key]bool{},
		outdated: map[string]bool{},
	}
	out.collect()
	return out
}

// collect adds to what was found the objects that carry our mark and are no
// longer in the file, so that diff deletes them. A retired tier stays out of it
// as long as messages can wait there: it is unbound at once, and deleted by a
// later apply, when it is empty. What leads its messages back stays as long: at
// their TTL the broker would drop them, or hold them forever. So does the exchange of a queue
// for outages: a processor with an older file that publishes to an exchange which is gone
// loses its channel, and copies what is in flight there. To one without a binding it
// publishes once, and then no more for a while.
func (r *orphans) collect() {
	r.living()
	r.delays()
	queues := r.queues()
	r.warnOfTiers()
	_, returns := byName(r.want.Exchanges,
		func(e topology.Exchange) string { return e.Name })[topology.ReturnExchangeName(r.want.Name)]
	keeps := len(r.retired) > 0 && !returns
	going := map[string]bool{}
	for _, q := range queues {
		stays := keeps && leadsBack(q.Label) || r.keptLoop(q.Label)
		going[q.Name] = !stays
		r.found.Queues = append(r.found.Queues, q)
		if stays {
			r.stay.Queues = append(r.stay.Queues, q)
		}
	}
	exchanges := byName(r.want.Exchanges, func(e topology.Exchange) string { return e.Name })
	for _, e := range r.state.Have.Exchanges {
		if _, wanted := exchanges[e.Name]; !wanted && r.owns(e.Arguments) && !r.switches(e.Name) {
			e.Label = r.exchangeLabel(e.Name)
			r.found.Exchanges = append(r.found.Exchanges, e)
			if keeps && leadsBack(e.Label) || r.keptLoop(e.Label) || r.waits[e.Name] > 0 ||
				r.keeps(topology.KindExchange, e.Name) ||
				slices.Contains(r.retired, e.Name) {
				r.stay.Exchanges = append(r.stay.Exchanges, e)
			}
		}
	}
	var leaving, to []string // addresses of queues that are no longer work queues, and where they lead; see returns
	var lost []string        // addresses of queues that are deleted
	found := namesOf(r.found.Queues, func(q topology.Queue) string { return q.Name })
	circulates := sync.OnceValue(func() bool { return r.circulates(nil) })
	// What retired failed queues hold has a warning of its own: see withoutRetries.
	unsaid := sync.OnceValue(func() bool { return (returns || keeps) && r.circulates(r.loops) })
	for i, b := range r.state.Have.Bindings {
		id := r.matched.ids[i]
		if r.owns(b.Arguments) && !r.matched.wanted[id] && !r.switches(b.Source) && !r.switches(b.Destination) &&
			!r.routes.governs(b) {
			b.Label = r.exchangeLabel(b.Source)
			r.found.Bindings = append(r.found.Bindings, b)
			if returns && !found[b.Destination] && r.returns(b) && circulates() {
				leaving, to = append(leaving, text.Name(addressed(b))), append(to, text.Name(b.Destination))
				r.stay.Bindings = append(r.stay.Bindings, b)
				continue
			}
			if leadsTo(b, going) && r.returns(b) && unsaid() {
				lost = append(lost, text.Name(addressed(b)))
			}
			if keeps && leadsBack(b.Label) && !leadsTo(b, going) || r.keptLoop(b.Label) &&
				b.Label.Role == topology.RoleRetry || r.waits[b.Source] > 0 || r.waits[b.Label.Delay] > 0 ||
				r.keeps(topology.KindBinding, id) || b.DestinationType == topology.ToQueue && r.abandoned(b.Destination) {
				r.stay.Bindings = append(r.stay.Bindings, b)
			}
		}
	}
	r.warnOfAddresses(leaving, to)
	r.warnOfUnroutable(lost)
	policies := byName(r.want.Policies, func(p topology.Policy) string { return p.Name })
	for _, p := range r.state.Have.Policies {
		owner, _ := topology.PolicyOwner(p.Name)
		if _, wanted := policies[p.Name]; !wanted && owner == r.want.Name && !r.switches(p.Name) && !r.protects(p.Name) {
			p.Label = topology.Label{Role: topology.RoleWork, Queue: strings.TrimPrefix(p.Name,
				topology.PolicyName(r.want.Name, ""))}
			r.found.Policies = append(r.found.Policies, p)
			if r.keeps(topology.KindPolicy, p.Name) || r.abandoned(p.Label.Queue) {
				r.stay.Policies = append(r.stay.Policies, p)
				continue
			}
			if topology.IsMatchPolicyName(r.want.Name, p.Name) {
				p.Label.Queue = p.Pattern
			}
			r.detach(p)
		}
	}
	r.orphanedPolicies(policies)
}

// warnOfAddresses warns of the addresses of queues that stay, each of which leads to the queue at
// its place in to.
func (r *orphans) warnOfAddresses(queues, to []string) {
	if len(queues) == 0 {
		return
	}
	home := text.Choose(len(queues), "it", "them")
	if !slices.Equal(queues, to) {
		home = text.Some(to)
	}
	r.warn(topology.WarnRetiredAddress, fmt.Sprintf(
		"%s %s no longer covered by the file, and failed messages may still be waiting for a retry: they return to %s; when the tiers are empty, run apply again to remove %s",
		text.Some(queues), text.Choose(len(queues), "is", "are"), home,
		text.Choose(len(queues), "its address", "their addresses")))
}

// warnOfUnroutable warns of the addresses of queues that are deleted. An address does not help
// without its queue, and the exchange that returns messages has another place for what waits.
func (r *orphans) warnOfUnroutable(queues []string) {
	if len(queues) == 0 {
		return
	}
	n := len(queues)
	r.warn(topology.WarnUnroutableRetries, fmt.Sprintf(
		"%s %s deleted, and failed messages of %s may still be waiting for a retry: they go to %s; to have them retried first, keep %s without bindings until the retries are done",
		text.Some(queues), text.Choose(n, "is", "are"), text.Choose(n, "it", "them"),
		text.Name(topology.UnroutableName(r.want.Name)), text.Choose(n, "the queue", "the queues")))
}

// queues returns the queues that carry our mark and are no longer in the file,
// and notes which of them are retired tiers that stay.
func (r *orphans) queues() []topology.Queue {
	var out []topology.Queue
	queues := namesOf(r.want.Queues, func(q topology.Queue) string { return q.Name })
	bound := map[string]bool{}
	for _, b := range r.state.Have.Bindings {
		bound[b.Destination] = bound[b.Destination] || b.DestinationType == topology.ToQueue
	}
	for _, q := range r.state.Have.Queues { // first: they say which tiers stay
		if !queues[q.Name] && r.owns(q.Arguments) && !r.keeps(topology.KindQueue, q.Name) {
			r.retireFailed(q)
		}
	}
	for _, q := range r.state.Have.Queues {
		if queues[q.Name] || !r.owns(q.Arguments) {
			continue
		}
		q.Label = r.queueLabel(q.Name, topology.RoleWork)
		if r.keeps(topology.KindQueue, q.Name) || r.unfinished(q.Name) {
			r.found.Queues = append(r.found.Queues, q)
			r.stay.Queues = append(r.stay.Queues, q)
			r.staying = append(r.staying, q)
			continue
		}
		if r.keptLoop(q.Label) {
			out = append(out, q)
			continue
		}
		if q.Label.Delay != "" && r.retiresLevel(q, bound[q.Name]) {
			continue
		}
		if q.Label.Delay == "" && q.Label.Role == topology.RoleRetry && r.retires(q, bound[q.Name]) {
			continue
		}
		if r.previousDeadLetterQueue(q) {
			if r.retiresDeadLetters(q) {
				continue
			}
			if !r.namedDeadLetterQueue(q.Name) { // its name is one of the file
				q.Label = topology.Label{Role: topology.RoleDeadLetter}
			}
			r.outdated[q.Name] = true
		}
		out = append(out, q)
	}
	return out
}

// retireFailed notes a failed queue whose backoff is no longer in the file, and that
// cannot be deleted now: it holds messages, a processor with an older file reads it, or
// failures still go there. Until it can be, all of its loop stays: such a processor sends
// messages to its tiers, and a tier that lets go of one too early would turn it
// into a dead letter.
func (r *orphans) retireFailed(q topology.Queue) {
	backoff, is := topology.FailedBackoff(r.want.Name, q.Name)
	goes := !slices.ContainsFunc(r.want.Exchanges, func(e topology.Exchange) bool {
		return e.Name == topology.FailedExchangeName(r.want.Name)
	})
	if !is || goes || r.working[q.Name] { // without a work queue in the file its messages have no other backoff
		return
	}
	u := r.usage(q.Name)
	bound := slices.ContainsFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
		return b.Destination == q.Name && b.DestinationType == topology.ToQueue && r.routes.governs(b)
	})
	held := u.Ready + u.Unacknowledged
	if held == 0 && u.Consumers == 0 && !bound {
		return
	}
	why := fmt.Sprintf("the failed queue %s is no longer declared", text.Name(q.Name))
	switch {
	case u.Consumers > 0:
		why += fmt.Sprintf(", and %s with an older file still %s it; restart them with the new file",
			text.Count(u.Consumers, "processor"), text.Choose(u.Consumers, "reads", "read"))
		if dying, _ := r.notRetried(q.Name); len(dying) > 0 {
			why += " once it is empty: apply makes dead letters of what it holds of " + text.Some(dying)
		}
	case held > 0:
		why += fmt.Sprintf(" and holds %s; apply moves %s to the current backoff of %s queue", text.Count(held,
			"message"), text.Choose(held, "it", "them"), text.Choose(held, "its", "their")) +
			r.withoutRetries(q.Name, backoff)
	default:
		why += "; failures go there until apply has rerouted them"
	}
	r.warn(topology.WarnRetiredBackoff, why+"; to delete it, run apply again after that, or pass --wait to wait for that")
	r.retired = append(r.retired, q.Name)
	if u.Consumers > 0 {
		r.stillRead = append(r.stillRead, q.Name)
	}
	r.loops[backoff] = true
}

// withoutRetries says which messages of a retired failed queue get no retry when they are handed
// over, and how they would. It is empty if all get one.
func (r *orphans) withoutRetries(failed, backoff string) string {
	dying, gone := r.notRetried(failed)
	var out string
	if len(dying) > 0 {
		out = fmt.Sprintf("; those of %s, whose backoff is none or native, become dead letters", text.Some(dying))
	}
	switch {
	case len(gone) > 0:
		out += fmt.Sprintf("; those of %s, which the file no longer has, go to %s. To have these retried first, run 'dlxctl process --until-empty' with the file that has the backoff %s, and apply once its tiers are empty",
			text.Some(gone), text.Name(topology.UnroutableName(r.want.Name)), text.Name(backoff))
	case len(dying) > 0: // what comes back from a tier fails by the new backoff: the tiers may hold messages
		out += fmt.Sprintf(". To have these retried first, run 'dlxctl process' with the file that has the backoff %s until %s is empty, also during apply",
			text.Name(backoff), text.Name(failed))
	}
	return out
}

// notRetried names the queues whose messages in a failed queue get no retry when they are handed
// over: dying are those of the file whose failures are dead letters at once, and gone those that
// have no other place in the file, as no binding of the failed exchange takes their failures. Once
// no address leads to the failed queue, it may hold messages of any of dying.
func (r *orphans) notRetried(failed string) (dying, gone []string) {
	exchange, bound := topology.FailedExchangeName(r.want.Name), false
	for i, b := range r.state.Have.Bindings {
		name := addressed(b)
		if b.Destination != failed || name == "" || r.keeps(topology.KindBinding, r.matched.ids[i]) ||
			b.Source != exchange && b.Source != topology.NextExchangeName(exchange) {
			continue
		}
		bound = true
		w, works := r.works[name]
		switch {
		case works && !r.want.Processed(w):
			dying = append(dying, text.Name(name))
		case !works && len(r.want.Matches) == 0: // a match takes what has no binding
			gone = append(gone, text.Name(name))
		}
	}
	if !bound {
		for _, w := range r.want.WorkQueues {
			if !r.want.Processed(w) {
				dying = append(dying, text.Name(w.Name))
			}
		}
	}
	slices.Sort(dying)
	slices.Sort(gone)
	return slices.Compact(dying), slices.Compact(gone)
}

// keptLoop reports whether an object belongs to the loop of a backoff whose failed queue
// is not deleted yet.
func (r *orphans) keptLoop(l topology.Label) bool {
	return r.waits[l.Delay] > 0 || (l.Role == topology.RoleFailed || l.Role == topology.RoleRetry) && r.loops[l.Backoff]
}

// returns reports whether a message that waits comes back by b to its queue, which stays and whose
// failures the file no longer covers; or to the legacy queue of its queue, after the abort of a
// migration. The address of the legacy queue of a migration is left to living.
func (r *orphans) returns(b topology.Binding) bool {
	if b.Source != topology.ReturnExchangeName(r.want.Name) || b.DestinationType != topology.ToQueue {
		return false
	}
	queue := addressed(b)
	_, works := r.works[queue]
	return queue != "" && (queue == b.Destination || !works) &&
		!slices.ContainsFunc(r.want.WorkQueues, func(w topology.WorkQueue) bool { return w.Replaces == queue })
}

// addressed returns the queue whose address is the key of a binding. Empty: it is none.
func addressed(b topology.Binding) string {
	queue, is := strings.CutPrefix(b.Key, topology.AddressKey(""))
	if !is {
		return ""
	}
	return queue
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

// orphanedPolicies adds to what was found the policies of this topology that are gone from
// the broker's list and still in effect. All that is known of them is the name and the queue.
func (r *orphans) orphanedPolicies(wanted map[string]topology.Policy) {
	listed := byName(r.state.Have.Policies, func(p topology.Policy) string { return p.Name })
	seen := map[string]bool{} // one of a match is in effect on several queues
	for _, queue := range slices.Sorted(maps.Keys(r.state.QueuePolicies)) {
		name := r.state.QueuePolicies[queue]
		_, isWanted := wanted[name]
		_, isListed := listed[name]
		own := name == topology.PolicyName(r.want.Name, queue) || topology.IsMatchPolicyName(r.want.Name, name)
		if own && !isWanted && !isListed && !seen[name] {
			seen[name] = true
			r.found.Policies = append(r.found.Policies, topology.Policy{
				Name:  name,
				Label: topology.Label{Role: topology.RoleWork, Queue: queue},
			})
		}
	}
}

// retires reports whether messages wait in a retired tier, or can still come to
// it, and notes it. The counts that it goes by are up to 5 seconds old: a tier
// that is bound now is deleted by a later apply.
func (r *orphans) retires(q topology.Queue, bound bool) bool {
	held := r.held(q.Name)
	if held == 0 && !bound {
		return false
	}
	tier := retiredTier{name: q.Name, messages: held, bound: bound}
	tier.ttl, _ = q.Arguments[topology.ArgMessageTTL].(int64)
	if r.tiers == nil {
		r.tiers = map[string][]retiredTier{}
	}
	r.tiers[q.Label.Backoff] = append(r.tiers[q.Label.Backoff], tier)
	r.retired = append(r.retired, q.Name)
	return true
}

// retiredTier is a tier that is no longer in the file and stays until it is empty.
type retiredTier struct {
	name     string
	messages int64
	bound    bool  // failed messages could still come to it when the broker was read
	ttl      int64 // in milliseconds
}

// countAge says that messages may have come to a queue since the broker counted them.
const countAge = " (counts are up to 5s old)"

// warnOfTiers warns of retired tiers that stay, once for each backoff.
func (r *orphans) warnOfTiers() {
	for _, backoff := range slices.Sorted(maps.Keys(r.tiers)) {
		tiers := r.tiers[backoff]
		slices.SortFunc(tiers, func(a, b retiredTier) int { return cmp.Compare(a.ttl, b.ttl) })
		var total retiredTier
		var delays []string
		for _, tier := range tiers {
			total.messages += tier.messages
			total.bound = total.bound || tier.bound
			total.ttl = max(total.ttl, tier.ttl)
			delays = append(delays, text.Millis(tier.ttl))
		}
		line := fmt.Sprintf("the tier %s is no longer declared and stays until it is empty; it holds ",
			text.Name(tiers[0].name))
		if len(tiers) > 1 {
			line = fmt.Sprintf("%d tiers of the backoff %s (%s) are no longer declared and stay until they are empty; they hold ",
				len(tiers), text.Name(backoff), strings.Join(delays, ", "))
		}
		line += text.Count(total.messages, "message")
		when := ""
		if total.bound {
			line += countAge
			when = text.Choose(len(tiers), "once it is unbound, ", "once they are unbound, ")
		}
		if total.ttl > 0 {
			line += "; " + when + "the last message leaves within " + text.Millis(total.ttl) +
				", or later if a work queue is full"
		}
		r.warn(topology.WarnRetiredTier, line+"; to delete "+text.Choose(len(tiers), "it", "them")+
			", run apply again after that, or pass --wait to wait for that")
	}
}

// switches reports whether an exchange or policy is that of a migration under
// way, which alone takes it away.
func (r *resolver) switches(name string) bool { return topology.IsSwitchName(r.want.Name, name) }

// owns reports whether args carry the owner mark of the wanted topology.
func (r *resolver) owns(args topology.Arguments) bool {
	owner, ok := topology.Owner(args)
	return ok && owner == r.want.Name
}

// queueLabel says by its name what a queue is for that is not in the file, role for one that is not
// named like a generated queue, or is a work queue.
func (r *resolver) queueLabel(name string, role topology.Role) topology.Label {
	if label, generated := topology.QueueLabelOf(r.want.Name, name); generated && !r.working[name] {
		return label
	}
	return topology.Label{Role: role, Queue: name}
}

// exchangeLabel says what an exchange is for: by its name, unless it is one of the file, or a retry
// exchange is not of its type.
func (r *resolver) exchangeLabel(name string) topology.Label {
	if label, generated := topology.ExchangeLabelOf(r.want.Name, name); generated && !r.business[name] {
		return label
	}
	return topology.Label{Role: topology.RoleBusiness, Queue: name}
}

// generates reports whether an exchange is one of those that lead messages
// through the loop: what only they lead to a queue has no publisher.
func (r *resolver) generates(exchange string) bool {
	return r.exchangeLabel(exchange).Role != topology.RoleBusiness
}

// foundWork returns the queues that the broker shows to be work queues of a topology, whatever
// their names: failed messages return to them, or dlxctl gives them their dead-lettering.
func foundWork(top string, state topology.State) map[string]bool {
	out := map[string]bool{}
	for _, b := range state.Have.Bindings {
		if b.Source == topology.ReturnExchangeName(top) && b.Key == topology.AddressKey(b.Destination) {
			out[b.Destination] = true
		}
	}
	for _, q := range state.Have.Queues {
		if q.Arguments[topology.ArgDeadLetterExchange] == topology.FailedExchangeName(top) {
			out[q.Name] = true
		}
	}
	for _, p := range state.Have.Policies {
		if queue, is := strings.CutPrefix(p.Name, topology.PolicyName(top, "")); is {
			out[queue] = true
		}
	}
	return out
}

// foundBusiness returns the exchanges that are named like retry exchanges of a topology, and are
// none: those of the file, and those that are of another type.
func foundBusiness(want topology.Compiled, state topology.State) map[string]bool {
	out := map[string]bool{}
	for _, e := range state.Have.Exchanges {
		label, _ := topology.ExchangeLabelOf(want.Name, e.Name)
		if label.Backoff != "" && e.Type != topology.Headers && !topology.IsOutageQueueName(want.Name, e.Name) {
			out[e.Name] = true
		}
	}
	for _, e := range want.Exchanges {
		if label, _ := topology.ExchangeLabelOf(want.Name, e.Name); label.Backoff != "" {
			out[e.Name] = e.Label.Role == topology.RoleBusiness
		}
	}
	return out
}

// drift lists what no file declares and what touches the topology: bindings without an
// owner mark that end at a queue of the file or start at a generated exchange.
func (r *resolver) drift() []topology.Binding {
	queues, services := map[string]bool{}, map[string]bool{}
	for _, q := range r.want.Queues {
		queues[q.Name] = !q.External
		// The file cannot list the bindings of an external dead-letter queue, nor those of a queue that
		// a match covers.
		services[q.Name] = q.External && q.Label.Role != topology.RoleDeadLetter && r.works[q.Name].Match == ""
	}
	declared, generated := map[string]bool{}, map[string]bool{}
	for _, e := range r.want.Exchanges {
		declared[e.Name] = !e.External
		generated[e.Name] = e.Label.Role != topology.RoleBusiness
	}
	var unmarked []topology.Binding
	for _, b := range r.state.Have.Bindings {
		_, marked := topology.Owner(b.Arguments)
		// What a service binds between an external exchange and an external queue is its own affair.
		touches := b.DestinationType == topology.ToQueue &&
			(queues[b.Destination] || services[b.Destination] && declared[b.Source]) || generated[b.Source]
		if !marked && touches {
			unmarked = append(unmarked, b)
		}
	}
	if len(unmarked) == 0 {
		return nil // as a rule: what is wanted need not be gone through
	}
	var out []topology.Binding
	wanted := map[string]bool{}
	for _, b := range r.want.Bindings {
		b.Arguments = b.Arguments.Without(topology.ArgManagedBy)
		wanted[b.Identity()] = true
	}
	for _, b := range unmarked {
		if !wanted[b.Identity()] {
			out = append(out, b)
		}
	}
	return out
}

// Later returns what is left to do after done was carried out, without what only
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
		case c.Action == Delete && retired[c.Label.Backoff] && (c.Label.Role == topology.RoleFailed ||
			c.Label.Role == topology.RoleRetry):
			if c.Kind == topology.KindQueue {
				out.Retiring = append(out.Retiring, c.Name)
			}
		case tier && !deleted[c.key()]:
			waits = true
			out.Retiring = append(out.Retiring, c.Name)
		case c.Action == Delete && c.Kind == topology.KindExchange && slices.Contains(done.Retiring, c.Name):
		case c.Kind == topology.KindQueue && c.Action == Delete && !deleted[c.key()] &&
			(c.Outdated || slices.Contains(done.RetiringDead, c.Name)):
			out.RetiringDead = append(out.RetiringDead, c.Name)
		case waits && c.ReturnPath && !deleted[c.key()]:
		case c.Action == Delete && c.Kind == topology.KindBinding && c.Label.Role == topology.RoleReturn &&
			!c.ReturnPath && !deleted[c.key()]: // done has kept it for messages that waited
		default:
			out.Changes = append(out.Changes, c)
		}
	}
	return out
}

// millis returns milliseconds as a duration.
func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
