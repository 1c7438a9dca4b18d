package migrate

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// preparation returns the changes that create the successors and their retry queues, and
// nothing else of the file.
func preparation(want topology.Compiled, state topology.State, moves []Move) plan.Plan {
	return preparationOf(plan.Make(want, state, plan.Options{}), want, moves)
}

// preparationOf is preparation with a plan of want.
func preparationOf(p plan.Plan, want topology.Compiled, moves []Move) plan.Plan {
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool {
		makes := c.Reroute == nil && (c.Action == plan.Create || c.Action == plan.Migrate || c.Action == plan.Update)
		// A Reroute changes a backoff, which is left to apply.
		return !makes || !slices.ContainsFunc(moves, func(m Move) bool { return m.needs(want, c) })
	})
	return p
}

// unallowed says which changes of a preparation lose messages without consent. apply asks for it.
func unallowed(p plan.Plan, allow []plan.Consent) []string {
	var out []string
	for _, c := range p.Changes {
		if !slices.Contains(c.Hazards, topology.LosesMessages) {
			continue
		}
		p.Changes = []plan.Change{c}
		if flags := p.Needs(allow); flags != "" {
			out = append(out, fmt.Sprintf("%s %s needs consent; first run dlxctl apply with %s: %s",
				c.Kind, c.Name, flags, c.Reason))
		}
	}
	return out
}

// needs reports whether a change belongs to the successor or to its retry queues.
func (m Move) needs(want topology.Compiled, c plan.Change) bool {
	work, _ := want.WorkQueue(m.New)
	switch c.Label.Role {
	case topology.RoleUnroutable, topology.RoleReturn, topology.RoleDeadLetter, topology.RoleFailed, topology.RoleRetry:
		return (c.Label.Queue == "" || c.Label.Queue == m.New) && (c.Label.Backoff == "" || c.Label.Backoff == work.Backoff)
	case topology.RoleWork:
		return c.Label.Queue == m.New && (c.Kind == topology.KindPolicy || c.Name == m.New)
	case topology.RoleBusiness:
		isSource := func(b topology.Binding) bool { return b.Source == c.Name }
		return c.Kind == topology.KindExchange && slices.ContainsFunc(m.Wanted, isSource)
	case topology.RoleLegacy, topology.RoleHold, topology.RoleParked, topology.RoleLog:
	}
	return false
}
