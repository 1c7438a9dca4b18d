package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// waiting are the successors whose bindings wait for their legacy queue.
type waiting struct {
	findings

	withheld map[string]string // the legacy queue, by successor
}

// replacements notes which queues wait for their legacy queue to be moved.
func (r *resolver) replacements() waiting {
	out := waiting{withheld: map[string]string{}}
	for _, w := range r.want.WorkQueues {
		_, alive := r.existing[w.Replaces]
		if alive = alive || slices.Contains(r.state.Down, w.Replaces); w.Replaces == "" || !alive || r.forwards(w.Replaces) {
			continue
		}
		out.withheld[w.Name] = w.Replaces
		if _, made := r.existing[w.Name]; made {
			line := "%s gets its bindings when %s is migrated; run dlxctl migrate %s"
			switch {
			case r.isCutOver(w):
				line = "%s has its bindings, and the legacy queue %s still exists; run dlxctl migrate %s"
			case !r.isRouted(w.Name) && !r.isRouted(w.Replaces) && !r.hasBindings(w):
				line = "%s has no bindings, and the legacy queue %s still exists; run dlxctl migrate %s"
			}
			out.warn(topology.WarnMigrationPending, fmt.Sprintf(line,
				text.Name(w.Name), text.Name(w.Replaces), text.ShellQuote(w.Replaces)))
		}
	}
	return out
}

// isCutOver reports whether the exchanges route to a successor, and no longer to its legacy queue,
// or the successor has all bindings of the file. A migration carries over what the legacy queue
// had, which may be less than the file has, or something else.
func (r *resolver) isCutOver(w topology.WorkQueue) bool {
	if r.isRouted(w.Name) && !r.isRouted(w.Replaces) {
		return true
	}
	for _, b := range r.want.Bindings {
		if isOwn(b, w) && !slices.ContainsFunc(r.state.Have.Bindings, func(have topology.Binding) bool {
			return have.Identity() == b.Identity()
		}) {
			return false
		}
	}
	return r.hasBindings(w)
}

// hasBindings reports whether a work queue has bindings in the file.
func (r *resolver) hasBindings(w topology.WorkQueue) bool {
	return slices.ContainsFunc(r.want.Bindings, func(b topology.Binding) bool { return isOwn(b, w) })
}

// isOwn reports whether a binding is one that the file gives to a work queue.
func isOwn(b topology.Binding, w topology.WorkQueue) bool {
	return b.Destination == w.Name && b.DestinationType == topology.ToQueue && b.Label.Role == topology.RoleBusiness
}

// isRouted reports whether an exchange that dlxctl did not generate leads to a queue of the broker.
func (r *resolver) isRouted(queue string) bool {
	return slices.ContainsFunc(r.state.Have.Bindings, func(b topology.Binding) bool {
		return b.DestinationType == topology.ToQueue && b.Destination == queue && !r.generates(b.Source)
	})
}
