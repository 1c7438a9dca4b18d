package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// otherTeam blocks a plan of which all work queues on the broker are missing from
// the file: as a rule it is the file of another team that chose the same name, and
// the plan would delete what the first one uses.
//
// That the file is of the same team shows in one of its work queues that exists with
// our mark, or with our policy, or that takes the place of one. A file without work
// queues is that of a team that takes its topology away.
func (r *resolver) otherTeam() (f findings) {
	policies := byName(r.state.Have.Policies, func(p topology.Policy) string { return p.Name })
	for _, w := range r.want.WorkQueues {
		_, attached := policies[topology.PolicyName(r.want.Name, w.Name)]
		if attached || r.owns(r.existing[w.Name].Arguments) || w.Replaces != "" && r.owns(r.existing[w.Replaces].Arguments) {
			return f
		}
	}
	for _, m := range r.want.Matches {
		for _, name := range m.PolicyNames(r.want.Name) {
			if _, attached := policies[name]; attached {
				return f
			}
		}
	}
	dead := r.foundDead()
	wanted := namesOf(r.want.Queues, func(q topology.Queue) string { return q.Name })
	var missing []string
	for _, q := range r.state.Have.Queues {
		if !r.owns(q.Arguments) || r.queueLabel(q.Name, topology.RoleWork).Role != topology.RoleWork {
			continue
		}
		if wanted[q.Name] {
			return f // a dead-letter queue that the file names
		}
		if dead[q.Name] || r.previousDeadLetterQueue(q) {
			continue
		}
		missing = append(missing, q.Name)
	}
	unnamed := func(name string) bool { return !slices.Contains(r.want.Removed, name) }
	if len(r.want.WorkQueues) == 0 || !slices.ContainsFunc(missing, unnamed) {
		return f
	}
	slices.Sort(missing)
	shown := text.Names(missing)
	name := text.Name(r.want.Name)
	f.refused = append(f.refused, Change{
		Action: Blocked, Kind: topology.KindTopology, Name: r.want.Name,
		Reason: fmt.Sprintf(
			"%s of the topology %s on this virtual host %s missing from the file: %s. If another team uses the name %s, give this topology another name. If the queues were removed on purpose, list them in the file: removed: %s",
			allOf(len(missing)), name, text.Choose(len(missing), "is", "are"), text.Some(shown), name, flow(missing)),
	})
	return f
}

// unlisted blocks a plan while the node of a queue is down that this topology has made, and that
// the file does not have: what it holds is not known, and needs what the plan would take away.
func (r *resolver) unlisted() (f findings) {
	for _, name := range r.state.Down {
		if slices.ContainsFunc(r.want.Queues, func(q topology.Queue) bool { return q.Name == name }) ||
			slices.ContainsFunc(r.want.WorkQueues, func(w topology.WorkQueue) bool { return w.Replaces == name }) {
			continue
		}
		label, generated := topology.QueueLabelOf(r.want.Name, name)
		others := label.Role == topology.RoleDeadLetter && label.Queue != "" // may be of another team
		if !generated || others {
			generated = slices.ContainsFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
				return b.Destination == name && b.DestinationType == topology.ToQueue && r.owns(b.Arguments)
			})
		}
		if generated {
			f.refused = append(f.refused, Change{
				Action: Blocked, Kind: topology.KindTopology, Name: r.want.Name,
				Reason: fmt.Sprintf("the node of the queue %s is down, which the file no longer has: what it holds is not known; start the node",
					text.Name(name)),
			})
		}
	}
	return f
}

// foundDead returns the dead-letter queues on the broker: those to which a binding of this topology
// leads from the exchange of dead letters, or its next one. Their names can be of any form.
func (r *resolver) foundDead() map[string]bool {
	out := map[string]bool{}
	for _, b := range r.state.Have.Bindings {
		if r.picksDeadLetterQueue(b.Source) && b.DestinationType == topology.ToQueue && r.owns(b.Arguments) {
			out[b.Destination] = true
		}
	}
	return out
}

// picksDeadLetterQueue reports whether an exchange is that of dead letters, or its next one.
func (r *resolver) picksDeadLetterQueue(exchange string) bool {
	dead := topology.DeadLetterName(r.want.Name)
	return exchange == dead || exchange == topology.NextExchangeName(dead)
}

// allOf returns "the only work queue" or "all 9 work queues".
func allOf(n int) string {
	if n == 1 {
		return "the only work queue"
	}
	return fmt.Sprintf("all %d work queues", n)
}

// otherMoves returns the exchanges that lead to the successors of queues that other topologies
// move, or replace under their names, with their owners. They exist as long as the move lasts.
func otherMoves(topologyName string, state topology.State) map[string]string {
	out := map[string]string{}
	for _, e := range state.Have.Exchanges {
		if owner, marked := topology.Owner(e.Arguments); marked && owner != topologyName &&
			topology.IsSwitchName(owner, e.Name) {
			out[e.Name] = owner
		}
	}
	return out
}

// movedByOther says that another topology moves the messages and the bindings of a queue to another
// queue, or replaces it under its name, and what to do. Empty: none does.
func (r *resolver) movedByOther(queue string) string {
	for e, owner := range r.otherMoves {
		end := topology.SuccessorEndName(owner, queue)
		if e != end {
			continue
		}
		to := slices.IndexFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
			return b.Source == end && b.DestinationType == topology.ToQueue
		})
		if to < 0 || r.isRouted(queue) || // a rollback, which is not finished, binds the queue first
			r.state.Have.Bindings[to].Destination == topology.ReplacementHoldName(owner, queue) {
			return fmt.Sprintf("the topology %q moves %s, and that is not finished; when it is, run the command again",
				owner, text.Name(queue))
		}
		successor := text.Name(r.state.Have.Bindings[to].Destination)
		return fmt.Sprintf("the topology %q moves %s to %s, and its bindings too; write %s in its place",
			owner, text.Name(queue), successor, successor)
	}
	return ""
}
