package desk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// List writes messages one after the other, so that a list of any length needs little memory.
type List struct {
	w      *bufio.Writer
	format string // text, json or jsonl
	screen Screen
	count  int
	// rows are those of the next table for a terminal, and problems how many of them have an error.
	rows     [][]string
	problems int
	waits    bool // the last message waits in a level of a delay, as all of that queue do
}

// mostRows is how many messages a table for a terminal has. Those after them get another table, so
// that a list of any length needs little memory.
const mostRows = 1000

// NewList returns a list. Close must be called.
func NewList(w io.Writer, format string, s Screen) *List {
	return &List{w: bufio.NewWriter(w), format: format, screen: s}
}

// Add writes a message.
func (l *List) Add(v deadletter.View) error {
	l.count++
	switch l.format {
	case "json", "jsonl":
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		before := ""
		switch {
		case l.format == "json" && l.count == 1:
			before = "[\n"
		case l.format == "json":
			before = ",\n"
		}
		_, err = fmt.Fprintf(l.w, "%s%s", before, raw)
		if l.format == "jsonl" {
			_, err = fmt.Fprintln(l.w)
		}
		return err
	default:
		if l.screen.Width > 0 {
			return l.addRow(v)
		}
		when, at := "FAILED", v.LastFailed
		if !v.DueAt.IsZero() { // then all messages of the queue wait
			when, at = "DUE", v.DueAt
		}
		if l.count == 1 {
			l.row("HANDLE", when, "CAUSE", "ATTEMPTS", "REPLAYS", "KEY", "ERROR OR BODY")
		}
		l.row(v.Name(), moment(at), dash(v.Cause), attemptsOf(v), fmt.Sprint(v.Replays), dash(v.Key),
			firstLine(v, l.screen))
		return nil
	}
}

// attemptsOf returns how often a message has failed, as far as it tells.
func attemptsOf(v deadletter.View) string {
	if v.Attempts < 0 {
		return "?"
	}
	return fmt.Sprint(v.Attempts)
}

// row writes a row where there is no terminal. The columns have fixed widths: what comes later is
// not known.
func (l *List) row(cells ...string) {
	widths := []int{12, 20, 14, 8, 7, 24, 0}
	var b strings.Builder
	for i, cell := range cells {
		if i < len(widths)-1 {
			cell = text.Pad(cell, widths[i]) + "  "
		}
		b.WriteString(cell)
	}
	fmt.Fprintln(l.w, b.String())
}

// The columns of a table for a terminal.
const (
	handleColumn = iota
	ageColumn
	causeColumn
	attemptsColumn
	replaysColumn
	errorColumn
	keyColumn
)

// addRow adds a message to the table for a terminal.
func (l *List) addRow(v deadletter.View) error {
	if v.Problem() != "" {
		l.problems++
	}
	l.waits = !v.DueAt.IsZero()
	when := l.screen.when(v.LastFailed)
	if l.waits {
		when = l.screen.due(v.DueAt)
	}
	l.rows = append(l.rows, []string{
		handleColumn: v.Name(), ageColumn: when, causeColumn: dash(v.Cause),
		attemptsColumn: attemptsOf(v), replaysColumn: fmt.Sprint(v.Replays), errorColumn: firstLine(v, l.screen),
		keyColumn: dash(v.Key),
	})
	if len(l.rows) < mostRows {
		return nil
	}
	return l.writeRows()
}

// writeRows writes the table for a terminal. Cause, attempts and replays are columns where messages
// differ in them, and are otherwise said once below it, so that the error has room.
func (l *List) writeRows() error {
	if len(l.rows) == 0 {
		return nil
	}
	what := "ERROR OR BODY"
	switch l.problems {
	case 0:
		what = "BODY"
	case len(l.rows):
		what = "ERROR"
	}
	head := []string{"HANDLE", "AGE", "CAUSE", "ATTEMPTS", "REPLAYS", what, "KEY"}
	if l.waits {
		head[ageColumn] = "DUE"
	}
	var columns []int
	var common []string
	for i := range head {
		same := !slices.ContainsFunc(l.rows, func(row []string) bool { return row[i] != l.rows[0][i] })
		switch {
		case same && l.waits && (i == causeColumn || i == attemptsColumn || i == replaysColumn): // it has not failed
		case same && (i == causeColumn || i == attemptsColumn || i == replaysColumn):
			common = append(common, strings.ToLower(head[i])+" "+known(l.rows[0][i]))
		case same && (i == errorColumn || i == keyColumn) && unknown(l.rows[0][i]): // or bodies are hidden
		default:
			columns = append(columns, i)
		}
	}
	table := text.Table{Whole: []int{handleColumn}, Last: []int{slices.Index(columns, errorColumn)}}
	for _, row := range append([][]string{head}, l.rows...) {
		table.Add(nil, text.Each(columns, func(i int) string { return row[i] })...)
	}
	err := table.Write(l.w, l.screen.Width)
	if len(common) > 0 {
		where := ""
		if n := len(l.rows); n > 1 {
			where = fmt.Sprintf("the same in these %d messages: ", n)
		}
		fmt.Fprintln(l.w, where+strings.Join(common, ", "))
	}
	l.rows, l.problems = nil, 0
	return err
}

// unknown reports whether a cell is that of a message that does not tell.
func unknown(cell string) bool { return cell == "" || cell == "-" || cell == "?" }

// known returns a cell in a sentence.
func known(cell string) string {
	if unknown(cell) {
		return "unknown"
	}
	return cell
}

// firstLine returns the beginning of the error of a message, or of its body: as much as a wide
// terminal has room for, or 80 characters.
func firstLine(v deadletter.View, on Screen) string {
	s := v.Problem()
	if s == "" {
		s = strings.Join(strings.Fields(start(v.Body.Text)), " ")
	}
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	most := max(80, on.Width)
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return topology.Printable(s)
}

// start returns the first part of a text: a body may have megabytes.
func start(s string) string {
	const most = 4096
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// Close ends the list.
func (l *List) Close() error {
	switch {
	case l.format != "json":
		if err := l.writeRows(); err != nil {
			return err
		}
	case l.count == 0:
		l.w.WriteString("[]\n") //nolint:errcheck // Flush returns the error
	default:
		l.w.WriteString("\n]\n") //nolint:errcheck // as above
	}
	return l.w.Flush()
}
