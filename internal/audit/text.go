package audit

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// TextOptions say how a result is written for people.
type TextOptions struct {
	Style text.Style
	// Verbose shows notes, and each object with its evidence.
	Verbose bool
	// Notes shows notes.
	Notes bool
}

// screenWidth is the number of columns of the text. Commands are longer: they are to be pasted.
const screenWidth = 80

// WriteText writes a result for a person to read. The first line says of how many queues failed
// messages are kept. The findings follow, grouped by consequence, the worst first. The objects of
// a rule share its evidence and its fix, those of the first of them, unless the options say
// otherwise.
func WriteText(w io.Writer, r Result, o TextOptions) error {
	t := resultText{w: bufio.NewWriter(w), o: o, r: r}
	t.head()
	lowest := Warning
	if o.Verbose || o.Notes {
		lowest = Note
	}
	for _, g := range r.grouped(lowest) {
		t.line("")
		t.line("%s", text.Paint(o.Style.Strong, g.title))
		for _, s := range g.rules {
			t.rule(s)
		}
	}
	t.foot(lowest)
	return t.w.Flush()
}

type resultText struct {
	w *bufio.Writer
	o TextOptions
	r Result
}

func (t *resultText) line(format string, args ...any) { fmt.Fprintf(t.w, format+"\n", args...) }

// head writes the score and the counts.
func (t *resultText) head() {
	if line := t.r.forLine(); line != "" {
		style := t.o.Style.Create
		if t.r.Fails(Error) {
			style = t.o.Style.Blocked
		}
		t.line("%s", text.Paint(style, "For RabbitMQ "+line+": "+t.r.upgradeCount()))
		t.counts()
		return
	}
	score, style := t.r.Score(), t.o.Style.Create
	switch fates := t.r.Fates(); {
	case fates[Lost] > 0:
		style = t.o.Style.Blocked
	case fates[Undecided] > 0:
		style = t.o.Style.Caution
	}
	t.line("%s", text.Paint(style, upperFirst(score)))
	t.counts()
	if t.r.severalHosts() {
		t.hosts()
	}
	if n := t.r.withoutDeadLettering(); n > 0 {
		t.line("%s no dead-lettering: RabbitMQ deletes what consumers reject",
			text.Count(n, "queue")+text.Choose(n, " has", " have"))
		t.line("  'dlxctl import' writes a topology file that can add it")
	}
}

// counts writes how many findings there are, and in what.
func (t *resultText) counts() {
	hidden := ""
	if t.r.Count(Note) > 0 && !t.o.Verbose && !t.o.Notes {
		hidden = " (-v shows notes)"
	}
	t.wrapped("", "  ", fmt.Sprintf("%s%s in %s%s", t.r.counts(), hidden, t.r.Source, t.where()))
}

// where names the virtual host and the version, where there is one.
func (t *resultText) where() string {
	if len(t.r.Reports) != 1 {
		return fmt.Sprintf(", %s", text.Count(len(t.r.Reports), "virtual host"))
	}
	only := t.r.Reports[0]
	out := ", vhost " + text.Name(only.VHost)
	if only.Version != "" {
		out += ", RabbitMQ " + topology.Printable(only.Version)
	}
	return out
}

// hosts writes the virtual hosts that lose messages.
func (t *resultText) hosts() {
	most := 8
	if t.o.Verbose {
		most = len(t.r.Reports)
	}
	var parts []string
	for _, report := range t.r.Reports {
		if lost := NewResult([]Report{report}).Fates()[Lost]; lost > 0 {
			parts = append(parts, fmt.Sprintf("%s (%d)", text.Name(report.VHost), lost))
		}
	}
	if len(parts) > 0 {
		t.wrapped("queues that lose failed messages, by virtual host: ", "  ", text.FirstOf(parts, most))
	}
}

func (t *resultText) rule(s ruleFindings) {
	style := map[Severity]func(string) string{Error: t.o.Style.Blocked, Warning: t.o.Style.Caution}[s.severity]
	title := fmt.Sprintf("%s (%d): %s", s.rule, len(s.findings), lowerFirst(titleOf(s.rule)))
	if u := s.findings[0].Upgrade; u != "" {
		title = string(u) + "  " + title
	}
	t.wrapped(fmt.Sprintf("  %s  ", text.Paint(style, string(s.severity))), "    ", title)
	if t.o.Verbose {
		for _, f := range s.findings {
			t.object(f)
		}
	} else {
		t.objects(s.findings)
	}
	t.fix(s)
}

// object writes one finding with its place and its evidence.
func (t *resultText) object(f Finding) {
	name := t.r.name(f)
	if place := f.Place(); place != "" {
		name += "  " + place
	}
	t.line("    %s", topology.Printable(name))
	t.wrapped("      ", "      ", f.Evidence)
	t.wrapped("      ", "      ", f.Consequence)
	if f.Source != "" {
		t.wrapped("      source: ", "        ", f.Source)
	}
}

// objects writes the names of a rule's objects in one line, and the evidence of the first.
func (t *resultText) objects(findings []Finding) {
	var names []string
	for _, f := range findings {
		if name := t.r.name(f); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	const nearly = screenWidth - len("    ") - len(" and 99 more; -v shows all")
	shown := fitting(names, nearly)
	line := text.More(names[:shown], len(names))
	if shown < len(names) {
		line += "; -v shows all"
	}
	t.line("    %s", topology.Printable(line))
	first := findings[0]
	evidence := first.Evidence
	if len(names) > 1 && !strings.Contains(evidence, first.DisplayName()) {
		evidence = t.r.name(first) + ": " + evidence
	}
	t.wrapped("    ", "    ", evidence)
}

// fitting returns how many names fit a line, at least one.
func fitting(names []string, width int) int {
	for i := range names {
		if utf8.RuneCountInString(strings.Join(names[:i+1], ", ")) > width {
			return max(i, 1)
		}
	}
	return len(names)
}

// fix writes the remedy of the first finding of a rule.
func (t *resultText) fix(s ruleFindings) {
	prefix := "    fix: "
	if len(s.findings) > 1 {
		prefix = "    fix of the first: "
	}
	if first := s.findings[0]; !first.pasted() {
		t.wrapped(prefix, "         ", first.Remedy)
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(s.findings[0].Remedy, "\n"), "\n") {
		if line == "" {
			continue
		}
		t.line("%s%s", prefix, topology.Printable(line))
		prefix = "         "
	}
}

// requests reports whether the remedy is commands of curl.
func (f Finding) requests() bool { return strings.Contains(f.Remedy, apiVariable) }

// requests reports whether a fix that is shown is commands of curl.
func requests(shown []resultGroup) bool {
	return slices.ContainsFunc(shown, func(g resultGroup) bool {
		return slices.ContainsFunc(g.rules, func(s ruleFindings) bool { return s.findings[0].requests() })
	})
}

// pasted reports whether the remedy is to be pasted: commands, or lines of a file.
func (f Finding) pasted() bool {
	word, _, _ := strings.Cut(f.Remedy, " ")
	return len(f.Fix.Changes) > 0 || f.Fix.Lines != "" || word == "dlxctl" || strings.HasPrefix(word, "rabbitmq")
}

// foot writes what the baseline accepts, what could not be seen, and where to read on.
func (t *resultText) foot(lowest Severity) {
	t.line("")
	if n := len(t.r.Accepted); n > 0 {
		t.line("%s accepted by the baseline", text.Count(n, "finding"))
	}
	for _, note := range t.r.baselineNotes() {
		t.wrapped("", "  ", note)
	}
	for _, report := range t.r.Reports {
		for _, what := range report.Unseen {
			t.wrapped("not seen: ", "  ", what)
		}
	}
	shown := t.r.grouped(lowest)
	if requests(shown) {
		t.line("%s", requestNote)
	}
	switch {
	case len(shown) > 0:
		t.line("'dlxctl audit --explain %s' says why, and what to do", shown[0].rules[0].rule)
	case t.r.forLine() == "" && t.r.Loses():
		t.line("no errors and no warnings; failed messages are lost: see -v, and --fail-on lost")
	case len(t.r.Findings) > 0:
		t.line("no errors and no warnings; -v shows the notes")
	default:
		t.line("nothing was found")
	}
}

// wrapped writes a text over several lines: the first begins with first, the others with rest.
// It is broken at spaces, and a word that is longer than a line is kept.
func (t *resultText) wrapped(first, rest, s string) {
	s = topology.Printable(s)
	if s == "" {
		return
	}
	line, width := first, visibleWidth(first)
	empty := true
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		if !empty && width+1+n > screenWidth {
			t.line("%s", line)
			line, width, empty = rest, utf8.RuneCountInString(rest), true
		}
		if !empty {
			line += " "
			width++
		}
		line += word
		width += n
		empty = false
	}
	t.line("%s", line)
}

// visibleWidth returns the number of columns of a text, without the codes of its colors.
func visibleWidth(s string) int {
	n, code := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			code = true
		case code:
			code = r != 'm'
		default:
			n++
		}
	}
	return n
}

// upperFirst makes the first letter a capital.
func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// lowerFirst makes the first letter small, unless the word is a name or an abbreviation: those have
// more capitals.
func lowerFirst(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if word == "" || strings.ContainsFunc(word[1:], unicode.IsUpper) {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
