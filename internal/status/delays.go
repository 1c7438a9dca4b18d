package status

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Delay is the state of the queues of a delay of the file.
type Delay struct {
	Name string `json:"name"`
	// To is the exchange to which messages come that are due.
	To string `json:"to"`
	// Intake is how many messages wait for the processor, which has not read when they are due.
	Intake int64 `json:"intake"`
	// Waiting is how many messages wait in levels, and Due how many have left a level and wait for the
	// processor.
	Waiting int64 `json:"waiting"`
	Due     int64 `json:"due"`
	// Levels are the levels that have messages, the shortest first. The first says when the next
	// message may be due at the latest, if it is in its last level.
	Levels []Tier `json:"-"`
	// Processors is how many consumers the intake queue has. ProcessorsUnknown says that the broker
	// did not report it.
	Processors        int64 `json:"processors"`
	ProcessorsUnknown bool  `json:"processorsUnknown,omitempty"`
	// Unprocessed says that the queues exist and no processor consumes them, and Asked that the intake
	// queue itself was asked.
	Unprocessed bool `json:"-"`
	Asked       bool `json:"-"`

	queue string // the intake queue
	due   string // that from which it publishes
}

// Delays returns the delays of a topology whose queues exist, with what waits there.
func Delays(t topology.Compiled, state topology.State) []Delay {
	if len(t.Delays) == 0 {
		return nil
	}
	m := maker{
		t: t, state: state, chosen: func(string) bool { return true },
		have: map[string]topology.Queue{}, seen: map[string]bool{},
	}
	for _, q := range state.Have.Queues {
		m.have[q.Name] = q
	}
	m.addDelays()
	m.delays()
	return m.out.Delays
}

// WaitingIn says for people in which levels how many messages wait, and when the first is due that
// RabbitMQ delays. Empty: none waits in a level.
func (d Delay) WaitingIn(at time.Time) string {
	var levels []string
	for _, l := range d.Levels {
		name := text.Duration(l.Delay)
		if l.Timer {
			name = "timer"
		}
		levels = append(levels, fmt.Sprintf("%s: %d", name, l.Messages))
		if !l.NextDue.IsZero() {
			levels[len(levels)-1] += ", next due " + nextDue(l.NextDue, at)
		}
	}
	return strings.Join(levels, ", ")
}

// addDelays adds the queues of the delays of the file, and of those levels that it has no longer.
func (m *maker) addDelays() {
	for _, d := range m.t.Delays {
		for _, queue := range d.Queues() {
			m.add(Queue{Name: queue, Role: topology.RoleFailed, DelayOf: d.Name})
		}
		for _, l := range d.Levels {
			m.add(Queue{Name: l.Queue, Role: topology.RoleRetry, DelayOf: d.Name, Delay: l.Delay})
		}
	}
	for _, q := range m.state.Have.Queues {
		label, is := topology.DelayOf(m.t.Name, q.Name)
		if owner, _ := topology.Owner(q.Arguments); is && owner == m.t.Name {
			ttl, _ := q.Arguments[topology.ArgMessageTTL].(int64)
			m.add(Queue{Name: q.Name, Role: label.Role, DelayOf: label.Delay, Delay: time.Duration(ttl) * time.Millisecond})
		}
	}
}

// delays adds the delays of the file whose queues exist.
func (m *maker) delays() {
	for _, d := range m.t.Delays {
		out := Delay{Name: d.Name, To: d.To, queue: d.Intake, due: d.Due}
		exists := false
		for _, q := range m.out.Queues {
			switch {
			case q.DelayOf != d.Name:
			case q.Name == d.Intake:
				exists = true
				out.Intake, out.Processors, out.ProcessorsUnknown = q.Messages, q.Consumers, q.ConsumersUnknown
				out.Asked = m.state.Usage[q.Name].ConsumersAsked
				held := !out.Asked && q.Unacknowledged > 0 // by a consumer that the statistics do not show yet
				out.Unprocessed = q.Consumers == 0 && !q.ConsumersUnknown && !held
			case q.Name == d.Due:
				out.Due = q.Messages
			case q.Messages > 0:
				out.Waiting += q.Messages
				out.Levels = append(out.Levels, Tier{
					Delay: q.Delay, Messages: q.Messages, NextDue: q.NextDue,
					Timer: q.Name == topology.TimerName(m.t.Name, d.Name),
				})
			}
		}
		if exists {
			m.out.Delays = append(m.out.Delays, out)
		}
	}
}

// unprocessedDelays reports delays whose queues no processor consumes.
func (m *maker) unprocessedDelays(accepted bool) {
	for _, d := range m.out.Delays {
		if !d.Unprocessed || topology.Accepts(m.t.Accepted, topology.WarnNoProcessor, []string{d.queue}) != accepted {
			continue
		}
		line := fmt.Sprintf("no processor is consuming %s: what is published to the exchange %s waits", d.queue, text.Name(d.Name))
		if n := d.Intake + d.Waiting + d.Due; n > 0 {
			line += fmt.Sprintf(", as %s %s", text.Count(n, "message"), text.Choose(n, "does", "do"))
		}
		if !d.Asked {
			line += " (" + plan.ByStatistics + ")"
		}
		m.report(Problem{
			Name: topology.WarnNoProcessor, Note: accepted, Text: line, Command: m.o.Command("process"),
			Queues: []string{d.queue},
		})
	}
}

// comesBackNow reports whether a change says that messages of a delay can come back to it on the
// broker as it is. Nothing of the file is missing then.
func comesBackNow(c plan.Change) bool { return c.ComesBack && c.Before != nil }

// delaysComeBack reports delays whose messages may come back to them.
func (m *maker) delaysComeBack() {
	for _, c := range m.plan.Changes {
		i := slices.IndexFunc(m.out.Delays, func(d Delay) bool { return d.Name == c.Name })
		if comesBackNow(c) && i >= 0 {
			m.report(Problem{
				Name: comesBack, Text: c.Reason, Command: m.o.Command("plan"), Queues: []string{m.out.Delays[i].queue},
			})
		}
	}
}

// delays writes the table of delays.
func (t *textWriter) delays() {
	if len(t.r.Delays) == 0 {
		return
	}
	fmt.Fprintln(t.w)
	rows := text.Table{Numbers: 4, Whole: []int{0}}
	rows.Add(t.o.Style.Strong, "DELAY", "WAITING IN", "INTAKE", "WAITING", "DUE", "PROCESSORS")
	for _, d := range t.r.Delays {
		style := t.o.Style.Danger
		if !d.Unprocessed {
			style = nil
		}
		rows.Add(style, text.Name(d.Name), cmp.Or(d.WaitingIn(t.r.At), "-"), strconv.FormatInt(d.Intake, 10),
			number(d.Waiting), number(d.Due), consumersText(d.Processors, d.ProcessorsUnknown))
	}
	_ = rows.Write(t.w, t.o.Width) // Flush reports an error
}

// overdue reports delays of which messages are due and a processor keeps them: it publishes them at
// once where it can. During an alarm it cannot, which is a problem of its own.
func (m *maker) overdue() {
	if m.state.Alarm != "" {
		return
	}
	for _, d := range m.out.Delays {
		n, known := m.o.Traffic.Recent[d.due]
		if held := m.state.Usage[d.due].Held(); !known || n.Acknowledged > 0 || held <= n.Delivered {
			continue
		}
		m.report(Problem{
			Name: overdue, Queues: []string{d.due},
			Text: fmt.Sprintf("%s of the delay %s %s due, and no processor has moved one for %s", text.Count(d.Due, "message"),
				text.Name(d.Name), text.Choose(d.Due, "is", "are"), text.Duration(n.Within)),
			Fix: fmt.Sprintf("the log of the processor says why: it may not publish to the exchange %s, which may be missing or internal, or %s refuses what no queue takes",
				text.Name(d.To), text.Name(topology.UnroutableName(m.t.Name))),
		})
	}
}
