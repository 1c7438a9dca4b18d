package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Problem is something that a person should act on or, if it is a note, know.
type Problem struct {
	// Name is one of a fixed set, such as no-processor or dead-letters.
	Name string `json:"name"`
	// Text says what is wrong.
	Text string `json:"text"`
	// Fix says what to do, where Command does not say enough. Empty: nothing more.
	Fix string `json:"fix"`
	// Command is the command that fixes it, or that shows more. Empty: no command does.
	Command string `json:"command"`
	// Note says that nothing is wrong: it does not count as a problem.
	Note bool `json:"note,omitempty"`
	// Queues are all queues that it is about. Empty if it is about the topology as a whole.
	Queues []string `json:"queues"`
}

// The names of the problems of one queue.
const (
	comesBack        = "comes-back"
	consumersUnknown = "consumers-unknown"
	deadLetters      = "dead-letters"
	loops            = "loops"
	nodeDown         = "node-down"
	noConsumers      = "no-consumers"
	notApplied       = "not-applied"
	outage           = "outage"
	overdue          = "overdue"
	tierLate         = "tier-late"
	stuck            = "stuck"
)

// problems adds what a person should act on, most urgent first, and the notes behind it.
func (m *maker) problems() {
	m.planProblems(topology.WarnAlarm)
	m.downs()
	m.missing()
	m.unprocessed(false)
	m.unprocessedDelays(false)
	m.unprocessed(true)
	m.unprocessedDelays(true)
	m.delaysComeBack()
	m.overdue()
	m.lateTiers()
	m.outages()
	m.consumers()
	m.loops()
	m.stuck()
	m.unroutable()
	m.deadLetters()
	m.deskProblems()
	m.policies()
	m.planProblems(topology.WarnOverruled, topology.WarnStarvesTier, topology.WarnDeskPolicy)
	if n := len(slices.DeleteFunc(slices.Clone(m.plan.Changes), comesBackNow)); n > 0 && len(m.gone) == 0 {
		m.report(Problem{
			Name: notApplied, Text: fmt.Sprintf("the broker differs from the file in %s", text.Count(n, "place")),
			Command: m.o.Command("plan"),
		})
	}
	m.planProblems(topology.WarnMigrationPending, topology.WarnRetiredTier, topology.WarnRetiredBackoff,
		topology.WarnRetiredAddress, topology.WarnRetiredDeadLetters)
	m.forwarders()
	slices.SortStableFunc(m.out.Problems, func(a, b Problem) int {
		return cmp.Compare(rank(a.Note), rank(b.Note))
	})
}

func rank(note bool) int {
	if note {
		return 1
	}
	return 0
}

func (m *maker) report(p Problem) { m.out.Problems = append(m.out.Problems, p) }

// planProblems adds warnings of the plan, by name.
func (m *maker) planProblems(names ...string) {
	commands := map[string]string{
		topology.WarnAlarm:              "rabbitmq-diagnostics alarms",
		topology.WarnMigrationPending:   m.o.Command("migrate", "status"),
		topology.WarnRetiredTier:        m.o.Command("apply", "--wait"),
		topology.WarnRetiredBackoff:     m.o.Command("apply", "--wait"),
		topology.WarnRetiredAddress:     m.o.Command("apply"),
		topology.WarnRetiredDeadLetters: m.o.Command("desk"),
	}
	for _, w := range m.plan.Warnings {
		if slices.Contains(names, w.Name) {
			p := Problem{
				Name: w.Name, Text: w.Text, Command: cmp.Or(commands[w.Name], m.o.Command("plan")),
				Note: w.Name == topology.WarnMigrationPending || strings.HasPrefix(w.Name, "retired-"),
			}
			if w.Name == topology.WarnAlarm {
				p.Fix = "free memory there, or raise vm_memory_high_watermark; free disk space, or lower disk_free_limit"
			}
			m.report(p)
		}
	}
}

// outages reports work queues in outage, and messages that wait for the end of one.
func (m *maker) outages() {
	for _, q := range m.out.Queues {
		b, _ := m.t.Backoff(q.Backoff)
		if b.Outage == nil || q.Name != b.Outage.Tier.Queue {
			continue
		}
		if queues := m.outIn(b); len(queues) > 0 {
			m.inOutage(q, queues)
		} else if q.Messages > 0 {
			m.mayWait(q, b)
		}
	}
}

// outIn returns the chosen work queues of a backoff that are in outage.
func (m *maker) outIn(b topology.Backoff) []topology.WorkQueue {
	return slices.DeleteFunc(slices.Clone(m.t.WorkQueues), func(w topology.WorkQueue) bool {
		_, out := m.began(w)
		return !out || w.Backoff != b.Name || !m.chosen(w.Name)
	})
}

// began returns when the outage of a work queue began, by the clock of a processor. Whether there
// is one only the processors of its backoff know.
func (m *maker) began(w topology.WorkQueue) (topology.Began, bool) {
	b, _ := m.t.Backoff(w.Backoff)
	began, out := m.o.InOutage[w.Name]
	if !m.o.At.IsZero() && began.At.After(m.o.At) {
		began.At = m.o.At // the clock of the processor is ahead
	}
	return began, out && b.Outage != nil
}

// inOutage reports work queues in outage whose messages wait in q.
func (m *maker) inOutage(q Queue, queues []topology.WorkQueue) {
	said := text.Each(queues, func(w topology.WorkQueue) string {
		began, _ := m.began(w)
		return text.Name(w.Name) + " " + m.since(began)
	})
	line := "in outage: " + text.Some(said)
	if len(queues) == 1 {
		began, _ := m.began(queues[0])
		line = text.Name(queues[0].Name) + ": in outage " + m.since(began)
	}
	switch n := q.Messages; n {
	case 0:
		line += ", and no message waits for its end yet"
	case 1:
		line += fmt.Sprintf(", 1 message waits in %s, it is not lost", text.Name(q.Name))
	default:
		line += fmt.Sprintf(", %s messages wait in %s, none is lost", text.Grouped(n), text.Name(q.Name))
	}
	names := text.Each(queues, func(w topology.WorkQueue) string { return w.Name })
	m.report(Problem{
		Name: outage, Text: line, Fix: "repair what the consumers call, such as a database", Queues: append(names, q.Name),
	})
}

// since says when an outage began, in the time zone of the report, with the day unless it is that
// of the report.
func (m *maker) since(began topology.Began) string {
	out := "since "
	if began.AtLeast {
		out += "at least "
	}
	at, layout := began.At.In(m.o.At.Location()), "2006-01-02 15:04"
	if at.Format(time.DateOnly) == m.o.At.Format(time.DateOnly) {
		layout = "15:04"
	}
	return out + at.Format(layout)
}

// mayWait reports messages that wait in q where no processor tells of an outage. Fewer than an
// outage takes may wait because it is not known yet whether there is one: they are a note.
func (m *maker) mayWait(q Queue, b topology.Backoff) {
	m.report(Problem{
		Name: outage, Note: float64(q.Messages) < b.Outage.Failing*float64(b.Outage.Of),
		Text: fmt.Sprintf("%s %s in %s for the end of an outage of %s; %s lost", text.Count(q.Messages, "message"),
			text.Choose(q.Messages, "waits", "wait"), text.Name(q.Name), m.mayBeInOutage(q.Backoff),
			text.Choose(q.Messages, "it is not", "none of them is")),
		Fix: "repair what the consumers call, such as a database; the log of dlxctl process names the work queues, " +
			"and so does status for a user with the tag monitoring",
		Queues: []string{q.Name},
	})
}

// mayBeInOutage names the work queues of a backoff, of which no processor tells the one that is in
// outage.
func (m *maker) mayBeInOutage(backoff string) string {
	var names []string
	for _, w := range m.t.WorkQueues {
		if w.Backoff == backoff {
			names = append(names, text.Name(w.Name))
		}
	}
	if len(names) > 1 {
		return "one or more of " + text.Some(names)
	}
	return strings.Join(names, "")
}

// downs reports queues whose node is down.
func (m *maker) downs() {
	if len(m.down) == 0 {
		return
	}
	line := "the nodes of these queues are down, and the broker does not list them: " + listed(m.down)
	if len(m.down) == 1 {
		line = "the node of the queue " + text.Name(m.down[0]) + " is down: the queue exists, and the broker does not list it"
	}
	m.report(Problem{Name: nodeDown, Text: line, Fix: "start the node", Queues: m.down})
}

// missing reports queues of the file that do not exist.
func (m *maker) missing() {
	if len(m.gone) == 0 {
		return
	}
	line := "these queues of the file do not exist: " + listed(m.gone)
	switch {
	case len(m.gone) == 1:
		line = "the queue " + text.Name(m.gone[0]) + " does not exist"
	case len(m.out.Queues) == 0 && m.o.Filter.everything(): // others may exist that a filter leaves out
		line = fmt.Sprintf("none of the %s of the file exists", text.Count(len(m.gone), "queue"))
	}
	m.report(Problem{Name: notApplied, Text: line, Command: m.o.Command("apply"), Queues: m.gone})
}

// unprocessed reports failed queues that no processor consumes: those with messages, and the
// others, because a message that is rejected waits there forever. Those for which the file accepts
// that are a note.
func (m *maker) unprocessed(accepted bool) {
	var names, full []string
	waiting, asked := int64(0), true
	for _, b := range m.out.Backoffs {
		l, _ := m.t.Backoff(b.Name)
		if !b.Unprocessed || topology.Accepts(m.t.Accepted, topology.WarnNoProcessor, []string{l.FailedQueue}) != accepted {
			continue
		}
		names, asked = append(names, l.FailedQueue), asked && b.Asked
		if b.Failed > 0 {
			full = append(full, counted(l.FailedQueue, b.Failed))
			waiting += b.Failed
		}
	}
	if len(names) == 0 {
		return
	}
	line := "no processor is consuming " + listed(names)
	switch {
	case waiting == 0:
		line += ": messages that consumers reject will wait there, and no retry will happen"
	case len(names) == 1:
		line += fmt.Sprintf(", where %s %s", text.Count(waiting, "message"), text.Choose(waiting, "waits", "wait"))
	default:
		line += fmt.Sprintf("; %s %s in %s", text.Count(waiting, "message"), text.Choose(waiting, "waits", "wait"),
			listed(full))
	}
	if !asked {
		line += " (" + plan.ByStatistics + ")"
	}
	m.report(Problem{
		Name: topology.WarnNoProcessor, Note: accepted, Text: line, Command: m.o.Command("process"), Queues: names,
	})
}

// lateTiers reports retry queues whose messages do not return to their work queues in time.
func (m *maker) lateTiers() {
	var queues, lines []string
	for _, q := range m.out.Queues {
		u := m.state.Usage[q.Name]
		if q.DelayOf == "" && q.Role == topology.RoleRetry && (topology.Tier{Delay: q.Delay}).Late(u) {
			queues, lines = append(queues, q.Name), append(lines, counted(q.Name, u.Unacknowledged))
		}
	}
	if len(queues) > 0 {
		m.report(Problem{
			Name: tierLate, Queues: queues, Command: m.o.Command("plan"),
			Text: "messages are past their delay and have not returned to their work queues: " + listed(lines),
			Fix:  "look again in 10s; if the numbers do not fall, a work queue accepts no messages or is not bound, and this shows policies and bindings:",
		})
	}
}

// unroutable reports messages that could not be routed.
func (m *maker) unroutable() {
	for _, q := range m.out.Queues {
		if q.Role == topology.RoleUnroutable && q.Messages > 0 {
			m.report(Problem{
				Name: "unroutable", Queues: []string{q.Name}, Command: m.o.Command("desk", "groups", q.Name),
				Text: fmt.Sprintf("%s holds %s that could not be routed; where the processor put them there, the header retry-error says why",
					text.Name(q.Name), text.Count(q.Messages, "message")),
			})
		}
	}
}

// deadLetters reports dead-letter queues that are not empty, the fullest first.
func (m *maker) deadLetters() {
	var full []Queue
	total := int64(0)
	for _, q := range m.out.Queues {
		if q.Role == topology.RoleDeadLetter && q.Messages > 0 {
			full, total = append(full, q), total+q.Messages
		}
	}
	if len(full) == 0 {
		return
	}
	slices.SortStableFunc(full, func(a, b Queue) int { return cmp.Compare(b.Messages, a.Messages) })
	var queues, lines []string
	for _, q := range full {
		queues, lines = append(queues, q.Name), append(lines, counted(q.Name, q.Messages))
	}
	line := fmt.Sprintf("%s %s in %s", text.Count(total, "dead letter"), text.Choose(total, "is", "are"), listed(lines))
	if len(full) == 1 {
		line = fmt.Sprintf("%s holds %s", text.Name(full[0].Name), text.Count(total, "dead letter"))
		if full[0].Owner != "" {
			line += fmt.Sprintf(" of %s (%s)", topology.Printable(full[0].Owner), full[0].Severity)
		}
	}
	m.report(Problem{Name: deadLetters, Text: line, Command: m.o.Command("desk", "groups", full[0].Name), Queues: queues})
}

// consumers reports work queues without consumers, those with messages first, and those whose
// consumers are not known.
func (m *maker) consumers() {
	idle, unknown := m.withProblem(noConsumers), m.withProblem(consumersUnknown)
	slices.SortStableFunc(idle, func(a, b Work) int {
		return cmp.Compare(b.Ready+b.Unacknowledged+b.Other, a.Ready+a.Unacknowledged+a.Other)
	})
	var queues, lines []string
	for _, w := range idle {
		queues = append(queues, w.Name)
		lines = append(lines, counted(w.Name, w.Ready+w.Unacknowledged+w.Other))
	}
	if len(idle) > 0 {
		p := Problem{
			Name: noConsumers, Text: "no consumer is connected to " + listed(lines), Queues: queues,
			Fix: "start " + text.Choose(len(idle), "the service that consumes it", "the services that consume them"),
		}
		if i := slices.IndexFunc(idle, m.isDeclared); i >= 0 {
			p.Fix += "; for one that is not written yet, this prints a consumer to start from:"
			p.Command = m.o.Command("generate", "args", idle[i].Name)
		}
		m.report(p)
	}
	queues = nil
	for _, w := range unknown {
		queues = append(queues, w.Name)
	}
	for _, q := range m.out.Queues {
		if _, wanted := m.t.Backoff(q.Backoff); q.Role == topology.RoleFailed && q.ConsumersUnknown && wanted {
			queues = append(queues, q.Name)
		}
	}
	if len(queues) > 0 {
		m.report(Problem{
			Name: consumersUnknown, Text: listed(queues) + ": " + topology.Usage{ConsumersUnknown: true}.ConsumersText(),
			Queues: queues,
			Fix:    "look again in 10s; if nothing changes, check that the node of each queue is running",
		})
	}
}

// isDeclared reports whether the file names a work queue. Those that a match covers are declared by
// services, and generate args knows only the file.
func (m *maker) isDeclared(w Work) bool {
	work, _ := m.t.WorkQueue(w.Name)
	return work.Match == ""
}

func (m *maker) withProblem(name string) []Work {
	var out []Work
	for _, w := range m.out.Works {
		if slices.Contains(w.Problems, name) {
			out = append(out, w)
		}
	}
	return out
}

// policies reports what policies of other teams do to generated queues, and work queues that drop
// messages. What happens to queues of other teams is their affair.
func (m *maker) policies() {
	for _, harm := range m.plan.Harms {
		m.report(Problem{Name: "harmful-policy", Text: harm, Command: m.o.Command("plan")})
	}
	dropping := slices.DeleteFunc(policy.Dropping(m.state), func(name string) bool { return !m.seen[name] })
	if len(dropping) > 0 {
		m.report(Problem{
			Name: "drops-at-limit", Queues: dropping, Command: m.o.Command("plan"),
			Text: "these consumed quorum queues have a delivery limit and no dead-lettering, so that a message which fails often enough is dropped: " + listed(dropping),
		})
	}
}

// forwarders notes the legacy queues that only forward.
func (m *maker) forwarders() {
	for _, w := range m.t.WorkQueues {
		if w.Replaces != "" && m.chosen(w.Replaces) && plan.Forwards(m.t.Name, m.state, w.Replaces) {
			m.report(Problem{
				Name: "forwards", Note: true, Queues: []string{w.Replaces, w.Name}, Command: m.o.Command("migrate", "status"),
				Text: fmt.Sprintf("%s still exists and forwards to %s what is published to its name; 'dlxctl migrate status' shows when the last message arrived, and 'dlxctl migrate' deletes it once no more arrive",
					text.Name(w.Replaces), text.Name(w.Name)),
			})
		}
	}
}

// deskProblems adds the runs of the desk that have not ended, and the parked messages.
func (m *maker) deskProblems() {
	for _, q := range m.desk {
		n := q.Usage.Ready + q.Usage.Unacknowledged
		switch {
		case !m.seen[q.Name]: // the filter does not choose it
		case q.Role == topology.RoleHold && q.Active:
			m.report(Problem{
				Name: topology.WarnDeskRun, Note: true, Queues: []string{q.Name}, Command: m.o.Command("desk", "run", "list"),
				Text: fmt.Sprintf(
					"the run %s of the desk is in progress, and %s has its messages: 'dlxctl desk run list' shows how far it is", q.Run,
					q.Name),
			})
		case q.Role == topology.RoleHold:
			m.report(Problem{
				Name: topology.WarnDeskRun, Queues: []string{q.Name}, Command: m.o.Command("desk", "run", "list"),
				Text: fmt.Sprintf(
					"no process works on the run %[1]s of the desk, and %[2]s has its messages: 'dlxctl desk run list' shows what the run does, 'dlxctl desk run resume %[1]s --yes' goes on with that, and 'dlxctl desk run return %[1]s' gives them back",
					q.Run, q.Name),
			})
		case q.Role == topology.RoleParked && n > 0:
			m.report(Problem{
				Name: topology.WarnDeskParked, Note: true, Queues: []string{q.Name}, Command: m.o.Command("desk", "list", q.Name),
				Text: fmt.Sprintf(
					"%[1]s has %[2]s that a person parked; the broker deletes each 30 days later: 'dlxctl desk list %[1]s' shows them, and 'dlxctl desk restore' gives them back",
					q.Name, text.Count(n, "message")),
			})
		}
	}
}

// counted names a queue, with how many messages it holds if it holds any.
func counted(name string, messages int64) string {
	if messages == 0 {
		return name
	}
	return fmt.Sprintf("%s (%s)", name, text.Count(messages, "message"))
}

// mostListed is how many queues a problem names. -o json names all.
const mostListed = 4

// listed names queues, and counts those that do not fit.
func listed(names []string) string { return topology.Printable(text.ListFirst(names, mostListed)) }
