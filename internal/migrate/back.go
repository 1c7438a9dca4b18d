package migrate

import (
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// nextBack returns the next step of a rollback, from what the broker shows: the cutover
// in the other direction. If the switch exchange is gone, it is created again, and then
// routes to the legacy queue. Messages that wait in a tier take this path too: they
// return through a binding of the successor.
func (m Move) nextBack(state topology.State) cutoverStep {
	f := m.find(state)
	exists, lacks := f.exchanges[m.switchName()], lacking(f.onSuccessor, f.onLegacy)
	switch {
	case !exists && f.policy == nil && len(lacks) > 0:
		return cutoverStep{
			Doing: "create the switch exchange of " + m.Legacy, Changes: m.makeSwitch(state, f, m.successorEnd()),
			Doubled: len(lacks) < len(f.onSuccessor),
		}
	case !exists && len(f.onSuccessor) > 0 && f.policy == nil: // the legacy queue has them all
		return cutoverStep{
			Doing: "unbind " + m.New, Changes: m.deletions(f.onSuccessor), Unbinds: true, Doubled: true,
		}
	case f.policy != nil && (!exists || !f.legacyBound || !f.successorBound):
		if made := m.makeSwitch(state, f, m.successorEnd()); len(made) > 0 && (exists || len(f.onSuccessor) > 0) {
			return cutoverStep{Doing: "create the switch exchange of " + m.Legacy, Changes: made}
		}
		return m.removeSwitch(f)
	case exists && (f.policy == nil || f.policy.Definition[topology.ArgAlternateExchange] == m.successorEnd()):
		return m.switchBack(state, f)
	case exists:
		return m.bindLegacy(f)
	default:
		return m.removeSwitch(f)
	}
}

// switchBack routes all messages through the switch exchange, and then changes where it
// routes to.
func (m Move) switchBack(state topology.State, f found) cutoverStep {
	if f.policy == nil { // no message may be lost meanwhile: it routes to where the messages go now
		return m.renewPolicy(state, f)
	}
	return m.turnSwitch(state, f, m.New, f.onSuccessor, m.Legacy, m.legacyEnd())
}

// bindLegacy binds the legacy queue again and removes the switch exchange.
func (m Move) bindLegacy(f found) cutoverStep {
	var bind []plan.Change
	for _, b := range lacking(f.onSwitch, f.onLegacy) {
		bind = append(bind, create(m.bindingBack(f, b)))
	}
	switch {
	case len(bind) > 0:
		return cutoverStep{Doing: "bind " + m.Legacy, Changes: bind}
	case len(f.onSwitch) > 0:
		return cutoverStep{Doing: "unbind the switch exchange of " + m.Legacy, Changes: m.deletions(f.onSwitch)}
	default:
		return m.removeSwitch(f)
	}
}

// bindingBack returns the binding of the legacy queue for one of the switch exchange. A queue that
// is replaced under its name gets its bindings back as they were: without its mark, one that the
// file no longer has would be drift, and no plan would delete it. After an abort the marks of the
// successor tell which ones dlxctl made, and only a queue that it made has such bindings: on any
// other, the next plan would delete them.
func (m Move) bindingBack(f found, b topology.Binding) topology.Binding {
	owner, marked := b.Arguments[topology.ArgBoundBy]
	b = m.bindingTo(m.Legacy, b)
	if marked && (m.replaces() || f.legacyOwned) {
		b.Arguments = b.Arguments.With(topology.ArgManagedBy, owner)
	}
	return b
}
