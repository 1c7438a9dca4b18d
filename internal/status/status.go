// Package status says how the retry plane of a topology is now: what waits
// where, who consumes, and what a person should look at. It is pure: it gets
// the topology and what was read from the broker.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Report is the state of one topology.
type Report struct {
	Topology string
	VHost    string
	// Queues are those of the topology that exist: work queues in the order of
	// the file and the legacy queues whose place they take, then the failed and retry queues
	// of each backoff in the order in which a message comes through, those that are no longer
	// in the file last, then dead and unroutable queues, and those of the desk.
	Queues   []Queue
	Warnings []plan.Warning
}

// Queue is the state of one queue.
type Queue struct {
	Name string
	Role topology.Role
	// Backoff is that of a work, failed or retry queue. Empty for others.
	Backoff string
	// Delay is how long messages wait in a retry queue. Zero for others.
	Delay time.Duration
	Type  string
	// Messages is all that the queue holds, ready or not.
	Messages       int64
	Unacknowledged int64
	Consumers      int64
	// ConsumersUnknown says that the broker did not report how many there are.
	ConsumersUnknown bool
	// Owner and Severity are those of the work queue that a work or dead queue
	// belongs to. Empty for queues that several share.
	Owner    string
	Severity string
}

// Make gives the report of a topology. Counts are as old as the broker's
// statistics, up to 5 seconds.
func Make(t topology.Compiled, state topology.State) Report {
	m := maker{
		t: t, state: state, out: Report{Topology: t.Name, VHost: state.VHost},
		have: map[string]topology.Queue{}, seen: map[string]bool{}, dead: map[string]int{},
	}
	for _, q := range state.Have.Queues {
		m.have[q.Name] = q
	}
	for _, w := range t.WorkQueues {
		m.dead[w.DeadLetterQueue]++
	}
	m.plan = plan.Make(t, state, plan.Options{})
	m.desk = plan.DeskQueues(t.Name, state)
	m.queues()
	m.warnings()
	return m.out
}

type maker struct {
	t     topology.Compiled
	state topology.State
	plan  plan.Plan
	desk  []plan.DeskQueue
	have  map[string]topology.Queue // those that exist, by name
	seen  map[string]bool           // those that were looked at
	dead  map[string]int            // how many work queues use a dead-letter queue
	gone  []string                  // those that do not exist
	out   Report
}

func (m *maker) queues() {
	for _, w := range m.t.WorkQueues {
		m.add(Queue{Name: w.Name, Role: topology.RoleWork, Backoff: w.Backoff, Owner: w.Owner, Severity: w.Severity})
	}
	for _, w := range m.t.WorkQueues {
		if _, alive := m.have[w.Replaces]; alive {
			m.add(Queue{Name: w.Replaces, Role: topology.RoleLegacy, Owner: w.Owner, Severity: w.Severity})
		}
	}
	for _, l := range m.t.Backoffs {
		m.add(Queue{Name: l.FailedQueue, Role: topology.RoleFailed, Backoff: l.Name})
		for _, s := range l.Tiers {
			m.add(Queue{Name: s.Queue, Role: topology.RoleRetry, Backoff: l.Name, Delay: s.Delay})
		}
	}
	for _, q := range m.retired() {
		m.add(q)
	}
	for _, w := range m.t.WorkQueues {
		q := Queue{Name: w.DeadLetterQueue, Role: topology.RoleDeadLetter}
		if m.dead[w.DeadLetterQueue] == 1 {
			q.Owner, q.Severity = w.Owner, w.Severity
		}
		m.add(q)
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
		m.add(Queue{Name: q.Name, Role: q.Role})
	}
}

// retired gives the failed and retry queues that carry the mark of the topology and whose
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

// add adds a queue with what the broker reports of it, once for each queue.
func (m *maker) add(q Queue) {
	if m.seen[q.Name] {
		return
	}
	m.seen[q.Name] = true
	have, ok := m.have[q.Name]
	if !ok {
		m.gone = append(m.gone, q.Name)
		return
	}
	u := m.state.Usage[q.Name]
	q.Type = have.Type()
	q.Messages, q.Unacknowledged, q.Consumers = u.Ready+u.Unacknowledged, u.Unacknowledged, u.Consumers
	q.ConsumersUnknown = u.ConsumersUnknown
	m.out.Queues = append(m.out.Queues, q)
}

// warnings adds what an operator should look at.
func (m *maker) warnings() {
	var idle, unknown []string
	for _, q := range m.out.Queues {
		switch {
		case q.ConsumersUnknown && (q.Role == topology.RoleWork || q.Role == topology.RoleFailed):
			unknown = append(unknown, q.Name)
		case q.Role == topology.RoleWork && q.Consumers == 0:
			idle = append(idle, q.Name)
		case q.Role == topology.RoleFailed && q.Messages > 0 && q.Consumers == 0:
			m.out.Warnings = append(m.out.Warnings, plan.NoProcessor(q.Name, q.Messages))
		case q.Role == topology.RoleUnroutable && q.Messages > 0:
			m.warn("unroutable",
				fmt.Sprintf("%s holds %s that the processor could not route: the header retry-error says why", q.Name,
					text.Count(q.Messages, "message")))
		}
	}
	if len(idle) > 0 {
		m.warn("no-consumers", "no consumer is connected to "+strings.Join(idle, ", "))
	}
	if len(unknown) > 0 {
		m.warn("consumers-unknown", strings.Join(unknown, ", ")+": "+topology.Usage{ConsumersUnknown: true}.ConsumersText())
	}
	if len(m.gone) > 0 {
		m.warn("not-applied", "these queues of the file do not exist: "+strings.Join(m.gone, ", ")+"; run dlxctl apply")
	}
	m.deskWarnings()
	p := m.plan
	if n := len(p.Changes); n > 0 && len(m.gone) == 0 {
		m.warn("not-applied", fmt.Sprintf("the broker differs from the file in %s; run dlxctl plan", text.Count(n, "place")))
	}
	for _, text := range p.Harms {
		m.warn("harmful-policy", text+"; run dlxctl plan")
	}
	for _, w := range p.Warnings {
		if slices.Contains([]string{
			"overruled", "starves-tier", "retired-tier", "retired-backoff", "retired-address",
			"migration-pending", "alarm", "desk-policy",
		}, w.Name) {
			m.out.Warnings = append(m.out.Warnings, w)
		}
	}
	for _, w := range m.t.WorkQueues {
		if w.Replaces != "" && plan.Forwards(m.t.Name, m.state, w.Replaces) {
			m.warn("forwards", fmt.Sprintf("%s still exists and forwards to %s what is published to its name; 'dlxctl migrate status' shows when the last message arrived, and 'dlxctl migrate' deletes it once no more arrive",
				w.Replaces, w.Name))
		}
	}
	if dropping := policy.Dropping(m.state); len(dropping) > 0 {
		m.warn("drops-at-limit",
			"these consumed quorum queues have a delivery limit and no dead-lettering, so that a message which fails often enough is dropped: "+strings.Join(dropping, ", "))
	}
}

// deskWarnings adds the runs of the desk that have not ended, and the parked messages.
func (m *maker) deskWarnings() {
	for _, q := range m.desk {
		n := q.Usage.Ready + q.Usage.Unacknowledged
		switch {
		case q.Role == topology.RoleHold && q.Active:
			m.warn("desk-run", fmt.Sprintf(
				"the run %s of the desk is in progress, and %s has its messages: 'dlxctl desk runs' shows how far it is", q.Run,
				q.Name))
		case q.Role == topology.RoleHold:
			m.warn("desk-run", fmt.Sprintf(
				"no process works on the run %[1]s of the desk, and %[2]s has its messages: 'dlxctl desk resume %[1]s' sends them, 'dlxctl desk return %[1]s' gives them back, and 'dlxctl desk runs' shows the run",
				q.Run, q.Name))
		case n > 0:
			m.warn("desk-parked", fmt.Sprintf(
				"%[1]s has %[2]s that a person parked; the broker deletes each 30 days later: 'dlxctl desk list %[1]s' shows them, and 'dlxctl desk restore' gives them back",
				q.Name, text.Count(n, "message")))
		}
	}
}

func (m *maker) warn(name, text string) {
	m.out.Warnings = append(m.out.Warnings, plan.Warning{Name: name, Text: text})
}
