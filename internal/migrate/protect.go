package migrate

import (
	"slices"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// withoutExposing returns changes without those that remove the protection from harmful
// policies from a queue which exists and is not deleted with them.
func withoutExposing(changes []plan.Change, state topology.State) []plan.Change {
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
		protected := topology.PatternQueues(p.Pattern)
		return plan.Exposes(c) && slices.ContainsFunc(protected, func(queue string) bool { return stays[queue] })
	})
}

// enduredPolicies says what policies do to the generated queues that no other policy can
// override. apply asks for consent; migrate prints a note.
func enduredPolicies(want topology.Compiled, state topology.State) []Note {
	var out []Note
	for _, c := range plan.Make(want, state, plan.Options{}).Changes {
		if c.IsEndured() && !c.ReplacesQueue() {
			out = append(out, Note{Decide: true, Text: c.Reason})
		}
	}
	return out
}
