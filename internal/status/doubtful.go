package status

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// mostAsked is how many queues without consumers are asked. A topology whose services are not
// deployed may have thousands.
const mostAsked = 20

// Doubtful names the chosen queues of t, in order, whose consumers the statistics of the broker do
// not report yet, and the work queues, up to 20, that have no consumers by statistics: their
// service may have started in the last 10 seconds. A caller that can ask queues themselves should
// do so before it makes a report. Queues of other topologies are not among them: there may be
// thousands, and the broker may refuse to answer about them, and log that.
func Doubtful(t topology.Compiled, state topology.State, f Filter) (unknown, idle []string) {
	chosen := f.choose(t)
	works := map[string]bool{}
	for _, w := range t.WorkQueues {
		works[w.Name] = true
	}
	all := names(t)
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		u, exists := state.Usage[name]
		switch {
		case !exists || !chosen(name):
		case u.ConsumersUnknown:
			unknown = append(unknown, name)
		case works[name] && u.Consumers == 0 && !u.ConsumersAsked && len(idle) < mostAsked:
			idle = append(idle, name)
		}
	}
	return unknown, idle
}

// Telling names the chosen failed queues whose processors tell which work queues are in outage:
// those of backoffs with the key outage that have a consumer.
func Telling(t topology.Compiled, state topology.State, f Filter) []string {
	chosen := f.choose(t)
	var out []string
	for _, b := range t.Backoffs {
		u, exists := state.Usage[b.FailedQueue]
		if b.Outage != nil && exists && chosen(b.FailedQueue) && (u.Consumers > 0 || u.ConsumersUnknown) {
			out = append(out, b.FailedQueue)
		}
	}
	return out
}
