package audit

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// RulePageMarkdown returns the page of a rule: what it finds, why, how to fix it, an example that
// it is about and one that it is not.
func RulePageMarkdown(r Rule) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n| severity | %s |\n| --- | --- |\n| runs | %s |\n\n", r.ID,
		text.EscapeMarkdown(r.Title), r.Severity, runsWhen(r))
	fmt.Fprintf(&b, "## Why it matters\n\n%s\n\n## How to fix it\n\n%s\n", foldLines(text.EscapeMarkdown(r.Why)),
		foldLines(text.EscapeMarkdown(r.Fix)))
	if r.Source != "" {
		said := fmt.Sprintf("With `--for`, what it finds is **%s**. Source: %s.", r.Upgrade, text.EscapeMarkdown(r.Source))
		fmt.Fprintf(&b, "\n## At an upgrade\n\n%s\n", foldLines(said))
	}
	fmt.Fprintf(&b, "\n## What it finds\n\n")
	found, err := r.Hit.findings(r.ID)
	if err != nil {
		return "", fmt.Errorf("the example of rule %s: %w", r.ID, err)
	}
	writeExample(&b, r.Hit)
	for _, f := range found {
		fmt.Fprintf(&b, "\n%s\n", foldLines(fmt.Sprintf("%s %s: %s. %s.", f.Object.Kind, text.Code(f.DisplayName()),
			text.EscapeMarkdown(topology.Printable(f.Evidence)), text.EscapeMarkdown(upperFirst(f.Consequence)))))
		switch {
		case f.pasted():
			fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.TrimRight(f.Remedy, "\n"))
			if f.requests() {
				fmt.Fprintf(&b, "\n%s\n", requestNote)
			}
		case f.Remedy != "":
			fmt.Fprintf(&b, "\n%s\n", foldLines("Fix: "+text.EscapeMarkdown(f.Remedy)))
		}
	}
	fmt.Fprintf(&b, "\n## What it does not find\n\n")
	writeExample(&b, r.Miss)
	fmt.Fprintf(&b, "\n[All rules](README.md) · [dlxctl audit](../audit.md)\n")
	return b.String(), nil
}

// runsWhen says when a rule runs, for its page.
func runsWhen(r Rule) string {
	out := "for files and for a live broker"
	if r.Live {
		out = "for a live broker"
	}
	if r.For {
		return out + ", with `--for LINE`"
	}
	if r.Off {
		out += ", only with `--rule " + r.ID + "`"
	}
	return out
}

// writeExample writes the definitions of an example, and what else makes it one.
func writeExample(b *strings.Builder, e Example) {
	if e.Version != "" {
		fmt.Fprintf(b, "RabbitMQ %s:\n\n", e.Version)
	}
	if e.For != "" {
		fmt.Fprintf(b, "With `--for %s`:\n\n", e.For)
	}
	fmt.Fprintf(b, "```json\n%s\n```\n", strings.TrimSpace(e.Definitions))
	if e.Live == nil {
		return
	}
	for _, line := range describeLive(*e.Live) {
		fmt.Fprintf(b, "\n%s\n", foldLines(line))
	}
}

// describeLive says what the broker of an example tells, for its page.
func describeLive(l topology.Live) []string {
	var out []string
	for queue, consumers := range l.Consumers {
		for _, c := range consumers {
			out = append(out, fmt.Sprintf("Queue `%s` has a consumer `%s` with %s acknowledgement.", queue, c.Tag,
				map[bool]string{true: "automatic", false: "manual"}[c.AutoAck]))
		}
	}
	for queue, n := range l.Growth {
		out = append(out, fmt.Sprintf("Queue `%s` grew by %s in %s.", queue,
			text.Count(n, "message"), text.Duration(l.Interval)))
	}
	for queue, at := range l.Oldest {
		out = append(out, fmt.Sprintf("The first message of queue `%s` was published %s before.", queue,
			text.Duration(l.Now.Sub(at))))
	}
	for _, queue := range l.Leaderless {
		out = append(out, fmt.Sprintf("Queue `%s` has no leader.", queue))
	}
	for queue, nodes := range l.Replicas {
		out = append(out, fmt.Sprintf("Queue `%s` has replicas on %s, in a cluster of %s.", queue, text.List(nodes),
			text.List(l.Nodes)))
	}
	return out
}

// RuleIndexMarkdown returns the page that lists all rules, by consequence.
func RuleIndexMarkdown() string {
	var b strings.Builder
	b.WriteString("# Rules of dlxctl audit\n\n`make golden` writes these pages from the rules; a test keeps both equal. How to use the\naudit: [audit.md](../audit.md).\n")
	for _, g := range groups() {
		head := fmt.Sprintf("\n## %s\n\n| rule | severity | what is wrong |\n| --- | --- | --- |\n", g)
		for _, r := range Rules() {
			if r.Group != g {
				continue
			}
			fmt.Fprintf(&b, "%s| [%s](%s.md) | %s | %s%s |\n", head, r.ID, r.ID, r.Severity, text.EscapeMarkdown(r.Title),
				conditions(r))
			head = ""
		}
	}
	return b.String()
}

// foldLines breaks prose into lines that fit the pages.
func foldLines(s string) string {
	const width = 100
	var b strings.Builder
	used := 0
	for word := range strings.FieldsSeq(s) {
		switch n := len([]rune(word)); {
		case used > 0 && used+1+n > width:
			b.WriteString("\n" + word)
			used = n
		case used > 0:
			b.WriteString(" " + word)
			used += 1 + n
		default:
			b.WriteString(word)
			used = n
		}
	}
	return b.String()
}
