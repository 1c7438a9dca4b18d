package audit

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteMarkdown writes a result as a comment for a pull request: the score, a table of the rules
// with errors and warnings, and the evidence and fixes folded behind it. Notes are only counted.
func WriteMarkdown(w io.Writer, r Result) error {
	b := bufio.NewWriter(w)
	score := upperFirst(r.Score())
	if line := r.forLine(); line != "" {
		score = "For RabbitMQ " + line + ": " + r.upgradeCount()
	}
	fmt.Fprintf(b, "### dlxctl audit: %s\n\n**%s** (%s)\n", text.Code(topology.Printable(r.Source)), score, r.counts())
	groups := r.grouped(Warning)
	if len(groups) > 0 {
		fmt.Fprint(b, "\n| | what is wrong | where |\n| --- | --- | --- |\n")
	}
	for _, g := range groups {
		for _, s := range g.rules {
			fmt.Fprintf(b, "| %s | %s: %s ([%s](%s)) | %s |\n", severitySign(s.severity), g.title,
				text.EscapeMarkdown(lowerFirst(titleOf(s.rule))), s.rule, RulePage(s.rule), r.markdownNames(s.findings))
		}
	}
	if n := len(r.Accepted); n > 0 {
		fmt.Fprintf(b, "\n%s accepted by the baseline.\n", text.Count(n, "finding"))
	}
	for _, note := range r.baselineNotes() {
		fmt.Fprintf(b, "\n:warning: %s\n", text.EscapeMarkdown(upperFirst(note)))
	}
	for _, report := range r.Reports {
		for _, what := range report.Unseen {
			fmt.Fprintf(b, "\nNot seen: %s\n", text.EscapeMarkdown(what))
		}
	}
	if len(groups) > 0 {
		fmt.Fprint(b, "\n<details><summary>Evidence and fixes</summary>\n")
		for _, g := range groups {
			for _, s := range g.rules {
				r.markdownRule(b, s)
			}
		}
		if requests(groups) {
			fmt.Fprintf(b, "\n%s\n", requestNote)
		}
		fmt.Fprint(b, "\n</details>\n")
	}
	return b.Flush()
}

func severitySign(s Severity) string {
	if s == Error {
		return ":x:"
	}
	return ":warning:"
}

// markdownNames lists the objects of a rule, as a cell of a table.
func (r Result) markdownNames(findings []Finding) string {
	names := text.Each(findings, func(f Finding) string { return strings.ReplaceAll(text.Code(r.name(f)), "|", `\|`) })
	return text.FirstOf(names, 5)
}

// markdownRule writes each finding of a rule, and the fix of the first.
func (r Result) markdownRule(w io.Writer, s ruleFindings) {
	fmt.Fprintf(w, "\n**%s**: %s\n\n", s.rule, text.EscapeMarkdown(lowerFirst(titleOf(s.rule))))
	for _, f := range s.findings {
		place := ""
		if f.Place() != "" {
			place = " (" + text.Code(topology.Printable(f.Place())) + ")"
		}
		upgrade := ""
		if f.Upgrade != "" {
			upgrade = fmt.Sprintf(" **%s** (%s)", f.Upgrade, text.EscapeMarkdown(f.Source))
		}
		fmt.Fprintf(w, "- %s%s:%s %s\n", text.Code(r.name(f)), place, upgrade,
			text.EscapeMarkdown(topology.Printable(f.Evidence)))
	}
	switch remedy := strings.TrimRight(s.findings[0].Remedy, "\n"); {
	case remedy == "":
	case !s.findings[0].pasted():
		fmt.Fprintf(w, "\nFix for %s: %s\n", text.Code(r.name(s.findings[0])),
			text.EscapeMarkdown(topology.Printable(remedy)))
	default:
		fence := text.Fence(remedy)
		fmt.Fprintf(w, "\nFix for %s:\n\n%s\n%s\n%s\n", text.Code(r.name(s.findings[0])), fence, remedy, fence)
	}
}
