package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Reroute is the change of where the failures of a work queue go. It is carried out in
// steps, each read back from the broker: see [nextReroutes]. Nothing else of the queue
// changes, and no message is lost, doubled or misplaced meanwhile.
type Reroute struct {
	// Queue is the work queue. Empty for the move of an exchange of an earlier release.
	Queue string
	// To is the wanted binding of the failed exchange. Zero with an empty Queue.
	To topology.Binding
	// Exchange is the fanout exchange of an earlier release that hands on to the failed
	// exchange from now on, or goes. Empty with a Queue.
	Exchange string
}

// key tells a reroute from others.
func (o Reroute) key() string { return o.Queue + "\x00" + o.Exchange }

// failures are all bindings that decide where failures go, wanted and found.
type failures struct {
	topology string
	queues   []failureRoute
	legacy   []legacyExchange
}

// failureRoute is where the failures of one queue go.
type failureRoute struct {
	queue string
	want  topology.Binding
	// at and next are the bindings of the topology with the queue's key, at the failed exchange
	// and at its alternate exchange.
	at, next []topology.Binding
	// from is the exchange of an earlier release that the queue dead-letters to. Empty: none.
	from string
}

// legacyExchange is the fanout exchange by which a failed queue was reached up to the
// release before the topology had one exchange for all failures. Work queues whose
// arguments name it keep it, as arguments cannot be changed.
type legacyExchange struct {
	name string
	// direct are its bindings of the topology to queues: one, to the failed queue of its backoff.
	direct []topology.Binding
	// bridged says that it hands on to the failed exchange.
	bridged bool
	// users are the queues of the virtual host that dead-letter to it.
	users []string
	// missing says that it does not exist, though queues of the file name it: a service
	// declared one of them as for an earlier release.
	missing bool
}

// failuresOf reads where failures go. want gives the queues that are looked at.
func failuresOf(want topology.Compiled, state topology.State) failures {
	f := failures{topology: want.Name}
	main, next := topology.FailedExchangeName(want.Name), topology.NextFailedExchangeName(want.Name)
	at, atNext := map[string][]topology.Binding{}, map[string][]topology.Binding{}
	direct, bridged := map[string][]topology.Binding{}, map[string]bool{}
	for _, b := range state.Have.Bindings {
		if owner, marked := topology.Owner(b.Arguments); !marked || owner != want.Name {
			continue
		}
		_, old := topology.FailedBackoff(want.Name, b.Source)
		switch {
		case b.Source == main:
			at[b.Key] = append(at[b.Key], b)
		case b.Source == next:
			atNext[b.Key] = append(atNext[b.Key], b)
		case old && b.DestinationType == topology.ToQueue:
			direct[b.Source] = append(direct[b.Source], b)
		case old && b.Destination == main:
			bridged[b.Source] = true
		}
	}
	targets := deadLetterTargets(state)
	listed := map[string]bool{}
	for _, e := range state.Have.Exchanges {
		_, old := topology.FailedBackoff(want.Name, e.Name)
		if owner, marked := topology.Owner(e.Arguments); old && marked && owner == want.Name {
			f.legacy = append(f.legacy, legacyExchange{
				name: e.Name, direct: direct[e.Name], bridged: bridged[e.Name],
				users: targets[e.Name],
			})
		}
	}
	f.legacy = append(f.legacy, missingExchanges(want, state, targets)...)
	from := map[string]string{}
	for _, l := range f.legacy {
		for _, q := range l.users {
			from[q] = l.name
		}
	}
	for _, b := range want.Bindings {
		if b.Source == main {
			queue := strings.TrimPrefix(b.Key, topology.AddressKey(""))
			listed[queue] = true
			f.queues = append(f.queues, failureRoute{queue, b, at[b.Key], atNext[b.Key], from[queue]})
		}
	}
	for _, b := range legacyRoutes(want, state, at, atNext) {
		queue := strings.TrimPrefix(b.Key, topology.AddressKey(""))
		if !listed[queue] {
			listed[queue] = true
			f.queues = append(f.queues, failureRoute{queue, b, at[b.Key], atNext[b.Key], from[queue]})
		}
	}
	// What is no longer in the file and still dead-letters to an exchange of an
	// earlier release goes on to have its failures where they were.
	for _, l := range f.legacy {
		for _, queue := range l.users {
			if listed[queue] || len(l.direct) == 0 {
				continue
			}
			b := f.handsOn(main)
			b.Key, b.Destination, b.DestinationType = topology.AddressKey(queue), l.direct[0].Destination, topology.ToQueue
			f.queues = append(f.queues, failureRoute{queue, b, at[b.Key], atNext[b.Key], l.name})
		}
	}
	return f
}

// missingExchanges gives the exchanges of an earlier release that queues of the file name,
// and that do not exist.
func missingExchanges(want topology.Compiled, state topology.State, targets map[string][]string) []legacyExchange {
	found := byName(state.Have.Exchanges, func(e topology.Exchange) string { return e.Name })
	works := byName(want.WorkQueues, func(w topology.WorkQueue) string { return w.Name })
	var out []legacyExchange
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		_, exists := found[name]
		_, old := topology.FailedBackoff(want.Name, name)
		users := slices.DeleteFunc(slices.Clone(targets[name]), func(q string) bool { _, known := works[q]; return !known })
		if old && !exists && len(users) > 0 {
			out = append(out, legacyExchange{name: name, users: users, missing: true})
		}
	}
	return out
}

// legacyRoutes returns the wanted bindings of legacy queues of the topology that exist and whose
// backoff is no longer in the file: their failures go by the backoff of their successor. at and
// next are the bindings that were found, by key.
func legacyRoutes(want topology.Compiled, state topology.State, at,
	next map[string][]topology.Binding,
) []topology.Binding {
	found := byName(state.Have.Queues, func(q topology.Queue) string { return q.Name })
	var out []topology.Binding
	for _, w := range want.WorkQueues {
		legacy, alive := found[w.Replaces]
		owner, marked := topology.Owner(legacy.Arguments)
		key := topology.AddressKey(w.Replaces)
		orphaned := slices.ContainsFunc(slices.Concat(at[key], next[key]), func(b topology.Binding) bool {
			backoff := backoffAt(want.Name, b)
			_, inFile := want.Backoff(backoff)
			return backoff != topology.NoBackoff && !inFile
		})
		if w.Replaces == "" || !alive || !marked || owner != want.Name || !orphaned {
			continue
		}
		i := slices.IndexFunc(want.Bindings, func(b topology.Binding) bool {
			return b.Source == topology.FailedExchangeName(want.Name) && b.Key == topology.AddressKey(w.Name)
		})
		if i >= 0 {
			b := want.Bindings[i]
			b.Key, b.Label = key, topology.Label{Role: topology.RoleFailed, Queue: w.Replaces}
			out = append(out, b)
		}
	}
	return out
}

// deadLetterTargets gives the queues that dead-letter to each exchange, by argument or by
// the policy in effect.
func deadLetterTargets(state topology.State) map[string][]string {
	out := map[string][]string{}
	policies := policy.All(state)
	for _, q := range state.Have.Queues {
		exchange, given := q.Arguments[topology.ArgDeadLetterExchange].(string)
		if !given {
			for _, p := range policies.InEffect(q) {
				if target, ok := p.Definition["dead-letter-exchange"].(string); ok {
					exchange = target
				}
			}
		}
		if exchange != "" {
			out[exchange] = append(out[exchange], q.Name)
		}
	}
	return out
}

// same reports whether two bindings lead to the same place.
func same(a, b topology.Binding) bool {
	return a.Destination == b.Destination && a.DestinationType == b.DestinationType
}

// moves reports whether the failures of a queue have another way than the wanted one, and
// one of the topology.
func (r failureRoute) moves() bool {
	return len(r.next) > 0 || slices.ContainsFunc(r.at, func(b topology.Binding) bool { return !same(b, r.want) })
}

// nextReroutes gives the next changes on the way from where failures go to where want
// has them go, for those queues and exchanges that wanted names; nil is all. It is a pure
// function of what the broker shows, so that it goes on wherever a run was stopped. The
// broker must settle between two calls. No changes: nothing is left.
//
// To change from A to B, B is bound to the alternate exchange of the failed exchange, then
// A is unbound from the failed exchange, so that failures take the way over the alternate,
// then B is bound to the failed exchange, then unbound from the alternate. At each moment
// a failure has one way. A run that was stopped, and goes on with a file that wants C,
// may find other bindings at the alternate exchange: as long as the failed exchange has
// one they carry nothing, and when it has none the binding of C takes over at once.
//
// An exchange of an earlier release is moved first: it is bound to the failed exchange,
// which leads to the same queue, so that each failure is stored there once (the broker
// gives a queue one copy however many ways lead there), and then its own binding goes.
func nextReroutes(want topology.Compiled, state topology.State, wanted func(Reroute) bool) []Change {
	f := failuresOf(want, state)
	var out []Change
	moving := map[string]bool{} // exchanges that do not hand on yet
	for _, l := range f.legacy {
		if wanted != nil && !wanted(Reroute{Exchange: l.name}) {
			moving[l.name] = !l.done()
			continue
		}
		step := f.bridge(l)
		moving[l.name] = len(step) > 0 && len(l.users) > 0
		out = append(out, step...)
	}
	for _, r := range f.queues {
		if !r.moves() || moving[r.from] || wanted != nil && !wanted(Reroute{Queue: r.queue, To: r.want}) {
			continue
		}
		out = append(out, r.step(topology.NextFailedExchangeName(f.topology))...)
	}
	return out
}

// step gives the next changes for one queue.
func (r failureRoute) step(next string) []Change {
	var others, stale []topology.Binding
	bound, ready := false, false
	for _, b := range r.at {
		if same(b, r.want) {
			bound = true
		} else {
			others = append(others, b)
		}
	}
	for _, b := range r.next {
		if same(b, r.want) {
			ready = true
		} else {
			stale = append(stale, b)
		}
	}
	atNext := r.want
	atNext.Source = next
	switch {
	case bound && len(others) > 0:
		return unbindings(others) // it has two ways: each failure is doubled until now
	case bound || len(r.at) > 0 && len(stale) > 0:
		// What the failed exchange leads on does not come to its alternate: nothing
		// goes this way.
		return unbindings(append(stale, r.nextWanted(bound)...))
	case len(others) == 0:
		return []Change{bindingOf(r.want)} // the alternate exchange had it until now, or nothing did
	case !ready:
		return []Change{bindingOf(atNext)}
	default:
		return unbindings(others) // from now on the alternate exchange leads to the wanted place
	}
}

// nextWanted gives the bindings of the alternate exchange to the wanted place, if they are
// no longer needed.
func (r failureRoute) nextWanted(bound bool) []topology.Binding {
	if !bound {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.next), func(b topology.Binding) bool { return !same(b, r.want) })
}

// done reports whether the exchange needs no more changes.
func (l legacyExchange) done() bool { return l.bridged && len(l.direct) == 0 && len(l.users) > 0 }

// bridge gives the next changes that make an exchange of an earlier release hand on to
// the failed exchange. One that no queue dead-letters to goes.
func (f failures) bridge(l legacyExchange) []Change {
	if l.done() {
		return nil
	}
	if len(l.users) == 0 {
		// Nothing is lost with its bindings: no queue of the virtual host dead-letters
		// to it, by argument or by the policy in effect.
		c := deleted(topology.Exchange{Name: l.name, Label: topology.Label{Role: topology.RoleFailed}})
		c.Hazards = []Hazard{DropsRouting}
		return []Change{c}
	}
	// Each queue must be led to the same failed queue by both ways first, or the
	// second way would bring its failures elsewhere.
	var out []Change
	for _, r := range f.queues {
		if r.from == l.name && len(r.at) == 0 && len(r.next) == 0 && len(l.direct) > 0 {
			b := r.want
			b.Destination, b.DestinationType = l.direct[0].Destination, topology.ToQueue
			out = append(out, bindingOf(b))
		}
	}
	switch {
	case len(out) > 0:
		return out
	case l.missing:
		e := topology.Exchange{
			Name: l.name, Type: topology.Fanout, Durable: true, Label: topology.Label{Role: topology.RoleFailed},
			Arguments: topology.Arguments{topology.ArgManagedBy: topology.OwnerMark(f.topology)},
		}
		return []Change{{Action: Create, Kind: topology.KindExchange, Name: l.name, After: e, Label: e.Label}}
	case !l.bridged:
		return []Change{bindingOf(f.handsOn(l.name))}
	default:
		return unbindings(l.direct) // the failed exchange leads to the same queue
	}
}

// handsOn gives the binding by which an exchange of an earlier release hands on.
func (f failures) handsOn(exchange string) topology.Binding {
	return topology.Binding{
		Source: exchange, Destination: topology.FailedExchangeName(f.topology), DestinationType: topology.ToExchange,
		Arguments: topology.Arguments{topology.ArgManagedBy: topology.OwnerMark(f.topology)},
		Label:     topology.Label{Role: topology.RoleFailed},
	}
}

func bindingOf(b topology.Binding) Change {
	return Change{Action: Create, Kind: topology.KindBinding, Name: b.String(), After: b, Label: b.Label}
}

func unbindings(list []topology.Binding) []Change {
	var out []Change
	for _, b := range list {
		out = append(out, Change{
			Action: Delete, Kind: topology.KindBinding, Name: b.String(), Before: b,
			Label: topology.Label{Role: topology.RoleFailed},
		})
	}
	return out
}

// rerouting is the changes of where failures go, and what is left to them: plans neither
// compare nor delete the bindings that they govern.
type rerouting struct {
	changes []Change
	legacy  map[string]bool // the exchanges of an earlier release that exist; see legacyExchange
	keys    map[string]bool // the keys of queues whose failures change their route
}

// governs reports whether a binding leads failures, and the reroutes see to it.
func (x rerouting) governs(topologyName string, b topology.Binding) bool {
	main, next := topology.FailedExchangeName(topologyName), topology.NextFailedExchangeName(topologyName)
	return (b.Source == main || b.Source == next) && x.keys[b.Key] || x.legacy[b.Source]
}

// rerouting returns the changes of where failures go, as a plan shows them: one for each
// queue, and one for each exchange of an earlier release.
func (r *resolver) rerouting() rerouting {
	f := failuresOf(r.want, r.state)
	out := rerouting{legacy: map[string]bool{}, keys: map[string]bool{}}
	for _, l := range f.legacy {
		out.legacy[l.name] = true
		for _, user := range l.users {
			if _, known := r.works[user]; !known {
				out.keys[topology.AddressKey(user)] = true // its failures keep their way as long as it lives
			}
		}
		if len(f.bridge(l)) == 0 {
			continue
		}
		c := Change{
			Action: Update, Kind: topology.KindExchange, Name: l.name, Reroute: &Reroute{Exchange: l.name}, Phase: PhaseReroute,
			Label:  topology.Label{Role: topology.RoleFailed},
			Fields: []Field{{Name: "hands on to", After: topology.FailedExchangeName(r.want.Name)}},
			Reason: fmt.Sprintf("%s created by an earlier release %s to it (%s); the exchange stays, and from now on backoffs can change in place",
				text.Count(len(l.users), "queue"), text.Choose(len(l.users), "dead-letters", "dead-letter"),
				some(displayed(l.users))),
		}
		if l.missing {
			c.Reason = fmt.Sprintf("it does not exist, and arguments from an earlier release name it: those of %s",
				some(displayed(l.users)))
		}
		if len(l.users) == 0 {
			c.Action, c.Fields, c.Reason = Delete, nil, "created by an earlier release; no queue dead-letters to it any more"
		}
		out.changes = append(out.changes, c)
	}
	for _, q := range f.queues {
		if !q.moves() {
			if len(q.at) == 0 && q.from != "" && r.leadsElsewhere(f, q) {
				out.changes = append(out.changes, r.reroute(q, r.legacyTarget(f, q)))
				out.keys[q.want.Key] = true
			}
			continue
		}
		out.keys[q.want.Key] = true
		from := append(slices.Clone(q.at), q.next...)
		out.changes = append(out.changes, r.reroute(q, from[0]))
	}
	return out
}

// legacyTarget gives the binding of the exchange of an earlier release that a queue
// dead-letters to.
func (r *resolver) legacyTarget(f failures, q failureRoute) topology.Binding {
	for _, l := range f.legacy {
		if l.name == q.from && len(l.direct) > 0 {
			return l.direct[0]
		}
	}
	return q.want
}

func (r *resolver) leadsElsewhere(f failures, q failureRoute) bool {
	return !same(r.legacyTarget(f, q), q.want)
}

// reroute gives the change of one queue as a plan shows it.
func (r *resolver) reroute(q failureRoute, from topology.Binding) Change {
	before, after := backoffAt(r.want.Name, from), backoffAt(r.want.Name, q.want)
	c := Change{
		Action: Update, Kind: topology.KindQueue, Name: q.queue, Reroute: &Reroute{Queue: q.queue, To: q.want},
		Phase: PhaseReroute,
		Label: topology.Label{Role: topology.RoleWork, Queue: q.queue},
	}
	if before == after {
		c.Reason = fmt.Sprintf("an interrupted change of its backoff is completed; the backoff is %s", after)
		return c
	}
	c.Fields = []Field{{Name: "backoff", Before: before, After: after}, {
		Name:   "schedule",
		Before: r.schedule(before), After: r.schedule(after),
	}}
	c.Reason = "messages that wait in a tier return to the queue and keep their attempt count"
	return c
}

// backoffAt gives the backoff that a binding of the failed exchange leads to.
func backoffAt(top string, b topology.Binding) string {
	if b.DestinationType == topology.ToExchange {
		return topology.NoBackoff
	}
	backoff, _ := topology.FailedBackoff(top, b.Destination)
	return backoff
}

// schedule says when a message of a backoff is delivered that fails each time. A backoff
// that the file no longer has is read from the broker.
func (r *resolver) schedule(backoff string) string {
	loop, ok := r.want.Backoff(backoff)
	if !ok {
		loop = r.foundLoop(backoff)
	}
	if len(loop.Tiers) == 0 && backoff != topology.NoBackoff {
		return "a schedule that the broker does not show"
	}
	return deliveries(loop)
}

// foundLoop gives the loop of a backoff as its headers exchange has it on the broker.
func (r *resolver) foundLoop(backoff string) topology.Backoff {
	loop := topology.Backoff{Name: backoff}
	delays := map[string]int64{}
	for _, q := range r.state.Have.Queues {
		if ttl, ok := q.Arguments[topology.ArgMessageTTL].(int64); ok {
			delays[q.Name] = ttl
		}
	}
	tiers := map[int64]string{}
	for _, b := range r.state.Have.Bindings {
		names := b.Arguments.WithoutX().Names()
		if b.Source != topology.RetryExchangeName(r.want.Name, backoff) || len(names) != 1 || !r.owns(b.Arguments) {
			continue
		}
		if n, ok := b.Arguments[names[0]].(int64); ok && n > 0 {
			tiers[n] = b.Destination
		}
	}
	for n := int64(1); tiers[n] != ""; n++ {
		loop.Tiers = append(loop.Tiers, topology.Tier{Delay: millis(delays[tiers[n]]), Queue: tiers[n]})
	}
	return loop
}

// displayed gives names as text shows them.
func displayed(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, text.Name(n))
	}
	return out
}

// namesFailedExchange reports whether a queue that was found dead-letters by its
// arguments to where the wanted one does, in the way of an earlier release: to the
// exchange of a backoff, which hands on to the failed exchange, or, without a backoff, to
// the exchange that picks the dead-letter queue.
func (r *resolver) namesFailedExchange(routes rerouting, have, want topology.Arguments, queue string) bool {
	exchange, _ := have[topology.ArgDeadLetterExchange].(string)
	if want[topology.ArgDeadLetterExchange] != topology.FailedExchangeName(r.want.Name) ||
		have[topology.ArgDeadLetterRoutingKey] != topology.AddressKey(queue) {
		return false
	}
	if exchange == topology.DeadLetterName(r.want.Name) {
		return r.works[queue].Backoff == topology.NoBackoff
	}
	return routes.legacy[exchange]
}
