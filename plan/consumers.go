package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Decisive names the queues, in order, whose number of consumers decides what p contains:
// queues that p would delete or create again, legacy queues, and failed queues that seem to have no
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
		u, exists := state.Usage[l.FailedQueue]
		if exists && u.Consumers == 0 || r.countsBy(l) != "" {
			out = append(out, l.FailedQueue)
		}
	}
	for _, d := range want.Delays {
		if u, exists := state.Usage[d.Intake]; exists && u.Consumers == 0 {
			out = append(out, d.Intake)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Unprocessed is a failed queue that no processor consumes.
type Unprocessed struct {
	Queue    string
	Messages int64
	// Asked says that the queue itself was asked. Else the statistics of the broker say it, which
	// do not show a processor that started in the last 10 seconds.
	Asked bool
}

// unprocessed returns the failed queues from which no message moves on, and warns of them. What
// the statistics say is not enough for an empty queue, and not for one whose messages a consumer
// holds at this moment. A file may accept that a queue has none, where a processor runs now and
// then.
func (r *resolver) unprocessed() (list []Unprocessed, f findings) {
	read := text.Each(r.want.Backoffs, func(b topology.Backoff) string { return b.FailedQueue })
	for _, d := range r.want.Delays { // who reads its other queue reads this one
		read = append(read, d.Intake)
	}
	for _, queue := range read {
		_, exists := r.state.Usage[queue]
		u := r.usage(queue)
		suspect := u.ConsumersAsked || u.Ready > 0 && u.Unacknowledged == 0
		if exists && suspect && !u.MayBeConsumed() && !r.accepts(topology.WarnNoProcessor, queue) {
			missing := Unprocessed{queue, u.Ready + u.Unacknowledged, u.ConsumersAsked}
			list = append(list, missing)
			f.warnings = append(f.warnings, missing.warning())
		}
	}
	return list, f
}

// outdated warns of processors that consume the failed queue of a backoff whose tiers change, or of
// a match that is new or gets another dead-letter queue. Over AMQP a processor cannot see that the
// broker has more tiers than its file.
func (r *resolver) outdated() (f findings) {
	for _, c := range r.rescheduled() {
		queue := c.After.FailedQueue
		if n := r.usage(queue).Consumers; n > 0 {
			f.warn(topology.WarnRestartProcessors, fmt.Sprintf("%s has %s: a processor uses the tiers of the file that it has read, and dead-letters after the last of them; after apply, restart those that run without --watch",
				text.Name(queue), text.Count(n, "consumer")))
		}
	}
	if len(r.want.Matches) == 0 {
		return f
	}
	queue := topology.FailedQueueName(r.want.Name, r.want.Matches[0].Backoff) // of all, see Matches
	n := r.usage(queue).Consumers
	if patterns := r.unknownMatches(); n > 0 && len(patterns) > 0 {
		f.warn(topology.WarnRestartProcessors, fmt.Sprintf("%s has %s: what fails in queues that match %s may go to %s until its processors have the new file; after apply, restart those that run without --watch",
			text.Name(queue), text.Count(n, "consumer"), text.Some(patterns), text.Name(topology.UnroutableName(r.want.Name))))
	}
	return f
}

// unknownMatches returns the patterns of matches that a processor with the file of before may not
// know: of a new one it does not know the queues. Where the address of a dead-letter queue is new
// or goes, it sends what dies there to the address that it knows, of which match the broker does
// not tell.
func (r *resolver) unknownMatches() (patterns []string) {
	dead, wanted := topology.DeadLetterName(r.want.Name), map[string]bool{}
	bound, returned, applied := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, b := range r.want.Bindings {
		wanted[b.Key] = wanted[b.Key] || b.Source == dead
	}
	gone := false
	for _, b := range r.state.Have.Bindings {
		switch b.Source {
		case dead:
			bound[b.Key] = true
			gone = gone || b.Key == topology.AddressKey(b.Destination) && !wanted[b.Key] && r.owns(b.Arguments)
		case topology.ReturnExchangeName(r.want.Name):
			returned[b.Destination] = true
		}
	}
	ending := map[string]bool{} // the matches on the broker, without those of the file
	for _, p := range r.state.Have.Policies {
		applied[p.Name] = true
		if topology.IsMatchPolicyName(r.want.Name, p.Name) {
			ending[p.Name] = true
		}
	}
	for _, p := range r.want.Policies {
		delete(ending, p.Name)
	}
	gone = gone && len(ending) == 0                       // else the address goes with its match
	covers, isNew := map[string]bool{}, map[string]bool{} // patterns: of queues, of such without an address
	for _, w := range r.want.WorkQueues {
		covers[w.Match] = true
		isNew[w.Match] = isNew[w.Match] || !returned[w.Name]
	}
	for _, m := range r.want.Matches {
		known := false
		for _, name := range m.PolicyNames(r.want.Name) {
			known = known || applied[name]
		}
		// A pattern that is written in another way may cover what another one did before.
		if gone || !bound[topology.AddressKey(m.DeadLetterQueue)] || !known && (isNew[m.Pattern] || !covers[m.Pattern]) {
			patterns = append(patterns, m.Pattern)
		}
	}
	return patterns
}

// ByStatistics says how sure it is that a queue that was not asked has no consumers.
const ByStatistics = "by statistics that are up to 10s old"

// warning returns the warning of the queue.
func (u Unprocessed) warning() Warning {
	line := fmt.Sprintf("%s holds %s and no processor is consuming it", text.Name(u.Queue),
		text.Count(u.Messages, "message"))
	if u.Messages == 0 {
		line = fmt.Sprintf("no processor is consuming %s, where messages that consumers reject will wait",
			text.Name(u.Queue))
	}
	if !u.Asked {
		line += " (" + ByStatistics + ")"
	}
	return Warning{Name: topology.WarnNoProcessor, Text: line + ": run dlxctl process"}
}
