package trace

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteMarkdown writes a report for a page or a comment: a table for each queue.
func WriteMarkdown(w io.Writer, r Report) error {
	b := writer{report: r}
	b.line("### %s", escape(r.headline()))
	b.line("")
	b.line("**%s**; %s", escape(r.verdict()), escape(r.Input.fate()))
	for _, e := range r.Ends {
		b.line("")
		b.line("- %s", escape(e.String()))
	}
	for _, j := range r.Journeys {
		b.table(j)
	}
	if len(r.Missed) > 0 {
		b.line("")
		b.missed()
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes the way of one copy.
func (b *writer) table(j Journey) {
	b.line("")
	b.line("#### %s", escape(text.Name(j.Queue)))
	b.line("")
	for _, step := range j.Path {
		b.line("- through %s", escape(b.step(step)))
	}
	b.line("")
	b.line("| time | what happens | new headers |")
	b.line("| --- | --- | --- |")
	b.all = true // the headers have a column of their own
	for _, s := range j.Stops {
		what := []string{b.describe(s)}
		for _, e := range s.Ends {
			if said := e.String(); said != "" {
				what = append(what, said)
			}
		}
		b.line("| %s | %s | %s |", offset(s.At), escape(strings.Join(what, "; ")), strings.Join(changedHeaders(j, s), "<br>"))
	}
	b.all = false
}

// changedHeaders returns the headers of a stop that it did not have at the stop before, but for
// those of the broker.
func changedHeaders(j Journey, s Stop) []string {
	var before map[string]any
	if s.From >= 0 {
		before = j.Stops[s.From].Headers
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value := headerValue(name, s.Headers[name])
		old, had := before[name]
		if !strings.HasPrefix(name, "x-") && (!had || headerValue(name, old) != value) {
			out = append(out, escape(topology.Printable(name)+"="+value))
		}
	}
	return out
}

// escape keeps names from being read as markup.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "`", "\\`", "_", `\_`).Replace(s)
}
