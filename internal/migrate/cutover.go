package migrate

import (
	"regexp"
	"slices"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// cutoverStep is one step of a cutover: changes that may be carried out together, after
// which the broker must settle before the next step.
type cutoverStep struct {
	// Doing says what the step does. Empty: the cutover is done.
	Doing   string
	Changes []plan.Change
	// Unbinds says that the queue that messages leave loses its bindings.
	Unbinds bool
	// Doubled says that a service has bound the queue again that messages leave, and until this step
	// they come to both queues.
	Doubled bool
	// Turns says that messages go to the other end from this step on.
	Turns bool
}

// next returns the next step of the cutover, from what the broker shows.
//
// One switch exchange receives all messages of the queue, from whatever exchange they
// come, as a message visits an exchange once. It has no bindings: its messages go to its
// alternate exchange, which a policy names. The steps:
//
//  1. The switch exchange is bound in addition to the legacy bindings. A message reaches
//     the legacy queue on two paths and is stored once.
//  2. The legacy bindings are deleted.
//  3. One update of the policy routes all messages to the successor.
//  4. The successor gets its own bindings. Again a message arrives on two paths and is
//     stored once.
//  5. The switch exchange is deleted.
//
// At no moment is a message without a path, or on the path to both queues.
//
// remembered are the bindings of the switch exchange as they were last seen: if it is
// deleted, they are lost with it.
func (m Move) next(state topology.State, remembered []topology.Binding) cutoverStep {
	f := m.find(state)
	moved := lacking(f.onLegacy, lacking(f.onLegacy, f.onSuccessor)) // the successor gets these messages too
	switch {
	case !f.exchanges[m.switchName()] && !f.exchanges[m.legacyEnd()] && f.policy == nil && len(f.onLegacy) == 0:
		return m.bindSuccessor(f, union(remembered, m.Wanted))
	case !f.exchanges[m.switchName()] && len(moved) > 0:
		return m.unbindLegacy(moved)
	case !f.exchanges[m.switchName()] && len(f.onLegacy) == 0:
		return m.removeSwitch(f)
	case m.switched(f):
		return m.afterSwitch(state, f, remembered)
	default:
		return m.beforeSwitch(state, f)
	}
}

// switched reports whether messages go to the successor. If the policy was deleted, the
// bindings of the successor decide.
func (m Move) switched(f found) bool {
	if f.policy == nil {
		return len(f.onSwitch) > 0 && len(lacking(f.onSwitch, f.onSuccessor)) < len(f.onSwitch)
	}
	return f.policy.Definition[topology.ArgAlternateExchange] == m.successorEnd() && !m.untouched(f)
}

// untouched reports whether messages come to the legacy queue alone, although the policy leads to
// the successor: an abort of a migration that was not cut over has created the switch exchange, and
// was killed. What leaves a tier may go through the switch exchange already.
func (m Move) untouched(f found) bool {
	return m.published(f.onLegacy) && !m.published(f.onSwitch) && !m.published(f.onSuccessor)
}

// published reports whether messages come by one of the bindings from a publisher, and not from a
// tier.
func (m Move) published(list []topology.Binding) bool {
	return slices.ContainsFunc(list, func(b topology.Binding) bool { return !m.returns(b) })
}

func (m Move) beforeSwitch(state topology.State, f found) cutoverStep {
	if made := m.makeSwitch(state, f, m.legacyEnd()); len(made) > 0 {
		return cutoverStep{Doing: "create the switch exchange of " + m.Legacy, Changes: made}
	}
	if f.policy.Definition[topology.ArgAlternateExchange] == m.successorEnd() {
		return m.afterAbort(state, f)
	}
	return m.turnSwitch(state, f, m.Legacy, f.onLegacy, m.New, m.successorEnd())
}

// turnSwitch binds the switch exchange to the messages of a queue, unbinds the queue, and then
// makes the switch exchange route to the end of the other queue.
func (m Move) turnSwitch(
	state topology.State, f found, from string, bound []topology.Binding, to, end string,
) cutoverStep {
	bind := m.bindSwitch(lacking(bound, f.onSwitch))
	switch {
	case len(bind) > 0:
		return cutoverStep{Doing: "bind the switch exchange of " + m.Legacy, Changes: bind}
	case len(bound) > 0:
		return cutoverStep{Doing: "unbind " + from, Changes: m.deletions(bound), Unbinds: true}
	default:
		return cutoverStep{
			Doing:   "switch from " + from + " to " + to,
			Changes: []plan.Change{m.pointSwitch(state, f, end)}, Turns: true,
		}
	}
}

// afterAbort takes back what a killed abort has done to a migration that was not cut over: what
// leaves a tier goes to the successor by a binding again, and the switch exchange routes to the
// legacy queue before anything else is bound to it.
func (m Move) afterAbort(state topology.State, f found) cutoverStep {
	if s := m.bindSuccessor(f, f.onSwitch); s.Doing != "" {
		return s
	}
	if len(f.onSwitch) > 0 {
		return cutoverStep{Doing: "unbind the switch exchange of " + m.Legacy, Changes: m.deletions(f.onSwitch)}
	}
	return cutoverStep{
		Doing:   "let the switch exchange of " + m.Legacy + " route there",
		Changes: []plan.Change{m.pointSwitch(state, f, m.legacyEnd())},
	}
}

func (m Move) afterSwitch(state topology.State, f found, remembered []topology.Binding) cutoverStep {
	if f.policy == nil {
		return m.renewPolicy(state, f)
	}
	routes := union(union(f.onSwitch, f.onLegacy), union(remembered, m.Wanted))
	if s := m.bindSuccessor(f, routes); s.Doing != "" {
		return s
	}
	switch {
	case len(f.onLegacy) > 0:
		return m.unbindLegacy(f.onLegacy)
	case len(f.onSwitch) > 0:
		return cutoverStep{Doing: "unbind the switch exchange of " + m.Legacy, Changes: m.deletions(f.onSwitch)}
	default:
		return m.removeSwitch(f)
	}
}

// renewPolicy creates the policy of the switch exchange again, which was deleted.
func (m Move) renewPolicy(state topology.State, f found) cutoverStep {
	return cutoverStep{
		Doing:   "create the policy of the switch exchange again",
		Changes: []plan.Change{m.pointSwitch(state, f, m.successorEnd())},
	}
}

// unbindLegacy removes bindings that a service has made on the legacy queue. The
// successor has the same bindings, so every message keeps its path.
func (m Move) unbindLegacy(list []topology.Binding) cutoverStep {
	return cutoverStep{
		Doing: "unbind " + m.Legacy + ", which was bound again", Changes: m.deletions(list), Unbinds: true, Doubled: true,
	}
}

// bindSuccessor creates those of routes that the successor lacks: as the file
// declares them, or else as the legacy queue had them, which is drift.
func (m Move) bindSuccessor(f found, routes []topology.Binding) cutoverStep {
	wanted := map[string]topology.Binding{}
	for _, b := range m.Wanted {
		wanted[sameRoute(b)] = b
	}
	var bind []plan.Change
	for _, b := range lacking(routes, f.onSuccessor) {
		own, declared := wanted[sameRoute(b)]
		if !declared {
			own = m.bindingTo(m.New, b)
		}
		bind = append(bind, create(own))
	}
	if len(bind) == 0 {
		return cutoverStep{}
	}
	return cutoverStep{Doing: "bind " + m.New, Changes: bind}
}

// The phases of a step of the cutover: an exchange exists before it is bound, and both
// its ends are bound before a policy leads messages there. A policy that is deleted goes
// when the exchanges that it is for are gone.
const (
	phaseBind   = plan.Phase(1) // exchanges have the zero phase
	phasePolicy = plan.Phase(2)
)

// makeSwitch returns what the switch exchange lacks, in an order that is safe: nothing is
// bound to it yet.
func (m Move) makeSwitch(state topology.State, f found, leadsTo string) []plan.Change {
	out := append(m.makeEnd(f, m.legacyEnd()), m.makeEnd(f, m.successorEnd())...)
	if !f.exchanges[m.switchName()] {
		out = append(out, m.makeExchange(m.switchName()))
	}
	if f.policy == nil {
		c := m.pointSwitch(state, f, leadsTo)
		c.Phase = phasePolicy
		out = append(out, c)
	}
	return out
}

// makeEnd returns what lacks of one end of the switch: the exchange, which is legacyEnd or
// successorEnd, and its binding to the queue.
func (m Move) makeEnd(f found, exchange string) []plan.Change {
	var out []plan.Change
	if !f.exchanges[exchange] {
		out = append(out, m.makeExchange(exchange))
	}
	queue, bound := m.Legacy, f.legacyBound
	if exchange == m.successorEnd() {
		queue, bound = m.New, f.successorBound
	}
	if !bound && (queue != m.Legacy || f.legacy) { // a deleted queue cannot be bound
		b := topology.Binding{
			Source: exchange, Destination: queue, DestinationType: topology.ToQueue, Arguments: m.ownerMark(),
		}
		c := create(b)
		c.Phase = phaseBind
		out = append(out, c)
	}
	return out
}

func (m Move) makeExchange(name string) plan.Change {
	return create(topology.Exchange{Name: name, Type: topology.Fanout, Durable: true, Arguments: m.ownerMark()})
}

func (m Move) ownerMark() topology.Arguments {
	return topology.Arguments{topology.ArgManagedBy: topology.OwnerMark(m.Topology)}
}

// pointSwitch returns the change of the policy that makes the switch exchange route to
// an exchange.
//
// Policies are written over HTTP, which the lock does not guard: a request that a stalled network
// delivers after the lock is free may meet the next run. That run moves in the same direction as a
// rule, or proves the queue empty for seconds, and writes the policy again when it finds another.
// Measured with a write in the worst moments of a replacement, at some 200 messages a second
// (4.3.6): one that leads to the queue dropped 1 or 2 messages between the deletion and the
// declaration, one that leads to the hold after the queue was bound again doubled 1 to 74, and in
// all other moments it did nothing. It must be late by these seconds and meet those milliseconds.
func (m Move) pointSwitch(state topology.State, f found, leadsTo string) plan.Change {
	return override(state, f.policy, topology.Policy{
		Name: m.policy(), Pattern: "^" + regexp.QuoteMeta(m.switchName()) + "$", ApplyTo: "exchanges",
		Priority: topology.PolicyPriority, Definition: topology.Arguments{topology.ArgAlternateExchange: leadsTo},
	})
}

// override returns the change that replaces have, which is nil if there is none, by a
// policy with a priority above those of all other policies.
func override(state topology.State, have *topology.Policy, want topology.Policy) plan.Change {
	for _, other := range state.Have.Policies {
		if other.Name != want.Name && other.Priority >= want.Priority {
			want.Priority = topology.PriorityAbove(other.Priority)
		}
	}
	if have == nil {
		return create(want)
	}
	if have.Priority > want.Priority {
		want.Priority = have.Priority // a higher priority does no harm
	}
	if have.IsPending() || have.Priority == want.Priority && want.Definition.Equal(have.Definition) {
		// The broker ignores a policy that is equal to the stored one.
		want.Priority = max(want.Priority, topology.PriorityAbove(have.Priority))
	}
	return plan.Change{Action: plan.Update, Kind: topology.KindPolicy, Name: want.Name, Before: *have, After: want}
}

// removeSwitch deletes the switch exchange. Nothing is bound to it any more. The exchange
// that routes to the successor stays: the drain publishes to it.
func (m Move) removeSwitch(f found) cutoverStep {
	var out []plan.Change
	for _, name := range []string{m.switchName(), m.legacyEnd()} {
		if f.exchanges[name] {
			c := remove(topology.Exchange{Name: name})
			c.Hazards = []topology.Hazard{topology.DropsRouting} // the binding to the legacy queue
			out = append(out, c)
		}
	}
	if f.policy != nil {
		c := remove(*f.policy)
		c.Phase = phasePolicy
		out = append(out, c)
	}
	if len(out) == 0 {
		return cutoverStep{}
	}
	return cutoverStep{Doing: "delete the switch exchange of " + m.Legacy, Changes: out}
}

// bindSwitch binds the switch exchange to the same messages as the bindings of list, and notes
// whose these are.
func (m Move) bindSwitch(list []topology.Binding) []plan.Change {
	var out []plan.Change
	for _, b := range list {
		owner, marked := b.Arguments[topology.ArgManagedBy]
		b.Destination, b.DestinationType, b.Arguments = m.switchName(), topology.ToExchange, m.withOwnerMark(b.Arguments)
		if marked && !comparesX(b.Arguments) {
			b.Arguments = b.Arguments.With(topology.ArgBoundBy, owner)
		}
		out = append(out, create(b))
	}
	return out
}

// bindingTo returns a binding that routes the same messages to a queue. Only the return
// binding of a backoff carries the owner mark.
func (m Move) bindingTo(queue string, b topology.Binding) topology.Binding {
	b.Destination, b.DestinationType = queue, topology.ToQueue
	b.Arguments = b.Arguments.Without(topology.ArgManagedBy, topology.ArgBoundBy)
	if m.returns(b) {
		b.Arguments = m.withOwnerMark(b.Arguments)
	}
	return b
}

func (m Move) deletions(list []topology.Binding) []plan.Change {
	var out []plan.Change
	for _, b := range list {
		out = append(out, remove(b))
	}
	return out
}

func create(o topology.Object) plan.Change {
	return plan.Change{Action: plan.Create, Kind: o.Kind(), Name: o.DisplayName(), After: o}
}

func remove(o topology.Object) plan.Change {
	return plan.Change{Action: plan.Delete, Kind: o.Kind(), Name: o.DisplayName(), Before: o}
}
