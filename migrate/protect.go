package migrate

import (
	"slices"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// exposingNothing gives changes without those that take the protection from harmful
// policies away from a queue which exists and is not deleted with them.
func exposingNothing(changes []plan.Change, state plan.State) []plan.Change {
	stays := map[string]bool{}
	for _, q := range state.Have.Queues {
		stays[q.Name] = true
	}
	for _, c := range changes {
		if c.Kind == topology.KindQueue && c.Action == plan.Delete {
			stays[c.Name] = false
		}
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c plan.Change) bool {
		p, _ := c.Before.(topology.Policy)
		return plan.Exposes(c) && slices.ContainsFunc(topology.PatternQueues(p.Pattern), func(queue string) bool { return stays[queue] })
	})
}

// endured says what policies do to the generated queues that nothing can override.
// apply asks for consent; migrate leaves that to who reads this.
func endured(want topology.Topology, state plan.State) []Note {
	var out []Note
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		if c.IsEndured() {
			out = append(out, Note{Decide: true, Text: c.Reason})
		}
	}
	return out
}
