package plan

import "github.com/dlxctl/dlxctl/topology"

// Phase orders the changes of a plan: those of one phase may run at the same time,
// and a phase begins when the one before it has ended. The zero Phase is
// phaseProtect; blocked changes, which are not carried out, have it too.
//
// Creations come first, the safety net before all else and the business bindings last, so that
// a message always has somewhere to go. Business bindings that go are deleted right behind them.
// Then messages are rerouted. The other deletions follow in the opposite direction. A return path
// that is no longer needed is deleted in a round of its own, with all its objects: the broker alone
// knows whether a tier is empty, and reports it when it is asked to delete the tier.
type Phase int

const (
	// phaseProtect puts in place the policies that override harmful ones: they exist
	// before the first queue.
	phaseProtect Phase = iota
	// phaseSafetyNet creates the exchanges and queues for dead letters and for
	// messages that cannot be routed.
	phaseSafetyNet
	// phaseBindSafetyNet binds them.
	phaseBindSafetyNet
	// phaseRetry creates the failed queues, the retry queues and their exchanges.
	phaseRetry
	// phaseBindRetry binds them.
	phaseBindRetry
	// phaseWorkQueues creates work queues and the exchanges of the file.
	phaseWorkQueues
	// phaseBindReturn binds work queues to the exchange that returns messages.
	phaseBindReturn
	// phaseAttach puts in place the policies that give queues their dead-lettering:
	// what they dead-letter finds its return path.
	phaseAttach
	// phaseBindQueues binds queues to exchanges of the file.
	phaseBindQueues
	// phaseBindExchanges binds exchanges of the file to each other: what flows through
	// them finds its queues bound.
	phaseBindExchanges

	// phaseUnbind deletes the bindings of exchanges of the file: what they led away has its new
	// bindings. The reroutes, which wait between their steps, come later: as long as a binding that
	// goes is next to the one that replaces it, messages are copied. No reroute needs a binding that
	// is deleted here.
	phaseUnbind

	// phaseReroute changes where failures, retries and dead letters go: what they are led to
	// exists, and what they are led away from is deleted afterwards. No binding that a reroute
	// governs is written in another phase.
	phaseReroute

	// phaseUnbindGenerated deletes the bindings of generated exchanges, those of the failed exchange
	// excepted.
	phaseUnbindGenerated
	// phaseDetach deletes the policies that gave queues their dead-lettering, if the queues stay.
	phaseDetach
	// phaseDeleteQueues deletes queues, failed queues excepted.
	phaseDeleteQueues
	// phaseUnbindFailed deletes the bindings that lead failures, and the policies of deleted queues:
	// what a work queue rejects has a route until the queue is deleted.
	phaseUnbindFailed
	// phaseDeleteFailed deletes failed queues.
	phaseDeleteFailed
	// phaseDeleteExchanges deletes exchanges.
	phaseDeleteExchanges

	// PhaseDeleteTiers deletes retry queues whose deletion waited until they were empty.
	PhaseDeleteTiers
	// phaseUnbindReturn deletes the bindings of the return path.
	phaseUnbindReturn
	// phaseDeleteUnroutable deletes the unroutable queue.
	phaseDeleteUnroutable
	// phaseDeleteReturn deletes the exchanges of the return path.
	phaseDeleteReturn
	// phaseExpose deletes the policies that override harmful ones, or takes queues out
	// of them: all queues that go are deleted.
	phaseExpose
	// PhaseDeleteSwitch deletes what is left of the switch of a migration.
	PhaseDeleteSwitch
)

// creationPhase returns the phase of a creation. Bindings come after both their
// ends; nothing is bound to a work queue before its failures have somewhere to go.
func creationPhase(c Change) Phase {
	binding, isBinding := c.After.(topology.Binding)
	choose := func(object, bound Phase) Phase {
		if isBinding {
			return bound
		}
		return object
	}
	switch role := c.Label.Role; {
	case role == topology.RoleUnroutable || role == topology.RoleDeadLetter:
		return choose(phaseSafetyNet, phaseBindSafetyNet)
	case role == topology.RoleReturn:
		return choose(phaseRetry, phaseBindReturn)
	case role == topology.RoleFailed || role == topology.RoleRetry:
		return choose(phaseRetry, phaseBindRetry)
	case c.Kind == topology.KindPolicy:
		return phaseAttach
	case !isBinding:
		return phaseWorkQueues
	case binding.DestinationType == topology.ToQueue:
		return phaseBindQueues
	default:
		return phaseBindExchanges
	}
}

// deletionPhase returns the phase of a deletion. See [Change.ReturnPath] for what
// belongs to the return path.
func deletionPhase(c Change) Phase {
	failed := c.Label.Role == topology.RoleFailed
	switch c.Kind {
	case topology.KindBinding:
		switch {
		case c.ReturnPath:
			return phaseUnbindReturn
		case failed:
			return phaseUnbindFailed
		}
		return phaseUnbindGenerated // see [resolved.unbinding] for those of the file
	case topology.KindPolicy:
		return phaseDetach
	case topology.KindQueue:
		switch {
		case c.ReturnPath:
			return phaseDeleteUnroutable
		case failed:
			return phaseDeleteFailed
		}
		return phaseDeleteQueues
	case topology.KindExchange, topology.KindTopology: // a topology is never deleted
		fallthrough
	default:
		if c.ReturnPath {
			return phaseDeleteReturn
		}
		return phaseDeleteExchanges
	}
}
