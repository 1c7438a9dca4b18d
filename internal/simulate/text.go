package simulate

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/dlxctl/dlxctl/internal/text"
)

// TextOptions say how a report is written for people.
type TextOptions struct {
	Style text.Style
	// Width is that of the terminal in columns. Zero: no line is wrapped or cut.
	Width int
}

// WriteText writes r for a person to read: one backoff with its tiers and a chart, or a table of
// several.
func WriteText(w io.Writer, r Report, o TextOptions) error {
	t := &textWriter{w: bufio.NewWriter(w), r: r, o: o}
	t.head()
	if len(r.Cases) == 1 {
		t.one(r.Cases[0])
	} else {
		t.table()
	}
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

func (t *textWriter) faint(s string) { t.line(text.Paint(t.o.Style.Faint, s)) }

// head says what is computed.
func (t *textWriter) head() {
	line := fmt.Sprintf("outage of %s: %s arrive in a queue, and all deliveries fail", text.Duration(t.r.Outage),
		messages(t.r.Arriving))
	if t.r.Capacity > 0 {
		line += fmt.Sprintf("; consumers take %s a second at most", amount(t.r.Capacity))
	}
	t.line(text.Paint(t.o.Style.Strong, line))
}

// one writes a backoff.
func (t *textWriter) one(c Case) {
	t.line(fmt.Sprintf("%s: %s", text.Some(text.Names(c.Queues)), c.backoff.ScheduleText()))
	if c.RetryTo != "" {
		line := fmt.Sprintf("retries go to %s, which has the same outage", text.Name(c.RetryTo))
		if t.r.Capacity > 0 {
			line += "; the consumers of all these queues together take so many"
		}
		t.line(line)
	}
	t.line(fmt.Sprintf("%s: %s", c.name(), c.backoff.OutageText()))
	fmt.Fprintln(t.w)
	columns := []column{{"outage: off", &c.Without}}
	if c.With != nil {
		columns = append(columns, column{"outage: on", c.With})
	}
	t.results(columns)
	t.legend([]Case{c})
	if c.With != nil && !c.With.kept() { // both charts would be the same
		columns = []column{{"EITHER", c.With}}
	}
	t.chart(columns)
}

// name names the backoff.
func (c Case) name() string {
	if c.With == nil && !c.backoff.Native {
		return "no backoff"
	}
	return "backoff " + text.Name(c.Backoff)
}

// title is the name of the backoff in a table.
func (c Case) title() string {
	if c.RetryTo == "" {
		return text.Name(c.Backoff)
	}
	return text.Name(c.Backoff) + " -> " + text.Name(c.RetryTo)
}

// column is a result with its heading.
type column struct {
	title  string
	result *Result
}

// results writes a table with a column for each result.
func (t *textWriter) results(columns []column) {
	table := text.Table{Numbers: len(columns)}
	row := func(style func(string) string, name string, cell func(r Result) string) {
		cells := []string{name}
		for _, c := range columns {
			cells = append(cells, cell(*c.result))
		}
		table.Add(style, cells...)
	}
	cells := []string{"MESSAGES"}
	for _, c := range columns {
		cells = append(cells, c.title)
	}
	table.Add(t.o.Style.Strong, cells...)
	var dead func(string) string
	if slices.ContainsFunc(columns, func(c column) bool { return c.result.Dead > 0 }) {
		dead = t.o.Style.Danger
	}
	row(dead, "dead letters", deadText)
	row(nil, "waiting for a retry, at the peak", func(r Result) string { return text.Grouped(r.Waiting) })
	for i, tier := range columns[len(columns)-1].result.Tiers {
		row(nil, "  "+tierName(tier), func(r Result) string {
			if i >= len(r.Tiers) {
				return "-"
			}
			return text.Grouped(r.Tiers[i].Peak)
		})
	}
	if t.r.Capacity > 0 {
		row(nil, "waiting in the work queue, at the peak", func(r Result) string { return text.Grouped(r.Backlog) })
		row(nil, "  it is empty again after", func(r Result) string { return t.emptied(r) })
	}
	row(nil, "deliveries to consumers", func(r Result) string { return text.Grouped(r.Deliveries) })
	row(nil, "  in a second, at the peak", func(r Result) string { return text.Grouped(r.DeliveriesPeak) })
	row(nil, "the last one is done after", func(r Result) string { return text.Took(r.Done) })
	_ = table.Write(t.w, t.o.Width) // Flush reports an error
}

// deadText returns the number of dead letters.
func deadText(r Result) string {
	if r.Estimate {
		return "~" + text.Grouped(r.Dead)
	}
	return text.Grouped(r.Dead)
}

// tierName names a retry queue.
func tierName(t Tier) string {
	if t.outage {
		return "for the end of the outage"
	}
	return "in " + text.Duration(t.Delay)
}

// emptied says when the work queue is empty again.
func (t *textWriter) emptied(r Result) string {
	switch {
	case r.Backlog == 0:
		return "-"
	case r.BacklogUntil == Never:
		return "never"
	}
	return text.Took(r.BacklogUntil)
}

// table writes a row or two for each backoff.
func (t *textWriter) table() {
	fmt.Fprintln(t.w)
	head := []string{"BACKOFF", "outage:", "DEAD", "WAITING", "DONE", "DELIVERIES", "PEAK/S"}
	if t.r.Capacity > 0 { // the most in a second is no news
		head[6] = "BACKLOG"
	}
	table := text.Table{Numbers: len(head) - 2}
	table.Add(t.o.Style.Strong, head...)
	add := func(c Case, key string, r *Result) {
		if r == nil {
			return
		}
		cells := []string{
			c.title(), key, deadText(*r), text.Grouped(r.Waiting), text.Took(r.Done), text.Grouped(r.Deliveries),
			text.Grouped(r.DeliveriesPeak),
		}
		if t.r.Capacity > 0 {
			cells[6] = text.Grouped(r.Backlog)
		}
		var style func(string) string
		if r.Dead > 0 {
			style = t.o.Style.Danger
		}
		table.Add(style, cells...)
	}
	for _, c := range t.r.Cases {
		add(c, "off", &c.Without)
		add(c, "on", c.With)
	}
	_ = table.Write(t.w, t.o.Width) // Flush reports an error
	t.legend(t.r.Cases)
	t.faint("the numbers are those of one queue; name one to see its tiers and a chart")
}

// legend says what the words of a table mean.
func (t *textWriter) legend(cases []Case) {
	var lacking []string
	keys := false
	for _, c := range cases {
		keys = keys || c.With != nil
		if name := text.Name(c.Backoff); c.With != nil && !c.HasOutage && !slices.Contains(lacking, name) {
			lacking = append(lacking, name)
		}
	}
	if !keys {
		return
	}
	line := "outage: is a key of the backoff"
	if len(lacking) > 0 {
		line += fmt.Sprintf("; %s %s not have it: with its defaults", text.Some(lacking),
			text.Choose(len(lacking), "does", "do"))
	}
	t.faint(line)
	if slices.ContainsFunc(cases, func(c Case) bool { return c.With != nil && c.With.Estimate }) {
		t.faint("~: the outage is longer than until; how many messages die of that is an estimate")
	}
}

func messages(n int64) string { return text.Grouped(n) + " " + text.Plural(n, "message") }

// amount returns a number that need not be whole.
func amount(n float64) string {
	if n == math.Trunc(n) {
		return text.Grouped(int64(n))
	}
	return strconv.FormatFloat(n, 'g', 4, 64)
}
