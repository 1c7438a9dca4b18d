package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Decisive names the queues, in order, whose number of consumers decides what p contains:
// queues that p would delete or create again, legacy queues, and failed queues that need a
// processor. p was made from want and state. Some may not exist. The statistics of the broker
// show consumers up to 10 seconds late; a caller that can ask these queues themselves should do
// so and plan again.
func Decisive(p Plan, want topology.Compiled, state topology.State) []string {
	var out []string
	for _, c := range p.Changes {
		if c.Kind == topology.KindQueue && c.Stake != nil {
			out = append(out, c.Name)
		}
	}
	for _, w := range want.WorkQueues {
		if w.Replaces != "" {
			out = append(out, w.Replaces)
		}
	}
	r := resolver{want: want, state: state}
	for _, l := range want.Backoffs {
		u := state.Usage[l.FailedQueue]
		if u.Ready+u.Unacknowledged > 0 && u.Consumers == 0 || r.countsBy(l) != "" {
			out = append(out, l.FailedQueue)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unprocessed warns of failed queues from which nothing moves on.
func (r *resolver) unprocessed() (f findings) {
	for _, l := range r.want.Backoffs {
		u := r.state.Usage[l.FailedQueue]
		if n := u.Ready + u.Unacknowledged; n > 0 && !u.MayBeConsumed() {
			f.warnings = append(f.warnings, NoProcessor(l.FailedQueue, n))
		}
	}
	return f
}

// NoProcessor is the warning of a failed queue that holds so many messages and has no
// consumers.
func NoProcessor(failed string, messages int64) Warning {
	return Warning{
		Name: "no-processor",
		Text: fmt.Sprintf("%s holds %s and no processor is consuming it: run dlxctl process", text.Name(failed),
			text.Count(messages, "message")),
	}
}
