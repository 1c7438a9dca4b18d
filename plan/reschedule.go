package plan

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// rescheduled returns the backoffs of the file whose tiers on the broker are others.
func (r *resolver) rescheduled() []Reschedule {
	var out []Reschedule
	for _, after := range r.want.Backoffs {
		before := r.foundLoop(after.Name)
		if len(before.Tiers) == 0 || sameDelays(before, after) {
			continue
		}
		out = append(out, Reschedule{Before: before, After: after, Queues: queuesOf(r.want.WorkQueues, after.Name)})
	}
	return out
}

// sameDelays reports whether two backoffs have the same delays, in the same order.
func sameDelays(a, b topology.Backoff) bool {
	return slices.EqualFunc(a.Tiers, b.Tiers, func(a, b topology.Tier) bool { return a.Delay == b.Delay })
}

// queuesOf returns the names of the work queues that have a backoff.
func queuesOf(works []topology.WorkQueue, backoff string) []string {
	var out []string
	for _, w := range works {
		if w.Backoff == backoff {
			out = append(out, w.Name)
		}
	}
	return out
}
