// Package migrate moves legacy queues onto queues with dead-lettering, under live
// traffic: every message goes to exactly one of the two.
//
// The stage of a move is worked out from the broker alone, and each step from the
// stage: whoever runs it next, on whatever machine, goes on where the last one
// was stopped. Nothing is written but plan.Changes, and what lies in the legacy
// queue is moved on relay.
package migrate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Stage is how far a move is.
type Stage string

// The stages, in order.
const (
	Check   Stage = "check"   // looked at, nothing written
	Prepare Stage = "prepare" // the new queue and its retry plane
	Cutover Stage = "cutover" // messages go to the new queue
	Drain   Stage = "drain"   // what was left in the legacy queue is moved
	Retire  Stage = "retire"  // the legacy queue is deleted
)

// Stages gives all stages in order.
func Stages() []Stage { return []Stage{Check, Prepare, Cutover, Drain, Retire} }

// Move is the migration of one queue.
type Move struct {
	Topology string
	// Legacy is the queue that is moved, New the one that takes its place.
	Legacy, New string
	// Wanted are the bindings of New from declared exchanges, as the file says.
	Wanted []topology.Binding
}

// Moves gives the moves that a topology wants and that are not done: those whose
// legacy queue exists, or has left something behind. They are in the order of
// the file.
func Moves(want topology.Topology, state plan.State) []Move {
	return slices.DeleteFunc(everyMove(want), func(m Move) bool {
		f := m.find(state)
		return !f.legacy && len(f.exchanges) == 0 && f.policy == nil && f.forwarder == nil
	})
}

// everyMove gives the moves of all queues with replaces, in the order of the file.
func everyMove(want topology.Topology) []Move {
	var out []Move
	for _, w := range want.Works {
		if w.Replaces == "" {
			continue
		}
		m := Move{Topology: want.Name, Legacy: w.Replaces, New: w.Queue}
		for _, b := range want.Bindings {
			if b.Destination == m.New && b.DestinationType == topology.ToQueue && b.Label.Role == topology.RoleBusiness {
				m.Wanted = append(m.Wanted, b)
			}
		}
		out = append(out, m)
	}
	return out
}

func (m Move) gate() string   { return topology.SwitchName(m.Topology, m.Legacy) }
func (m Move) toOld() string  { return m.gate() + ".old" }
func (m Move) toNew() string  { return m.gate() + ".new" }
func (m Move) policy() string { return topology.SwitchPolicyName(m.Topology, m.Legacy) }

// forwarding names the policy by which a legacy queue forwards.
func (m Move) forwarding() string { return topology.ForwardPolicyName(m.Topology, m.Legacy) }

// found is what a virtual host holds of a move.
type found struct {
	legacy    bool
	successor bool
	exchanges map[string]bool    // of the switch
	policy    *topology.Policy   // nil: there is none
	forwarder *topology.Policy   // by which the legacy queue forwards. Nil: there is none
	onLegacy  []topology.Binding // from exchanges to the legacy queue, without those of the switch
	onGate    []topology.Binding // to the switch
	onNew     []topology.Binding // to the new queue, without those of the switch
	fromOld   bool               // the switch's own exchanges lead where they should
	fromNew   bool
}

// find looks for what belongs to the move.
func (m Move) find(state plan.State) found {
	f := found{exchanges: map[string]bool{}}
	for _, q := range state.Have.Queues {
		f.legacy = f.legacy || q.Name == m.Legacy
		f.successor = f.successor || q.Name == m.New
	}
	for _, e := range state.Have.Exchanges {
		if e.Name == m.gate() || e.Name == m.toOld() || e.Name == m.toNew() {
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
		case toQueue && b.Source == m.toOld() && b.Destination == m.Legacy:
			f.fromOld = true
		case toQueue && b.Source == m.toNew() && b.Destination == m.New:
			f.fromNew = true
		case toQueue && b.Destination == m.Legacy:
			f.onLegacy = append(f.onLegacy, b)
		case !toQueue && b.Destination == m.gate():
			f.onGate = append(f.onGate, b)
		case toQueue && b.Destination == m.New:
			f.onNew = append(f.onNew, b)
		}
	}
	return f
}

// route is what makes two bindings lead the same messages on.
func route(b topology.Binding) string {
	b.Destination, b.DestinationType, b.Arguments = "", "", b.Arguments.Without(topology.ArgManagedBy)
	return b.Identity()
}

// returns reports whether a binding brings back what has waited in a tier.
func (m Move) returns(b topology.Binding) bool { return b.Source == topology.ReturnName(m.Topology) }

// lacking gives those of list that have no twin: a binding of the same source,
// key and arguments.
func lacking(list, twins []topology.Binding) []topology.Binding {
	have := map[string]bool{}
	for _, t := range twins {
		have[route(t)] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(b topology.Binding) bool { return have[route(b)] })
}

// union gives the bindings of both lists that lead something else on.
func union(a, b []topology.Binding) []topology.Binding {
	out := slices.Concat(a, lacking(b, a))
	slices.SortFunc(out, func(a, b topology.Binding) int { return cmp.Compare(a.Identity(), b.Identity()) })
	return out
}

// marked gives args with the mark, but for bindings that compare headers which
// begin with x-: there it would be one more header to match.
func (m Move) marked(args topology.Arguments) topology.Arguments {
	if match, _ := args[topology.ArgMatch].(string); strings.HasSuffix(match, "-with-x") {
		return args
	}
	return args.With(topology.ArgManagedBy, topology.Mark(m.Topology))
}
