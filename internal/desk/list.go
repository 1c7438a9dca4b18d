package desk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
	width  int    // of the terminal; 0 is none
	count  int
}

// NewList returns a list for a terminal with so many columns; 0 is no terminal. Close must be
// called.
func NewList(w io.Writer, format string, width int) *List {
	return &List{w: bufio.NewWriter(w), format: format, width: width}
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
		if l.count == 1 {
			l.row("HANDLE", "FAILED", "CAUSE", "ATTEMPTS", "REPLAYS", "KEY", "ERROR OR BODY")
		}
		l.row(v.Name(), moment(v.LastFailed), dash(v.Cause), attemptsOf(v), fmt.Sprint(v.Replays), dash(v.Key), firstLine(v))
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

// row writes a row of the table. The columns have fixed widths: what comes later is not known. A
// terminal gets no line that is longer than its own, where a long key would break the table.
func (l *List) row(cells ...string) {
	widths := []int{12, 20, 14, 8, 7, 24, 0}
	var b strings.Builder
	for i, cell := range cells {
		if i < len(widths)-1 {
			if l.width > 0 && i > 0 { // a handle is copied
				cell = text.Fit(cell, widths[i])
			}
			cell = text.Pad(cell, widths[i]) + "  "
		}
		b.WriteString(cell)
	}
	fmt.Fprintln(l.w, text.Fit(b.String(), l.width))
}

// firstLine returns the beginning of the error of a message, or of its body.
func firstLine(v deadletter.View) string {
	s := v.Problem()
	if s == "" {
		s = strings.Join(strings.Fields(start(v.Body.Text)), " ")
	}
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	const most = 80
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
	case l.format == "json" && l.count == 0:
		l.w.WriteString("[]\n") //nolint:errcheck // Flush returns the error
	case l.format == "json":
		l.w.WriteString("\n]\n") //nolint:errcheck // as above
	}
	return l.w.Flush()
}
