// Package status says how the retry plane of a topology is now: what is wrong and what to do about
// it, what waits in which queue, and who consumes. It is pure: it gets the topology and what was
// read from the broker.
package status

import (
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Report is the state of one topology. Its queues are in this order: work queues as in the file,
// and the legacy queues whose place they take; the failed and retry queues of each backoff in the
// order in which a message comes through, those that are no longer in the file last; dead and
// unroutable queues, and those of the desk.
type Report struct {
	Format   jsondoc.V1 `json:"version"`
	Topology string     `json:"topology"`
	VHost    string     `json:"vhost"`
	// At is when the broker was read.
	At time.Time `json:"time,omitzero"`
	// Wrong counts the warnings that are problems, not notes.
	Wrong int `json:"problems"`
	// Queues are all queues of the topology that exist.
	Queues []Queue `json:"queues"`
	// Works are the work queues of the file that exist, each legacy queue behind its successor.
	Works []Work `json:"workQueues"`
	// Problems are what a person should act on, most urgent first, and then notes.
	Problems []Problem `json:"warnings"`
	// Delays are the delays of the file whose queues exist.
	Delays []Delay `json:"delays,omitempty"`
	// Why are what dead letters died of, where a person asked to look at them.
	Why []Why `json:"why,omitempty"`

	Cluster string `json:"-"`
	Version string `json:"-"` // of the broker
	// Backoffs are those of the file, then those that are no longer in it and still have queues.
	Backoffs []Backoff `json:"-"`
}

// Queue is the state of one queue.
type Queue struct {
	Name string        `json:"name"`
	Role topology.Role `json:"role"`
	// Backoff is that of a work, failed or retry queue. Empty for others.
	Backoff string `json:"backoff"`
	// DelayOf is the delay of the file that a failed or retry queue belongs to, which has no backoff
	// then. Empty for others.
	DelayOf string `json:"delayOf,omitempty"`
	// Delay is how long messages wait in a retry queue. Zero for others.
	Delay time.Duration `json:"delay"`
	Type  string        `json:"type"`
	// Messages is all that the queue holds, ready or not.
	Messages       int64 `json:"messages"`
	Unacknowledged int64 `json:"unacknowledged"`
	// Other is how many messages are neither ready nor unacknowledged: RabbitMQ is dead-lettering
	// them, or delays them.
	Other     int64 `json:"other,omitempty"`
	Consumers int64 `json:"consumers"`
	// Owner and Severity are those of the work queue that a work or dead queue
	// belongs to. Empty for queues that several share.
	Owner    string `json:"owner"`
	Severity string `json:"severity"`
	// ConsumersUnknown says that the broker did not report how many there are.
	ConsumersUnknown bool `json:"consumersUnknown,omitempty"`
	// Oldest is the timestamp that the publisher gave the message at the head. Zero: it gave none,
	// or the queue is not a classic one.
	Oldest time.Time `json:"oldest,omitzero"`
	// NextDue is when the first message that RabbitMQ delays in the queue is due, by statistics up
	// to 12 seconds old. Zero: none is known.
	NextDue time.Time `json:"nextDue,omitzero"`
}

// Options say what a report is about.
type Options struct {
	// At is when the broker was read.
	At time.Time
	// Filter chooses queues.
	Filter Filter
	// Traffic is what the statistics count of some queues.
	Traffic Traffic
	// InOutage are the work queues that are in outage, as processors tell.
	InOutage map[string]topology.Began
	// Command returns a command line of dlxctl to paste, from the words behind dlxctl. Nil: the
	// words as they are.
	Command func(words ...string) string
}

// Make returns the report of a topology. Counts are as old as the broker's
// statistics, up to 5 seconds, and the numbers of consumers up to 10.
func Make(t topology.Compiled, state topology.State, o Options) Report {
	t = policy.WithMatched(t, state.Have.Queues)
	m := maker{
		t: t, state: state, o: o,
		out:  Report{Topology: t.Name, VHost: state.VHost, Cluster: state.Cluster, Version: state.Version, At: o.At},
		have: map[string]topology.Queue{}, seen: map[string]bool{}, dead: map[string]int{},
		chosen: o.Filter.choose(t), leads: deadLetterRoutes(t, state),
	}
	if o.Command == nil {
		m.o.Command = func(words ...string) string { return strings.Join(append([]string{"dlxctl"}, words...), " ") }
	}
	for _, q := range state.Have.Queues {
		m.have[q.Name] = q
	}
	m.plan = plan.Make(t, state, plan.Options{})
	for _, w := range t.WorkQueues {
		for _, queue := range m.deadLetterQueues(w) {
			m.dead[queue]++
		}
	}
	m.desk = plan.DeskQueues(t.Name, state)
	m.queues()
	m.backoffs()
	m.delays()
	m.works()
	m.problems()
	if o.Filter.Problems {
		m.onlyProblems()
	}
	for _, p := range m.out.Problems {
		if !p.Note {
			m.out.Wrong++
		}
	}
	return m.out
}

type maker struct {
	t      topology.Compiled
	state  topology.State
	o      Options
	plan   plan.Plan
	desk   []plan.DeskQueue
	have   map[string]topology.Queue // those that exist, by name
	seen   map[string]bool           // those that were looked at
	leads  map[string][]string       // the queues to which dead letters are led, by key
	dead   map[string]int            // how many work queues use a dead-letter queue
	chosen func(queue string) bool   // by the filter
	gone   []string                  // those that do not exist
	down   []string                  // those whose node is down: the broker does not list them
	out    Report
}

func (m *maker) queues() {
	for _, w := range m.t.WorkQueues {
		m.add(Queue{Name: w.Name, Role: topology.RoleWork, Backoff: w.Backoff, Owner: w.Owner, Severity: w.WorstSeverity()})
	}
	for _, w := range m.t.WorkQueues {
		if _, alive := m.have[w.Replaces]; alive {
			m.add(Queue{Name: w.Replaces, Role: topology.RoleLegacy, Owner: w.Owner, Severity: w.WorstSeverity()})
		}
	}
	for _, l := range m.t.Backoffs {
		m.add(Queue{Name: l.FailedQueue, Role: topology.RoleFailed, Backoff: l.Name})
		for _, s := range l.AllTiers() {
			m.add(Queue{Name: s.Queue, Role: topology.RoleRetry, Backoff: l.Name, Delay: s.Delay})
		}
	}
	for _, q := range m.retired() {
		m.add(q)
	}
	m.addDelays()
	for _, w := range m.t.WorkQueues {
		for _, queue := range m.deadLetterQueues(w) {
			q := Queue{Name: queue, Role: topology.RoleDeadLetter}
			if m.dead[queue] == 1 {
				q.Owner, q.Severity = w.Owner, w.WorstSeverity()
			}
			m.add(q)
		}
	}
	for _, e := range m.t.Matches { // it is there before the first queue that the entry covers
		m.add(Queue{Name: e.DeadLetterQueue, Role: topology.RoleDeadLetter, Owner: e.Owner, Severity: e.Severity})
	}
	for _, queue := range m.plan.RetiringDead { // of which queue is not known any more
		m.add(Queue{Name: queue, Role: topology.RoleDeadLetter})
	}
	unroutable := topology.UnroutableName(m.t.Name)
	_, exists := m.have[unroutable] // it may be left from a file that had queues
	if exists || slices.ContainsFunc(m.t.Queues, func(q topology.Queue) bool { return q.Name == unroutable }) {
		m.add(Queue{Name: unroutable, Role: topology.RoleUnroutable})
	}
	for _, q := range m.plan.Staying { // what a legacy queue still needs
		m.add(Queue{Name: q.Name, Role: q.Label.Role, Backoff: q.Label.Backoff})
	}
	for _, q := range m.desk {
		if q.Role != topology.RoleLog { // it has records, and no messages
			m.add(Queue{Name: q.Name, Role: q.Role})
		}
	}
}

// deadLetterQueues returns where the dead letters of a work queue are: in the queue of the file,
// in those that the broker leads them to now, and in its own one of a previous file.
func (m *maker) deadLetterQueues(w topology.WorkQueue) []string {
	out := []string{w.DeadLetterQueue}
	add := func(queue string) {
		if !slices.Contains(out, queue) {
			out = append(out, queue)
		}
	}
	for _, queue := range m.leads[topology.AddressKey(w.Name)] {
		add(queue)
	}
	if own := topology.DeadLetterQueueName(w.Name); slices.Contains(m.plan.RetiringDead, own) {
		add(own)
	}
	return out
}

// deadLetterRoutes returns the queues to which the exchanges of dead letters of a topology lead, by
// key.
func deadLetterRoutes(t topology.Compiled, state topology.State) map[string][]string {
	out := map[string][]string{}
	dead := topology.DeadLetterName(t.Name)
	for _, b := range state.Have.Bindings {
		owner, _ := topology.Owner(b.Arguments)
		if owner == t.Name && b.DestinationType == topology.ToQueue &&
			(b.Source == dead || b.Source == topology.NextExchangeName(dead)) {
			out[b.Key] = append(out[b.Key], b.Destination)
		}
	}
	return out
}

// retired returns the failed and retry queues that carry the mark of the topology and whose
// backoff, or tier, is no longer in the file: what they hold comes back to its queue yet.
func (m *maker) retired() []Queue {
	var out []Queue
	for _, q := range m.state.Have.Queues {
		owner, _ := topology.Owner(q.Arguments)
		if owner != m.t.Name || m.seen[q.Name] {
			continue
		}
		if backoff, failed := topology.FailedBackoff(m.t.Name, q.Name); failed {
			out = append(out, Queue{Name: q.Name, Role: topology.RoleFailed, Backoff: backoff})
		} else if backoff, tier := topology.RetryBackoff(m.t.Name, q.Name); tier {
			ttl, _ := q.Arguments[topology.ArgMessageTTL].(int64)
			out = append(out, Queue{
				Name: q.Name, Role: topology.RoleRetry, Backoff: backoff,
				Delay: time.Duration(ttl) * time.Millisecond,
			})
		}
	}
	return out
}

// add adds a queue with what the broker reports of it, once for each queue that the filter chooses.
func (m *maker) add(q Queue) {
	if m.seen[q.Name] || !m.chosen(q.Name) {
		return
	}
	m.seen[q.Name] = true
	have, ok := m.have[q.Name]
	if slices.Contains(m.state.Down, q.Name) {
		m.down = append(m.down, q.Name)
		return
	}
	if !ok {
		m.gone = append(m.gone, q.Name)
		return
	}
	u := m.state.Usage[q.Name]
	q.Type = have.Type()
	q.Messages, q.Consumers = u.Ready+u.Unacknowledged, u.Consumers
	q.Unacknowledged, q.Other = u.Held(), u.Other
	q.ConsumersUnknown, q.Oldest = u.ConsumersUnknown, u.Oldest
	if u.Other > 0 { // else the statistics are older than that
		q.NextDue = u.NextDue
	}
	m.out.Queues = append(m.out.Queues, q)
}
