package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// waiting are the successors whose bindings wait for the cutover of their legacy queue.
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
		cutOver := r.isCutOver(w)
		if !cutOver {
			out.withheld[w.Name] = w.Replaces
		}
		if _, made := r.existing[w.Name]; made {
			line := "%[1]s gets its bindings when %[2]s is migrated; let a service consume %[1]s, then run dlxctl migrate %[3]s"
			switch {
			case cutOver || r.isBound(w):
				line = "messages go to %s, and the legacy queue %s still exists; run dlxctl migrate %s"
			case !r.isRouted(w.Name) && !r.isRouted(w.Replaces) && !r.hasBindings(w):
				line = "%s has no bindings, and the legacy queue %s still exists; run dlxctl migrate %s"
			}
			out.warn(topology.WarnMigrationPending, fmt.Sprintf(line,
				text.Name(w.Name), text.Name(w.Replaces), text.ShellQuote(w.Replaces)))
		}
	}
	return out
}

// isCutOver reports whether exchanges lead to a successor, and none to its legacy queue or to the
// switch exchange: one more binding of the successor doubles nothing. The broker may not list the
// bindings of a queue whose node is down.
func (r *resolver) isCutOver(w topology.WorkQueue) bool {
	name := topology.SwitchExchangeName(r.want.Name, w.Replaces)
	return r.isRouted(w.Name) && !r.isRouted(w.Replaces) && !slices.Contains(r.state.Down, w.Replaces) &&
		!slices.ContainsFunc(r.state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == name })
}

// isBound reports whether a successor has all bindings of the file, and has some.
func (r *resolver) isBound(w topology.WorkQueue) bool {
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
