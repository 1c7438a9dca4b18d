package migrate

import (
	"regexp"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Step is one step of a cutover: changes that may be carried out together, after
// which the broker must come to rest before the next.
type Step struct {
	// Doing says what the step does. Empty: the cutover is done.
	Doing   string
	Changes []plan.Change
	// Doubled says that somebody has bound the legacy queue again, and until this
	// step messages come to both queues.
	Doubled bool
}

// keyAlternate is the key of a policy that says where an exchange leads what it
// cannot route.
const keyAlternate = "alternate-exchange"

// Next gives the next step of the cutover, from what the broker shows.
//
// One switch leads all messages of the queue, wherever they come from, as a
// message visits an exchange once. It has no bindings of its own: what comes to
// it goes to its alternate exchange, which a policy names. While the switch is
// bound beside the legacy bindings, a message reaches the legacy queue on two
// ways and is stored once; then the legacy bindings go; then one update of the
// policy turns all messages to the new queue; then that gets bindings of its own,
// by which again each message is stored once; then the switch goes. At no moment
// is a message without a way, or on the way to both queues.
//
// remembered are the bindings of the switch as they were seen last: should
// somebody delete it, they are lost with it.
func (m Move) Next(state plan.State, remembered []topology.Binding) Step {
	f := m.find(state)
	moved := lacking(f.onLegacy, lacking(f.onLegacy, f.onNew)) // the new queue gets these messages too
	switch {
	case !f.exchanges[m.gate()] && !f.exchanges[m.toOld()] && f.policy == nil && len(f.onLegacy) == 0:
		return m.bindNew(f, union(remembered, m.Wanted))
	case !f.exchanges[m.gate()] && len(moved) > 0:
		return m.boundAgain(moved)
	case !f.exchanges[m.gate()] && len(f.onLegacy) == 0:
		return m.remove(f)
	case m.switched(f):
		return m.afterSwitch(state, f, remembered)
	default:
		return m.beforeSwitch(state, f)
	}
}

// switched reports whether messages go to the new queue. Without the policy, that
// somebody has taken away, the new queue's bindings tell.
func (m Move) switched(f found) bool {
	if f.policy == nil {
		return len(f.onGate) > 0 && len(lacking(f.onGate, f.onNew)) < len(f.onGate)
	}
	return f.policy.Definition[keyAlternate] == m.toNew()
}

func (m Move) beforeSwitch(state plan.State, f found) Step {
	if made := m.make(state, f, m.toOld()); len(made) > 0 {
		return Step{Doing: "make the switch of " + m.Legacy, Changes: made}
	}
	bind := m.bindGate(lacking(f.onLegacy, f.onGate))
	switch {
	case len(bind) > 0:
		return Step{Doing: "bind the switch of " + m.Legacy, Changes: bind}
	case len(f.onLegacy) > 0:
		return Step{Doing: "unbind " + m.Legacy, Changes: m.deletions(f.onLegacy)}
	default:
		return Step{Doing: "switch from " + m.Legacy + " to " + m.New, Changes: []plan.Change{m.turn(state, f, m.toNew())}}
	}
}

func (m Move) afterSwitch(state plan.State, f found, remembered []topology.Binding) Step {
	if f.policy == nil {
		return Step{Doing: "make the policy of the switch again", Changes: []plan.Change{m.turn(state, f, m.toNew())}}
	}
	routes := union(union(f.onGate, f.onLegacy), union(remembered, m.Wanted))
	if s := m.bindNew(f, routes); s.Doing != "" {
		return s
	}
	switch {
	case len(f.onLegacy) > 0:
		return m.boundAgain(f.onLegacy)
	case len(f.onGate) > 0:
		return Step{Doing: "unbind the switch of " + m.Legacy, Changes: m.deletions(f.onGate)}
	default:
		return m.remove(f)
	}
}

// boundAgain takes away bindings that somebody has made on the legacy queue. The
// new queue has their like, so nothing loses its way.
func (m Move) boundAgain(list []topology.Binding) Step {
	return Step{Doing: "unbind " + m.Legacy + ", which is bound again", Changes: m.deletions(list), Doubled: true}
}

// bindNew gives the new queue those of routes that it lacks: as the file says
// where the file says so, else just as the legacy queue had them, which is drift.
func (m Move) bindNew(f found, routes []topology.Binding) Step {
	wanted := map[string]topology.Binding{}
	for _, b := range m.Wanted {
		wanted[route(b)] = b
	}
	var bind []plan.Change
	for _, b := range lacking(routes, f.onNew) {
		own, declared := wanted[route(b)]
		if !declared {
			own = m.onto(m.New, b)
		}
		bind = append(bind, create(topology.KindBinding, own.String(), own))
	}
	if len(bind) == 0 {
		return Step{}
	}
	return Step{Doing: "bind " + m.New, Changes: bind}
}

// make gives what the switch lacks, in the order in which it is safe: nothing is
// bound to it yet.
func (m Move) make(state plan.State, f found, leadsTo string) []plan.Change {
	out := append(m.makeEnd(f, m.toOld()), m.makeEnd(f, m.toNew())...)
	if !f.exchanges[m.gate()] {
		out = append(out, m.makeExchange(m.gate()))
	}
	if f.policy == nil {
		c := m.turn(state, f, leadsTo)
		c.Rank = 3
		out = append(out, c)
	}
	return out
}

// makeEnd gives what lacks of one end of the switch: the exchange, which is toOld or
// toNew, and its binding to the queue.
func (m Move) makeEnd(f found, exchange string) []plan.Change {
	var out []plan.Change
	if !f.exchanges[exchange] {
		out = append(out, m.makeExchange(exchange))
	}
	queue, bound := m.Legacy, f.fromOld
	if exchange == m.toNew() {
		queue, bound = m.New, f.fromNew
	}
	if !bound && (queue != m.Legacy || f.legacy) { // one that somebody has deleted cannot be bound
		b := topology.Binding{Source: exchange, Destination: queue, DestinationType: topology.ToQueue, Arguments: m.mark()}
		c := create(topology.KindBinding, b.String(), b)
		c.Rank = 2
		out = append(out, c)
	}
	return out
}

func (m Move) makeExchange(name string) plan.Change {
	return create(topology.KindExchange, name, topology.Exchange{Name: name, Type: topology.Fanout, Durable: true, Arguments: m.mark()})
}

func (m Move) mark() topology.Arguments {
	return topology.Arguments{topology.ArgManagedBy: topology.Mark(m.Topology)}
}

// turn gives the change of the policy that makes the switch lead somewhere.
func (m Move) turn(state plan.State, f found, leadsTo string) plan.Change {
	return outrank(state, f.policy, topology.Policy{
		Name: m.policy(), Pattern: "^" + regexp.QuoteMeta(m.gate()) + "$", ApplyTo: "exchanges",
		Priority: topology.PolicyPriority, Definition: topology.Arguments{keyAlternate: leadsTo},
	})
}

// outrank gives the change that puts a policy of ours in place of have, which is nil
// if there is none, with a priority above those of all others.
func outrank(state plan.State, have *topology.Policy, want topology.Policy) plan.Change {
	for _, other := range state.Have.Policies {
		if other.Name != want.Name && other.Priority >= want.Priority {
			want.Priority = topology.PriorityAbove(other.Priority)
		}
	}
	if have == nil {
		return create(topology.KindPolicy, want.Name, want)
	}
	if have.Priority > want.Priority {
		want.Priority = have.Priority // a higher one does no harm
	}
	if have.IsPending() || have.Priority == want.Priority && want.Definition.Equal(have.Definition) {
		// The broker passes over a policy that it has stored just so.
		want.Priority = max(want.Priority, topology.PriorityAbove(have.Priority))
	}
	return plan.Change{Action: plan.Update, Kind: topology.KindPolicy, Name: want.Name, Before: *have, After: want}
}

// remove takes the switch away. Nothing is bound to it any more. The exchange
// that leads to the new queue stays: the drain publishes to it.
func (m Move) remove(f found) Step {
	var out []plan.Change
	for _, name := range []string{m.gate(), m.toOld()} {
		if f.exchanges[name] {
			c := remove(topology.KindExchange, name, topology.Exchange{Name: name})
			c.Hazards = []plan.Hazard{plan.DropsRouting} // that of the old one to the legacy queue
			out = append(out, c)
		}
	}
	if f.policy != nil {
		c := remove(topology.KindPolicy, f.policy.Name, *f.policy)
		c.Rank = 1
		out = append(out, c)
	}
	if len(out) == 0 {
		return Step{}
	}
	return Step{Doing: "remove the switch of " + m.Legacy, Changes: out}
}

// bindGate gives the switch bindings that lead the same messages on as those of list.
func (m Move) bindGate(list []topology.Binding) []plan.Change {
	var out []plan.Change
	for _, b := range list {
		b.Destination, b.DestinationType, b.Arguments = m.gate(), topology.ToExchange, m.marked(b.Arguments)
		out = append(out, create(topology.KindBinding, b.String(), b))
	}
	return out
}

// onto gives a binding that leads the same messages on to a queue. Only that of the
// loop is ours.
func (m Move) onto(queue string, b topology.Binding) topology.Binding {
	b.Destination, b.DestinationType, b.Arguments = queue, topology.ToQueue, b.Arguments.Without(topology.ArgManagedBy)
	if m.returns(b) {
		b.Arguments = m.marked(b.Arguments)
	}
	return b
}

func (m Move) deletions(list []topology.Binding) []plan.Change {
	var out []plan.Change
	for _, b := range list {
		out = append(out, remove(topology.KindBinding, b.String(), b))
	}
	return out
}

func create(kind topology.Kind, name string, after any) plan.Change {
	return plan.Change{Action: plan.Create, Kind: kind, Name: name, After: after}
}

func remove(kind topology.Kind, name string, before any) plan.Change {
	return plan.Change{Action: plan.Delete, Kind: kind, Name: name, Before: before}
}
