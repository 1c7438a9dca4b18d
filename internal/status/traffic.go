package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// LoopTime is over how long redeliveries are compared with acknowledgements, in the shortest
	// steps for which the broker keeps samples.
	LoopTime = 30 * time.Second
	// LoopStep is one of these steps.
	LoopStep = 5 * time.Second
	// StuckTime is for how long consumers must have held messages. Jobs that take longer look the
	// same.
	StuckTime = 10 * time.Minute
	// StuckStep is between the samples of StuckTime: the oldest may be that much younger.
	StuckStep = time.Minute
)

// A restart of a service redelivers a prefetch once. A loop redelivers in almost every step, at
// least once a second.
const (
	leastLoopSteps = 4
	leastLoops     = int64(LoopTime / time.Second)
)

// Traffic is what the statistics of the broker count, by queue. A queue that is in none is not
// known to do anything.
type Traffic struct {
	// Recent is that of LoopTime.
	Recent map[string]topology.Traffic
	// Long is that of StuckTime.
	Long map[string]topology.Traffic
}

// Busy names the chosen queues whose traffic decides what a report says: those that consumers read
// and that hold messages. With everything, it names such queues of other teams too.
func Busy(t topology.Compiled, state topology.State, f Filter, everything bool) []string {
	chosen := f.choose(t)
	consumed := map[string]bool{}
	for _, w := range t.WorkQueues {
		consumed[w.Name], consumed[w.Replaces] = true, true
	}
	for _, b := range t.Backoffs {
		consumed[b.FailedQueue] = true
	}
	for _, d := range t.Delays {
		consumed[d.Due] = true
	}
	everything = everything && f.everything()
	var out []string
	for _, q := range state.Have.Queues {
		u := state.Usage[q.Name]
		if q.Type() != topology.Stream && u.Ready+u.Held() > 0 && (everything || consumed[q.Name] && chosen(q.Name)) {
			out = append(out, q.Name)
		}
	}
	return out
}

// Still names the queues of which consumers hold messages, and none was delivered or acknowledged
// lately.
func Still(state topology.State, recent map[string]topology.Traffic) []string {
	var out []string
	for _, q := range state.Have.Queues {
		if n, known := recent[q.Name]; known && n.Still() && state.Usage[q.Name].Held() > 0 {
			out = append(out, q.Name)
		}
	}
	return out
}

// loopsIn reports whether the messages of a queue are delivered again and again.
func (m *maker) loopsIn(queue string) bool {
	n := m.o.Traffic.Recent[queue]
	return n.Redelivered >= leastLoops && n.Redelivered > n.Acknowledged && n.Redelivering >= leastLoopSteps
}

// stuckIn reports whether consumers have held all their messages of a queue for StuckTime: nothing
// was delivered since, so that what they hold now is older.
func (m *maker) stuckIn(queue string) bool {
	n, known := m.o.Traffic.Long[queue]
	return known && n.Still() && m.state.Usage[queue].Held() > 0
}

// trafficProblems returns the names of the problems of one queue that its traffic shows.
func (m *maker) trafficProblems(queue string) []string {
	switch {
	case m.loopsIn(queue):
		return []string{loops}
	case m.stuckIn(queue):
		return []string{stuck}
	default:
		return nil
	}
}

// loops reports queues whose messages are delivered again and again, the fastest first.
func (m *maker) loops() {
	queues := m.with(m.o.Traffic.Recent, m.loopsIn)
	if len(queues) == 0 {
		return
	}
	recent := func(queue string) topology.Traffic { return m.o.Traffic.Recent[queue] }
	slices.SortStableFunc(queues, func(a, b string) int {
		return cmp.Compare(recent(b).Redelivered, recent(a).Redelivered)
	})
	lines := make([]string, len(queues))
	for i, name := range queues {
		n := recent(name)
		lines[i] = fmt.Sprintf("%s (%s %s, %s %s in %s)", text.Name(name),
			text.Grouped(n.Redelivered), text.Plural(n.Redelivered, "redelivery"),
			text.Grouped(n.Acknowledged), text.Plural(n.Acknowledged, "acknowledgement"), text.Duration(n.Within))
	}
	m.report(Problem{
		Name: loops, Queues: queues, Text: "messages are redelivered again and again: " + listed(lines),
		Fix: m.ending(queues),
	})
}

// ending says how the loops of some queues end. With a native backoff consumers are meant to
// requeue: either most deliveries fail, or they requeue in a way that is never counted.
func (m *maker) ending(queues []string) string {
	var native, others []string
	for _, name := range queues {
		w, _ := m.t.WorkQueue(name)
		if _, is := m.t.NativeBackoff(w.Backoff); is {
			native = append(native, name)
		} else {
			others = append(others, name)
		}
	}
	var out []string
	if len(others) > 0 {
		out = append(out, "let consumers reject a failed message without requeue; if they do, they lose their channel or connection, and their logs say why"+
			m.endless(others))
	}
	if len(native) > 0 {
		out = append(out, "RabbitMQ retries by itself for "+listed(native)+
			": repair what the consumers call, and let them requeue with basic.reject, as basic.nack with requeue is never counted")
	}
	return strings.Join(out, "; ")
}

// endless says why no delivery limit ends the loops of some queues. It is empty if one does.
func (m *maker) endless(queues []string) string {
	of := func(kind string) bool {
		return slices.ContainsFunc(queues, func(name string) bool { return m.have[name].Type() == kind })
	}
	out := ""
	if of(topology.Classic) {
		out = "; classic queues have no delivery limit"
	}
	if of(topology.Quorum) && m.state.AtLeast(4, 3) {
		out += "; this broker does not count basic.nack with requeue, so that no delivery limit ends it"
	}
	return out
}

// stuck reports queues whose consumers have held messages for long.
func (m *maker) stuck() {
	queues := m.with(m.o.Traffic.Long, m.stuckIn)
	if len(queues) == 0 {
		return
	}
	lines := make([]string, len(queues))
	for i, name := range queues {
		u := m.state.Usage[name]
		lines[i] = counted(text.Name(name), u.Held())
		if u.Ready > 0 {
			lines[i] = fmt.Sprintf("%s (%s, and %d more %s)", text.Name(name), text.Count(u.Held(), "message"), u.Ready,
				text.Choose(u.Ready, "waits", "wait"))
		}
	}
	m.report(Problem{
		Name: stuck, Queues: queues,
		Text: fmt.Sprintf("consumers hold messages, and by the broker's statistics none was delivered or acknowledged for %s: %s",
			text.Duration(m.o.Traffic.Long[queues[0]].Within), listed(lines)),
		Fix: "look at the consumers: they hang, wait for something, or have jobs that take longer; stopping one gives its messages back",
	})
}

// with returns the queues of known traffic for which is holds, in the order of their names.
func (m *maker) with(known map[string]topology.Traffic, is func(queue string) bool) []string {
	var out []string
	for name := range known {
		if is(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
