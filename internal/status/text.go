package status

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// TextOptions say how a report is written for people.
type TextOptions struct {
	Style text.Style
	// Width is that of the terminal in columns. Zero: no line is wrapped or cut.
	Width int
	// All shows all queues, generated ones included. Without it, the tables have no rows for queues
	// that are empty and have consumers.
	All bool
	// Quiet shows queues and backoffs that are empty and have consumers too: the person asked for
	// these queues.
	Quiet bool
	// Rows is how many rows a table has at most, without All. Zero is [DefaultRows].
	Rows int
}

// DefaultRows is how many rows a table has, so that a report of a large topology fits a screen.
const DefaultRows = 20

// mostAlike is how many problems of one name are shown, without All.
const mostAlike = 3

// WriteText writes r for a person to read: problems first, then a row for each work queue and each
// backoff in which something lies or is wrong, then notes.
func WriteText(w io.Writer, r Report, o TextOptions) error {
	if o.Rows <= 0 {
		o.Rows = DefaultRows
	}
	t := &textWriter{w: bufio.NewWriter(w), r: r, o: o}
	t.head()
	t.problems(false)
	t.why()
	t.works()
	t.backoffs()
	t.delays()
	if o.All {
		t.others()
	}
	t.problems(true)
	return t.w.Flush()
}

// textWriter writes a report. Errors stay in w until it is flushed.
type textWriter struct {
	w *bufio.Writer
	r Report
	o TextOptions
}

func (t *textWriter) line(s string) {
	for _, line := range text.Wrap(s, t.o.Width) {
		fmt.Fprintln(t.w, line)
	}
}

// head says what was read, and when.
func (t *textWriter) head() {
	line := fmt.Sprintf("topology %s, vhost %s", text.Name(t.r.Topology), text.Name(t.r.VHost))
	if t.r.Cluster != "" {
		line += ", cluster " + text.Name(t.r.Cluster)
	}
	if t.r.Version != "" {
		line += ", RabbitMQ " + text.Name(t.r.Version)
	}
	t.line(text.Paint(t.o.Style.Strong, line))
	age := "counts are up to 5s old, consumers up to 10s"
	if !t.r.At.IsZero() {
		age = t.r.At.Format("2006-01-02 15:04:05 MST") + "; " + age
	}
	t.line(text.Paint(t.o.Style.Faint, age))
	if t.r.Wrong == 0 {
		fmt.Fprintln(t.w)
		t.line(text.Paint(t.o.Style.Create, "no problems"))
	}
}

func (t *textWriter) problems(notes bool) {
	kind, style := "problem", t.o.Style.Danger
	if notes {
		kind, style = "note", t.o.Style.Caution
	}
	list := slices.DeleteFunc(slices.Clone(t.r.Problems), func(p Problem) bool { return p.Note != notes })
	if len(list) > 0 {
		fmt.Fprintln(t.w)
	}
	alike := map[string]int{}
	for _, p := range list {
		alike[p.Name]++
	}
	written := map[string]int{}
	for _, p := range list {
		written[p.Name]++
		if more := alike[p.Name] - mostAlike; more > 1 && written[p.Name] > mostAlike && !t.o.All {
			if written[p.Name] == mostAlike+1 {
				t.line(fmt.Sprintf("%s %s: %d more; --all shows them", text.Paint(style, kind), p.Name, more))
			}
			continue
		}
		t.line(text.Paint(style, kind+" "+p.Name+":") + " " + topology.Printable(p.Text))
		if p.Fix != "" {
			t.line("  fix: " + topology.Printable(p.Fix))
		}
		if p.Command != "" { // in one line, to copy
			fmt.Fprintln(t.w, "  run: "+topology.Printable(p.Command))
		}
	}
}

// why writes what dead letters died of.
func (t *textWriter) why() {
	if len(t.r.Why) > 0 {
		fmt.Fprintln(t.w)
	}
	for _, w := range t.r.Why {
		t.line(text.Paint(t.o.Style.Strong, "why "+text.Name(w.Queue)+":") + " " + w.String())
	}
}

// works writes the table of work queues, and counts those that it leaves out.
func (t *textWriter) works() {
	if len(t.r.Works) == 0 {
		return
	}
	shown, quiet, busy := t.r.Works, 0, 0
	if !t.o.All {
		shown, quiet, busy = chosen(t.r.Works, t.o.Rows,
			func(w Work) bool { return !t.o.Quiet && w.Quiet() }, Work.weight)
	}
	fmt.Fprintln(t.w)
	if len(shown) > 0 {
		t.workTable(shown)
	}
	t.folded(len(shown), busy, "queue", "")
	t.folded(len(shown), quiet, "queue",
		text.Choose(quiet, " is empty and has consumers", " are empty and have consumers"))
}

// weight orders rows: queues with a problem come before all others.
func (w Work) weight() int64 {
	if len(w.Problems) > 0 {
		return 1<<62 + w.messages()/2
	}
	return w.messages()
}

// chosen returns the rows that are not quiet, those with the most weight if there are more than
// most, in their order. It counts the quiet rows, and the others that it leaves out.
func chosen[T any](
	rows []T, most int, isQuiet func(T) bool, weight func(T) int64,
) (shown []T, quiet, busy int) {
	var at []int
	for i, row := range rows {
		if !isQuiet(row) {
			at = append(at, i)
		}
	}
	quiet = len(rows) - len(at)
	slices.SortStableFunc(at, func(a, b int) int {
		return cmp.Compare(weight(rows[b]), weight(rows[a]))
	})
	busy = max(0, len(at)-most)
	at = at[:len(at)-busy]
	slices.Sort(at)
	for _, i := range at {
		shown = append(shown, rows[i])
	}
	return shown, quiet, busy
}

// folded says how many rows a table of so many rows leaves out, and why.
func (t *textWriter) folded(rows, n int, noun, why string) {
	if n == 0 {
		return
	}
	more := " "
	if rows > 0 {
		more = " more "
	}
	t.line(text.Paint(t.o.Style.Faint, fmt.Sprintf("%d%s%s%s; --all shows %s", n, more, text.Plural(n, noun), why,
		text.Choose(n, "it", "them"))))
}

// workTable writes rows of work queues. Owners, ages, due times and what is neither ready nor
// unacknowledged have columns only if there are any.
func (t *textWriter) workTable(rows []Work) {
	owners := slices.ContainsFunc(t.r.Works, func(w Work) bool { return w.Owner != "" })
	ages := slices.ContainsFunc(rows, func(w Work) bool { return t.age(w) != "-" })
	head := []string{"QUEUE", "READY", "UNACKED", "RETRYING", "DEAD", "CONSUMERS"}
	if owners {
		head = slices.Insert(head, 1, "OWNER")
	}
	if ages {
		head = append(head, "OLDEST")
	}
	dues := slices.ContainsFunc(rows, func(w Work) bool { return !w.NextDue.IsZero() })
	if dues {
		head = append(head, "NEXT DUE")
	}
	ready := slices.Index(head, "READY")
	others := slices.ContainsFunc(rows, func(w Work) bool { return w.Other > 0 })
	if others {
		head = slices.Insert(head, ready+2, "OTHER")
	}
	table := text.Table{Numbers: len(head) - 1, Whole: []int{0}}
	if owners {
		table.Numbers--
	}
	table.Add(t.o.Style.Strong, head...)
	for _, w := range rows {
		name := text.Name(w.Name)
		if w.Role == topology.RoleLegacy {
			name += " (legacy)"
		}
		cells := []string{
			name, number(w.Ready), number(w.Unacknowledged), w.retryingText(), w.deadText(),
			consumersText(w.Consumers, w.ConsumersUnknown),
		}
		if owners {
			cells = slices.Insert(cells, 1, topology.Printable(w.Owner))
		}
		if others {
			cells = slices.Insert(cells, ready+2, number(w.Other))
		}
		if ages {
			cells = append(cells, t.age(w))
		}
		if dues {
			cells = append(cells, nextDue(w.NextDue, t.r.At))
		}
		table.Add(w.style(t.o.Style), cells...)
	}
	_ = table.Write(t.w, t.o.Width) // Flush reports an error
	if others {
		t.line(text.Paint(t.o.Style.Faint, "OTHER: RabbitMQ is dead-lettering these messages, or delays them"))
	}
	if slices.ContainsFunc(rows, func(w Work) bool { return w.Native }) {
		t.line(text.Paint(t.o.Style.Faint, "RETRYING with engine: native: RabbitMQ delays these messages in the queue itself, or is dead-lettering them"))
	}
	if dues {
		t.line(text.Paint(t.o.Style.Faint, "NEXT DUE: when RabbitMQ delivers the first of them again, by statistics up to 12s old"))
	}
	uncounted := func(w Work) bool { return w.Backoff == topology.NoBackoff && w.Role != topology.RoleLegacy }
	if slices.ContainsFunc(rows, uncounted) {
		t.line(text.Paint(t.o.Style.Faint, "RETRYING -: without a backoff, the processor counts no failures"))
	}
	shares := func(w Work) bool { return w.SharedRetrying && w.Retrying > 0 || w.SharedDead && w.Dead > 0 }
	if slices.ContainsFunc(rows, shares) {
		t.line(text.Paint(t.o.Style.Faint, "<=: these messages are in a queue that several work queues share"))
	}
}

// style returns how the row of a queue is decorated.
func (w Work) style(s text.Style) func(string) string {
	switch {
	case len(w.Problems) == 0:
		return nil
	case slices.Equal(w.Problems, []string{deadLetters}):
		return s.Caution
	default:
		return s.Danger
	}
}

func (w Work) retryingText() string {
	if w.Backoff == "" || w.Backoff == topology.NoBackoff {
		return "-"
	}
	return shared(w.Retrying, w.SharedRetrying)
}

func (w Work) deadText() string {
	if w.Role == topology.RoleLegacy {
		return "-"
	}
	return shared(w.Dead, w.SharedDead)
}

// shared writes a number of messages, of which a queue that others share has at most so many.
func shared(n int64, shared bool) string {
	if shared && n > 0 {
		return "<=" + number(n)
	}
	return number(n)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func consumersText(n int64, unknown bool) string {
	if unknown {
		return "?"
	}
	return number(n)
}

// age says how old the message at the head is, in its largest unit. A timestamp is what the
// publisher wrote: one from the future says nothing.
func (t *textWriter) age(w Work) string {
	d := t.r.At.Sub(w.Oldest)
	if w.Oldest.IsZero() || t.r.At.IsZero() || d < 0 {
		return "-"
	}
	return text.Age(d)
}

// nextDue says in which time the first delayed message is due.
func nextDue(due, now time.Time) string {
	switch {
	case due.IsZero():
		return "-"
	case due.After(now):
		return "in " + text.Age(due.Sub(now))
	default: // it was, when the broker counted
		return "now"
	}
}

// backoffs writes the table of backoffs, and counts those that it leaves out.
func (t *textWriter) backoffs() {
	if len(t.r.Backoffs) == 0 {
		return
	}
	shown, quiet, busy := t.r.Backoffs, 0, 0
	if !t.o.All {
		shown, quiet, busy = chosen(t.r.Backoffs, max(1, t.o.Rows/2), func(b Backoff) bool { return !t.o.Quiet && b.Quiet() },
			func(b Backoff) int64 { return 2*b.Failed + b.Retrying() })
	}
	fmt.Fprintln(t.w)
	if len(shown) > 0 {
		rows := text.Table{Numbers: 4, Whole: []int{0}}
		rows.Add(t.o.Style.Strong, "BACKOFF", "WAITING IN", "QUEUES", "FAILED", "RETRYING", "PROCESSORS")
		for _, b := range shown {
			style := t.o.Style.Danger
			if !b.Unprocessed {
				style = nil
			}
			rows.Add(style, text.Name(b.Name), b.tiersText(), strconv.Itoa(b.Queues), number(b.Failed),
				number(b.Retrying()), consumersText(b.Processors, b.ProcessorsUnknown))
		}
		_ = rows.Write(t.w, t.o.Width) // Flush reports an error
	}
	t.folded(len(shown), busy, "backoff", "")
	t.folded(len(shown), quiet, "backoff",
		text.Choose(quiet, " is empty and has a processor", " are empty and have a processor"))
}

// tiersText counts what waits in the retry queues that are not empty.
func (b Backoff) tiersText() string {
	var parts []string
	for _, t := range b.Tiers {
		if t.Messages > 0 {
			name := text.Duration(t.Delay)
			if t.Outage {
				name = "outage"
			}
			parts = append(parts, fmt.Sprintf("%s: %d", name, t.Messages))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// others writes the table of all queues that are not work queues, one by one.
func (t *textWriter) others() {
	rows := text.Table{Numbers: 3, Whole: []int{0}}
	rows.Add(t.o.Style.Strong, "GENERATED QUEUE", "ROLE", "DELAY", "MESSAGES", "UNACKED", "CONSUMERS")
	for _, q := range t.r.Queues {
		if q.Role == topology.RoleWork || q.Role == topology.RoleLegacy {
			continue
		}
		delay := ""
		if q.Role == topology.RoleRetry {
			delay = text.Duration(q.Delay)
		}
		rows.Add(nil, text.Name(q.Name), string(q.Role), delay, number(q.Messages), number(q.Unacknowledged),
			consumersText(q.Consumers, q.ConsumersUnknown))
	}
	if len(rows.Rows) > 1 {
		fmt.Fprintln(t.w)
		_ = rows.Write(t.w, t.o.Width) // Flush reports an error
	}
}
