// Package status says how the retry plane of a topology is now: what waits
// where, who consumes, and what a person should look at. It is pure: it gets
// the topology and what was read from the broker.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Report is the state of one topology.
type Report struct {
	Topology string
	VHost    string
	// Queues are those of the topology that exist: work queues in the order of
	// the file and the legacy queues whose place they take, then the failed and retry queues of each backoff in the order in
	// which a message comes through, then dead and unroutable queues.
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
	// Owner and Severity are those of the work queue that a work or dead queue
	// belongs to. Empty for queues that several share.
	Owner    string
	Severity string
}

// Make gives the report of a topology. Counts are as old as the broker's
// statistics, up to 5 seconds.
func Make(t topology.Topology, state plan.State) Report {
	m := maker{
		t: t, state: state, out: Report{Topology: t.Name, VHost: state.VHost},
		have: map[string]topology.Queue{}, seen: map[string]bool{}, dead: map[string]int{},
	}
	for _, q := range state.Have.Queues {
		m.have[q.Name] = q
	}
	for _, w := range t.Works {
		m.dead[w.Dead]++
	}
	m.queues()
	m.warnings()
	return m.out
}

type maker struct {
	t     topology.Topology
	state plan.State
	have  map[string]topology.Queue // those that exist, by name
	seen  map[string]bool           // those that were looked at
	dead  map[string]int            // how many work queues use a dead-letter queue
	gone  []string                  // those that do not exist
	out   Report
}

func (m *maker) queues() {
	for _, w := range m.t.Works {
		m.add(Queue{Name: w.Queue, Role: topology.RoleWork, Backoff: w.Backoff, Owner: w.Owner, Severity: w.Severity})
	}
	for _, w := range m.t.Works {
		if _, alive := m.have[w.Replaces]; alive {
			m.add(Queue{Name: w.Replaces, Role: topology.RoleLegacy, Owner: w.Owner, Severity: w.Severity})
		}
	}
	for _, l := range m.t.Loops {
		m.add(Queue{Name: l.Failed, Role: topology.RoleFailed, Backoff: l.Backoff})
		for _, s := range l.Steps {
			m.add(Queue{Name: s.Queue, Role: topology.RoleRetry, Backoff: l.Backoff, Delay: s.Delay})
		}
	}
	for _, w := range m.t.Works {
		q := Queue{Name: w.Dead, Role: topology.RoleDead}
		if m.dead[w.Dead] == 1 {
			q.Owner, q.Severity = w.Owner, w.Severity
		}
		m.add(q)
	}
	unroutable := topology.UnroutableName(m.t.Name)
	_, exists := m.have[unroutable] // it may be left from a file that had queues
	if exists || slices.ContainsFunc(m.t.Queues, func(q topology.Queue) bool { return q.Name == unroutable }) {
		m.add(Queue{Name: unroutable, Role: topology.RoleUnroutable})
	}
}

// add fills in what the broker says, once for each queue.
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
	m.out.Queues = append(m.out.Queues, q)
}

// warnings names what a person should look at.
func (m *maker) warnings() {
	var idle []string
	for _, q := range m.out.Queues {
		switch {
		case q.Role == topology.RoleWork && q.Consumers == 0:
			idle = append(idle, q.Name)
		case q.Role == topology.RoleFailed && q.Messages > 0 && q.Consumers == 0:
			m.warn("no-processor", fmt.Sprintf("%s holds %s and nobody reads it: run dlxctl process", q.Name, messages(q.Messages)))
		case q.Role == topology.RoleUnroutable && q.Messages > 0:
			m.warn("unroutable", fmt.Sprintf("%s holds %s that fitted nowhere: the header retry-error says why", q.Name, messages(q.Messages)))
		}
	}
	if len(idle) > 0 {
		m.warn("no-consumers", "nobody consumes from "+strings.Join(idle, ", "))
	}
	if len(m.gone) > 0 {
		m.warn("not-applied", "these queues of the file do not exist: "+strings.Join(m.gone, ", ")+"; run dlxctl apply")
	}
	p := plan.Make(m.t, m.state, plan.Options{})
	if n := len(p.Changes); n > 0 && len(m.gone) == 0 {
		m.warn("not-applied", fmt.Sprintf("the broker differs from the file in %s; run dlxctl plan", places(n)))
	}
	for _, w := range p.Warnings {
		if slices.Contains([]string{"overruled", "starves-tier", "retired-tier", "migration-pending", "alarm"}, w.Name) {
			m.out.Warnings = append(m.out.Warnings, w)
		}
	}
	if dropping := plan.Dropping(m.state); len(dropping) > 0 {
		m.warn("drops-at-limit", "these consumed quorum queues have a delivery limit and no dead-lettering, so that a message which fails often enough is dropped: "+strings.Join(dropping, ", "))
	}
}

func (m *maker) warn(name, text string) {
	m.out.Warnings = append(m.out.Warnings, plan.Warning{Name: name, Text: text})
}

// places gives "1 place" or "2 places".
func places(n int) string {
	if n == 1 {
		return "1 place"
	}
	return fmt.Sprintf("%d places", n)
}

// messages gives "1 message" or "2 messages".
func messages(n int64) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
