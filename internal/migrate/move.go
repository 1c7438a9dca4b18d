// Package migrate moves legacy queues onto queues with dead-lettering, under live
// traffic: every message goes to exactly one of the two.
//
// The stage of a move follows from the state of the broker alone, and each step from the
// stage: the next run, on any machine, continues where the last one was stopped. Only
// plan.Changes are written, and the relay moves the messages of the legacy queue.
package migrate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Stage is how far a move is.
type Stage string

// The stages, in order.
const (
	Check   Stage = "check"   // the broker is read, nothing is written
	Prepare Stage = "prepare" // the successor and its retry queues exist
	Cutover Stage = "cutover" // messages go to the successor
	Drain   Stage = "drain"   // the messages of the legacy queue are moved
	Retire  Stage = "retire"  // the legacy queue is deleted
)

// Stages returns all stages in order.
func Stages() []Stage { return []Stage{Check, Prepare, Cutover, Drain, Retire} }

// Move is the migration of one queue.
type Move struct {
	Topology string
	// Legacy is the queue that is moved, New its successor.
	Legacy, New string
	// Wanted are the bindings of New from declared exchanges, as in the file.
	Wanted []topology.Binding
}

// unfinishedMoves returns the moves of a topology that are not done: those whose legacy
// queue, or another object of the migration, exists. They are in the order of the file.
func unfinishedMoves(want topology.Compiled, state topology.State) []Move {
	return slices.DeleteFunc(allMoves(want), func(m Move) bool {
		f := m.find(state)
		return !f.legacy && len(f.exchanges) == 0 && f.policy == nil && f.forwarder == nil
	})
}

// allMoves returns the moves of all queues with replaces, in the order of the file.
func allMoves(want topology.Compiled) []Move {
	var out []Move
	for _, w := range want.WorkQueues {
		if w.Replaces == "" {
			continue
		}
		m := Move{Topology: want.Name, Legacy: w.Replaces, New: w.Name}
		for _, b := range want.Bindings {
			if b.Destination == m.New && b.DestinationType == topology.ToQueue && b.Label.Role == topology.RoleBusiness {
				m.Wanted = append(m.Wanted, b)
			}
		}
		out = append(out, m)
	}
	return out
}

func (m Move) switchName() string   { return topology.SwitchExchangeName(m.Topology, m.Legacy) }
func (m Move) legacyEnd() string    { return m.switchName() + ".old" }
func (m Move) successorEnd() string { return topology.SuccessorEndName(m.Topology, m.Legacy) }
func (m Move) policy() string       { return topology.SwitchPolicyName(m.Topology, m.Legacy) }

// forwarding names the policy by which a legacy queue forwards.
func (m Move) forwarding() string { return topology.ForwardPolicyName(m.Topology, m.Legacy) }

// found is what a virtual host holds of a move.
type found struct {
	legacy         bool
	legacyOwned    bool // the legacy queue carries the owner mark
	successor      bool
	exchanges      map[string]bool    // of the switch exchange and its ends
	policy         *topology.Policy   // nil: there is none
	forwarder      *topology.Policy   // by which the legacy queue forwards. Nil: there is none
	onLegacy       []topology.Binding // from exchanges to the legacy queue, without those of the switch
	onSwitch       []topology.Binding // to the switch exchange
	onSuccessor    []topology.Binding // to the new queue, without those of the switch
	legacyBound    bool               // its end is bound to the queue
	successorBound bool
	// byName and successorByName tell that a drain, or an abort, has moved messages that publishers
	// sent to the legacy queue, or to the successor, by its name.
	byName, successorByName bool
}

// find returns what the virtual host holds of the move.
func (m Move) find(state topology.State) found {
	f := found{exchanges: map[string]bool{}}
	for _, q := range state.Have.Queues {
		if q.Name == m.Legacy {
			f.legacy, f.legacyOwned = true, q.Arguments[topology.ArgManagedBy] == topology.OwnerMark(m.Topology)
		}
		// A queue of another with the name of a hold is none; see foreign.
		f.successor = f.successor || q.Name == m.New && (!m.replaces() || topology.IsReplacementHold(m.Topology, q))
	}
	for _, e := range state.Have.Exchanges {
		if e.Name == m.switchName() || e.Name == m.legacyEnd() || e.Name == m.successorEnd() {
			f.exchanges[e.Name] = true
		}
	}
	for _, p := range state.Have.Policies {
		if p.Name == m.policy() {
			f.policy = &p
		}
		if p.Name == m.forwarding() {
			f.forwarder = &p
		}
	}
	for _, b := range state.Have.Bindings {
		toQueue := b.DestinationType == topology.ToQueue
		switch {
		case b.Arguments[topology.ArgManagedBy] == topology.DeskMark(m.Topology):
			// A run of the desk sends to this queue alone. Bound to the successor as well, the exchange of
			// the run would double its messages. What the legacy queue gets is drained.
		case toQueue && b.Source == m.legacyEnd() && b.Destination == m.Legacy:
			f.legacyBound = true
		case toQueue && b.Source == m.successorEnd() && b.Destination == m.New:
			f.successorBound = true
			f.byName = f.byName || b.Key == byNameKey
			f.successorByName = f.successorByName || b.Key == successorByNameKey
		case toQueue && b.Destination == m.Legacy:
			f.onLegacy = append(f.onLegacy, b)
		case !toQueue && b.Destination == m.switchName():
			f.onSwitch = append(f.onSwitch, b)
		case toQueue && b.Destination == m.New:
			f.onSuccessor = append(f.onSuccessor, b)
		}
	}
	return f
}

// sameRoute is equal for two bindings that route the same messages.
func sameRoute(b topology.Binding) string {
	b.Destination, b.DestinationType = "", ""
	b.Arguments = b.Arguments.Without(topology.ArgManagedBy, topology.ArgBoundBy)
	return b.Identity()
}

// returns reports whether a binding is a return binding, by which messages leave a tier.
func (m Move) returns(b topology.Binding) bool {
	return b.Source == topology.ReturnExchangeName(m.Topology)
}

// lacking returns those of list that have no twin: a binding with the same source, key
// and arguments.
func lacking(list, twins []topology.Binding) []topology.Binding {
	have := map[string]bool{}
	for _, t := range twins {
		have[sameRoute(t)] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(b topology.Binding) bool { return have[sameRoute(b)] })
}

// union returns the bindings of both lists, without twins.
func union(a, b []topology.Binding) []topology.Binding {
	out := slices.Concat(a, lacking(b, a))
	slices.SortFunc(out, func(a, b topology.Binding) int { return cmp.Compare(a.Identity(), b.Identity()) })
	return out
}

// withOwnerMark returns args with the owner mark. Bindings that compare headers which
// begin with x- go without: there the mark would be one more header to match.
func (m Move) withOwnerMark(args topology.Arguments) topology.Arguments {
	if comparesX(args) {
		return args
	}
	return args.With(topology.ArgManagedBy, topology.OwnerMark(m.Topology))
}

// comparesX reports whether a binding compares headers that begin with x-.
func comparesX(args topology.Arguments) bool {
	match, _ := args[topology.ArgMatch].(string)
	return strings.HasSuffix(match, "-with-x")
}
