package migrate

import (
	"slices"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// rightsOf returns the rights that a user needs for moving queues.
func rightsOf(want topology.Compiled, state topology.State, moves []Move) []plan.Right {
	p := preparation(want, state, moves)
	for _, m := range moves {
		f := m.find(state)
		p.Changes = append(p.Changes, m.wholeSwitch(state)...)
		for _, b := range union(union(f.onLegacy, f.onSwitch), m.Wanted) {
			for _, destination := range []string{m.Legacy, m.New} {
				b.Destination, b.DestinationType = destination, topology.ToQueue
				p.Changes = append(p.Changes, create(b))
			}
			p.Changes = append(p.Changes, m.bindSwitch([]topology.Binding{b})...)
		}
		quorum := topology.Arguments{topology.ArgQueueType: topology.Quorum}
		p.Changes = append(p.Changes, remove(topology.Queue{Name: m.Legacy, Arguments: quorum}))
	}
	rights := plan.Rights(p)
	for _, m := range moves { // the drain
		rights = append(rights, plan.Right{Permission: plan.Write, Kind: topology.KindExchange, Name: m.successorEnd()})
	}
	return sorted(rights)
}

// wholeSwitch returns what makes the switch exchange, and both its ends, from nothing.
func (m Move) wholeSwitch(state topology.State) []plan.Change {
	return m.makeSwitch(state, found{exchanges: map[string]bool{}, legacy: true}, m.legacyEnd())
}

// proofRights returns the rights that a user needs to prove that no message can come to the legacy
// queues by dead-lettering to their names. Canaries prove it of a feeder that other queues use too:
// it may never be empty.
func proofRights(state topology.State, moves []Move) []plan.Right {
	var rights []plan.Right
	judged := survey.New(state)
	for _, m := range moves {
		feeders := judged.Feeders(m.Legacy)
		rights = append(rights, management.ReadRights(queuesOf(feeders))...)
		if slices.ContainsFunc(feeders, func(f survey.Feeder) bool { return len(f.Others) > 0 }) {
			rights = append(rights, m.canaryRights()...)
		}
	}
	return rights
}

func sorted(rights []plan.Right) []plan.Right {
	plan.SortRights(rights)
	return slices.Compact(rights)
}
