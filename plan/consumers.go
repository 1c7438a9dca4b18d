package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// mayBeConsumed reports whether there are consumers, or may be.
func (u Usage) mayBeConsumed() bool { return u.Consumers > 0 || u.ConsumersUnknown }

// ConsumersText gives the number of consumers for people: "2 consumers", or that it
// is not known, and what would show it.
func (u Usage) ConsumersText() string {
	if u.ConsumersUnknown {
		return "consumers unknown: the statistics of the broker do not show them, for a new queue not yet for 10s, and neither does AMQP, which takes any permission for the queue"
	}
	return number(u.Consumers, "consumer")
}

// Decisive names the queues, in order, whose number of consumers decides what p says or
// does, which was made of want and state: those that it would delete or make again, legacy
// queues, and failed queues whose processors matter. Some may not exist. The statistics of the broker show consumers up
// to 10 seconds late; whoever can ask these queues themselves should, and plan again.
func Decisive(p Plan, want topology.Topology, state State) []string {
	var out []string
	for _, c := range p.Changes {
		if c.Kind == topology.KindQueue && c.Stake != nil {
			out = append(out, c.Name)
		}
	}
	for _, w := range want.Works {
		if w.Replaces != "" {
			out = append(out, w.Replaces)
		}
	}
	r := resolver{want: want, state: state}
	for _, l := range want.Loops {
		u := state.Usage[l.Failed]
		if u.Ready+u.Unacknowledged > 0 && u.Consumers == 0 || r.countsBy(l) != "" {
			out = append(out, l.Failed)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unprocessed warns of failed queues from which nothing moves on.
func (r *resolver) unprocessed() {
	for _, l := range r.want.Loops {
		u := r.state.Usage[l.Failed]
		if n := u.Ready + u.Unacknowledged; n > 0 && !u.mayBeConsumed() {
			r.out.Warnings = append(r.out.Warnings, NoProcessor(l.Failed, n))
		}
	}
}

// NoProcessor is the warning of a failed queue that holds so many messages and has no
// consumers.
func NoProcessor(failed string, messages int64) Warning {
	return Warning{Name: "no-processor", Text: fmt.Sprintf("%s holds %s and no processor is consuming it: run dlxctl process", display(failed), number(messages, "message"))}
}
