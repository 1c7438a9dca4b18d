package desk

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteLooked writes one line on what was looked at.
func WriteLooked(w io.Writer, l Looked) error {
	line := fmt.Sprintf("%s holds %s; looked at %d in %s, order kept",
		text.Name(l.Queue), text.Count(l.Messages, "message"), l.Looked, text.Took(time.Duration(l.Took)))
	if l.Messages == 0 && l.Looked == 0 {
		line = text.Name(l.Queue) + " holds no messages"
	}
	if l.skipped > 0 {
		line += fmt.Sprintf("; passed over the first %d", l.skipped)
	}
	if l.Unacknowledged > 0 {
		line += fmt.Sprintf("; others may hold %d more, by counts that are up to 5 seconds old", l.Unacknowledged)
	}
	if l.Missed != "" {
		line += "\nnot looked at: " + l.Missed
	}
	if l.costs && l.Looked > 0 {
		line += "\ncost of the look: " + l.Cost
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// WriteProposal writes what a run would do. do is the command line that does it; empty if there
// is none.
func WriteProposal(w io.Writer, p Proposal, do string) error {
	var b strings.Builder
	_ = WriteLooked(&b, p.Looked) // a strings.Builder returns no error
	writeChosen(&b, p)
	writeReaches(&b, p)
	if len(p.Reaches) > 0 && p.Request.Action.Kind().Paced {
		fmt.Fprintln(&b, describeSend(p.Request.Send))
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(&b, "refused: %s\n", r)
	}
	if do != "" {
		fmt.Fprintf(&b, "nothing was moved; to do it: %s\n", do)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeChosen writes how many messages were chosen, and what they have in common.
func writeChosen(b *strings.Builder, p Proposal) {
	fmt.Fprintf(b, "%d chosen", p.Chosen)
	if p.Chosen > 0 && !p.First.IsZero() {
		fmt.Fprintf(b, ", failed %s", span(p.First, p.Last))
	}
	if p.Copies > 0 {
		fmt.Fprintf(b, "; %s", text.Choose(p.Copies, "1 equals a message before it",
			fmt.Sprintf("%d equal a message before them", p.Copies)))
	}
	if p.ReplayedBefore > 0 {
		fmt.Fprintf(b, "; %d left out because %s replayed before (--again chooses %s)", p.ReplayedBefore,
			text.Choose(p.ReplayedBefore, "it was", "they were"), text.Choose(p.ReplayedBefore, "it", "them"))
	}
	b.WriteString("\n")
	const shown = 10
	var lines []string
	for _, g := range p.Groups {
		lines = append(lines, fmt.Sprintf("%d × %s, for example %s", g.Count, groupName(g), g.Example))
	}
	for _, line := range text.FirstLines(lines, shown) {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// groupName returns what the messages of a group have in common.
func groupName(g deadletter.Group) string {
	switch {
	case g.Others:
		return "(further values)"
	case g.Missing:
		return "(no value)"
	default:
		return text.Name(g.Value)
	}
}

// writeReaches writes where the messages would go, and who listens there.
func writeReaches(b *strings.Builder, p Proposal) {
	if p.Chosen == 0 {
		return
	}
	kind := p.Request.Action.Kind()
	if kind.deletes(p.Request.Forever) {
		b.WriteString("they would be deleted, and nothing could bring them back\n")
		return
	}
	if kind.mayDelete {
		b.WriteString("they would be deleted in 30 days; until then 'dlxctl desk restore' brings them back\n")
		return
	}
	if kind.goes == toParked {
		b.WriteString("they would be parked for 30 days\n")
		return
	}
	for _, r := range p.Reaches {
		fmt.Fprintf(b, "%s would go to %s", text.Count(r.Messages, "message"), text.Name(r.Queue))
		if r.Exchange != "" {
			fmt.Fprintf(b, " (through %s, key %s)", text.Name(r.Exchange), text.Name(r.Key))
		}
		if r.Consumers >= 0 && r.Waiting >= 0 {
			fmt.Fprintf(b, ": %s, %d waiting", text.Count(r.Consumers, "consumer"), r.Waiting)
		}
		b.WriteString("\n")
	}
}

// describeSend says in a sentence how a run would send, and when it would stop.
func describeSend(o SendOptions) string {
	how := "as fast as possible"
	if o.Rate > 0 {
		how = rate(o.Rate)
	}
	if len(o.Ramp) > 0 {
		sizes := text.Each(o.Ramp, strconv.Itoa)
		how += " after batches of " + text.List(sizes)
	}
	switch {
	case o.StopFailures > 0:
		how += "; stops after " + text.Count(o.StopFailures, "repeated failure")
	case o.StopShare > 0:
		how += fmt.Sprintf("; stops when %g%% of the sent messages have failed again", o.StopShare*100)
	case len(o.Ramp) > 0: // each batch must succeed nevertheless
		how += "; stops when a message of a batch fails again, and not later"
	default:
		how += "; does not stop when messages fail again"
	}
	if o.MaxWaiting > 0 {
		how += fmt.Sprintf("; pauses while the target holds more than %d", o.MaxWaiting)
	}
	return how
}

// rate writes messages a second.
func rate(r float64) string {
	if r < 1 {
		return fmt.Sprintf("%.3g/m", r*60)
	}
	return fmt.Sprintf("%.3g/s", r)
}

// WriteResult writes how a run ended.
func WriteResult(w io.Writer, a Action, r Result) error {
	if r.Ended && r.Queue == "" && r.Stopped == "" { // the list went before the hold
		_, err := fmt.Fprintf(w, "run %s: nothing was left to move; its empty hold is gone now\n", r.Run)
		return err
	}
	var b strings.Builder
	kind := a.Kind()
	fmt.Fprintf(&b, "run %s: %s %s in %s", r.Run, kind.Done, text.Count(r.Moved, "message"),
		text.Took(time.Duration(r.Took)))
	if r.Left > 0 {
		fmt.Fprintf(&b, "; %d left in its hold", r.Left)
	}
	if r.Gone > 0 {
		fmt.Fprintf(&b, "; %d not in its hold any more", r.Gone)
	}
	if r.LeftInQueue > 0 {
		fmt.Fprintf(&b, "; %d still in %s", r.LeftInQueue, text.Name(r.Queue))
	}
	if kind.goes == toWork {
		b.WriteString("; " + failedAgain(r.FailedAgain, r.SoFar, r.Unheard))
	}
	b.WriteString(doubled(a, r))
	if r.Reordered {
		fmt.Fprintf(&b, "; consumers may have got messages that arrived meanwhile before those that were held")
	}
	if r.Queue != "" {
		b.WriteString("\n  " + r.record())
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// doubled says which messages may be doubled by a run, or nothing.
func doubled(a Action, r Result) string {
	var parts []string
	switch before := r.DoubledAtMost - r.InDoubt; {
	case before <= 0:
	case r.Direct && a.Kind().Edits: // its message-id is new, and that of the next edit is another one
		return "; the edited message may have been sent nevertheless"
	case r.Direct:
		parts = append(parts, fmt.Sprintf("at most %d may be in %s too", before, text.Name(r.Queue)))
	default:
		parts = append(parts, fmt.Sprintf("an earlier process doubled what its result says, and at most %d if it was killed", before))
	}
	if r.InDoubt > 0 {
		parts = append(parts, fmt.Sprintf("at most %d may be doubled", r.InDoubt))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(append(parts, "doubles carry the same message-id, if the publisher sets one"), "; ")
}

// record says what a run was, in one line.
func (r Result) record() string {
	line := fmt.Sprintf("%d chosen in %s", r.Chosen, text.Name(r.Queue))
	if len(r.To) > 0 {
		line += ", to " + text.List(text.Names(r.To))
	}
	if line += "; begun " + moment(r.Begun); r.By != "" {
		line += " by " + text.Name(r.By)
	}
	if r.Continued != "" {
		line += ", continued by " + text.Name(r.Continued)
	}
	if r.Reason != "" {
		line += "; reason: " + text.Name(r.Reason)
	}
	return line
}

// failedAgain says how many messages failed again, as far as the run has heard.
func failedAgain(n int, soFar bool, unheard []string) string {
	var parts []string
	switch {
	case n > 0:
		parts = append(parts, fmt.Sprintf("%d failed again", n))
	case len(unheard) == 0 && soFar:
		parts = append(parts, "none failed again so far")
	case len(unheard) == 0:
		parts = append(parts, "none failed again")
	}
	if len(unheard) > 0 {
		parts = append(parts, "failures are not heard in "+strings.Join(unheard, ", "))
	}
	return strings.Join(parts, "; ")
}

// WriteRuns writes a table of runs.
func WriteRuns(w io.Writer, runs []Run, s Screen) error {
	if len(runs) == 0 {
		_, err := fmt.Fprintln(w, "no run is in progress")
		return err
	}
	rows := [][]string{{"RUN", "ACTION", "QUEUE", "PHASE", "CHOSEN", "LEFT", "STARTED", "BY", "REASON"}}
	var old []string
	for _, r := range runs {
		if r.Age > 0 {
			old = append(old, text.Name(r.ID))
		}
		phase := string(r.Phase) + ", stopped"
		if r.Active {
			phase = string(r.Phase) + " now"
		}
		rows = append(rows, []string{
			text.Name(r.ID), topology.Printable(r.does()), text.Name(r.Queue), phase, fmt.Sprint(r.Chosen), fmt.Sprint(r.Holds),
			s.when(r.Started), dash(r.By), dash(r.Reason),
		})
	}
	if err := (text.Table{Rows: rows, Whole: []int{0}, Last: []int{3}}).Write(w, s.Width); err != nil || len(old) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "up to %d seconds old: what is left of %s\n", statisticsAge, text.ListFirst(old, 3))
	return err
}

// dash stands for an empty cell.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return text.Name(s)
}

// moment writes a time in UTC. The zero time is unknown.
func moment(t time.Time) string { return dash(deadletter.Moment(t)) }

// span writes a period.
func span(from, to time.Time) string {
	if to.IsZero() || moment(from) == moment(to) {
		return "at " + moment(from)
	}
	return moment(from) + " to " + moment(to)
}
