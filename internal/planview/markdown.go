package planview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// longestComment is the length of the longest comment that GitHub accepts, in characters.
// WriteMarkdown writes no more.
const longestComment = 65536

// The shares of longestComment that the parts of a comment may use, in bytes. The full plan gets
// what they leave.
const (
	blockedShare = 16000
	hazardShare  = 12000
	driftShare   = 4000
	warningShare = 10000
)

// WriteMarkdown writes p as a comment for a pull request: the count first, then what a reviewer
// must look at (what is blocked, hazards, drift, warnings), and the whole plan folded behind it.
// A comment has at most 65,536 characters, as many as GitHub accepts, and says what it leaves out.
// process is the command that starts a processor for the topology. Empty: dlxctl process.
func WriteMarkdown(w io.Writer, p plan.Plan, process string) error {
	m := &comment{}
	fmt.Fprintf(m, "### dlxctl plan: topology %s, vhost %s%s\n\n**%s**\n", text.Code(text.Name(p.Topology)),
		text.Code(text.Name(p.VHost)), where(p), Summary(p))
	m.list("", blockedRows(p), blockedShare, "blocked changes")
	if hasImmutable(p) {
		fmt.Fprintf(m, "\n%s.\n", escape(immutable))
	}
	if hasReplacement(p) {
		fmt.Fprintf(m, "\n`%s`: %s.\n", topology.ReplacesQueue, escape(replacesQueue))
	}
	m.list("\n| | needs consent | at risk |\n| --- | --- | --- |\n", hazardRows(p), hazardShare,
		"changes that need consent")
	var drift, warnings []string
	for _, c := range p.Drift {
		drift = append(drift, fmt.Sprintf("- %s %s\n", c.Kind, text.Code(nameOf(c))))
	}
	m.list("\n**Drift**: no file declares these, and they touch the topology's objects; `--prune` deletes them.\n",
		drift, driftShare, "bindings")
	for _, warning := range grouped(p.Warnings) {
		warnings = append(warnings, fmt.Sprintf("- :warning: `%s`: %s\n", warning.Name, escape(warning.Text)))
	}
	if len(p.Unprocessed) > 0 {
		warnings = append(warnings, fmt.Sprintf("- :warning: `%s`: %s\n", topology.WarnNoProcessor,
			escape(noProcessor(p.Unprocessed))+text.Code(cmp.Or(process, "dlxctl process"))))
	}
	m.list("\n", warnings, warningShare, "warnings")
	if p.Empty() { // the full plan says it too
		for _, line := range keeps(p) {
			fmt.Fprintf(m, "\n%s.\n", escape(line))
		}
	} else {
		if err := m.plan(p, process); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, m.String())
	return err
}

// comment is a comment that is being written.
type comment struct{ strings.Builder }

// list writes rows below a heading, as many as fit into share bytes, and counts the others. Without
// rows it writes nothing.
func (m *comment) list(heading string, rows []string, share int, what string) {
	if len(rows) == 0 {
		return
	}
	m.WriteString(heading)
	for i, row := range rows {
		if share -= len(row); share < 0 {
			fmt.Fprintf(m, "\n%d more %s are left out here: run `dlxctl plan` to see all.\n", len(rows)-i, what)
			return
		}
		m.WriteString(row)
	}
}

// plan writes the whole plan, folded. If it does not fit, the last lines are left out, and their
// sections are named.
func (m *comment) plan(p plan.Plan, process string) error {
	var full strings.Builder
	if err := WriteText(&full, p, TextOptions{Process: process}); err != nil {
		return err
	}
	fence := text.Fence(full.String())
	head, tail := "\n<details><summary>Full plan</summary>\n\n"+fence+"\n", fence+"\n\n</details>\n"
	body, rest := full.String(), ""
	const notice = 1200 // what the line about the folded sections takes at most
	if room := longestComment - m.Len() - len(head) - len(tail); len(body) > room {
		body, rest = cut(body, max(0, room-notice))
	}
	m.WriteString(head + body + tail)
	if rest != "" {
		fmt.Fprintf(m, "\nThe plan is longer than a comment can be. %s\n", folded(rest))
	}
	return nil
}

// cut splits a text behind the last line that fits into n bytes.
func cut(s string, n int) (kept, rest string) {
	i := strings.LastIndexByte(s[:n], '\n') + 1
	return s[:i], s[i:]
}

// folded says what a part of a plan holds: its lines, and its sections by their headings.
func folded(rest string) string {
	const named, longest = 10, 60
	var names []string
	lines := strings.Count(rest, "\n")
	for paragraph := range strings.SplitSeq(rest, "\n\n") {
		heading, _, more := strings.Cut(paragraph, "\n")
		plain := more && heading != "" && !strings.ContainsAny(heading[:1], " +-~!>") && len(heading) <= longest
		if plain {
			names = append(names, text.Code(topology.Printable(heading)))
		}
	}
	line := fmt.Sprintf("%s left out here", text.Count(lines, "line")+text.Choose(lines, " is", " are"))
	if len(names) > 0 {
		line += ", with the sections " + text.FirstOf(names, named)
	}
	return line + ": run `dlxctl plan` to see all."
}

// blockedRows returns the blocked changes, each with its fields and fixes.
func blockedRows(p plan.Plan) []string {
	var out []string
	for _, c := range p.Changes {
		if c.Action != plan.Blocked {
			continue
		}
		var b strings.Builder
		state := "is blocked"
		if c.ReplacesQueue() {
			state = "is replaced under its name, with consent"
		}
		if c.Unfinished {
			state = "is being replaced under its name"
		}
		fmt.Fprintf(&b, "\n:no_entry: **%s %s %s**", c.Kind, text.Code(nameOf(c)), state)
		if place := placeOf(p, c); !place.IsZero() {
			fmt.Fprintf(&b, " (%s)", text.Code(place.String()))
		}
		if reason := reason(c); reason != "" {
			fmt.Fprintf(&b, ": %s", escape(reason))
		}
		b.WriteByte('\n')
		for _, f := range c.Fields {
			fmt.Fprintf(&b, "- %s: %s → %s", escape(f.Name),
				text.Code(plain(f.Name, f.Before)), text.Code(plain(f.Name, f.After)))
			if fix := c.Fixes[f.Name]; fix != "" {
				verb, object, _ := strings.Cut(fix, " ")
				fmt.Fprintf(&b, "; %s %s", verb, text.Code(topology.Printable(object)))
			}
			b.WriteByte('\n')
		}
		for _, line := range shown(c) {
			fmt.Fprintf(&b, "- %s\n", escape(line))
		}
		out = append(out, b.String())
	}
	return out
}

// plain returns a value as code shows it: a text without quotes, unless it needs them.
func plain(name string, v any) string {
	if s, ok := v.(string); ok && text.Name(s) == s && len(s) <= longPattern {
		return s
	}
	return topology.Printable(value(name, v))
}

// hazardRows returns the rows of a table of the changes that need consent. Bindings of a queue or
// exchange are one row, or none where the row of the queue says the same.
func hazardRows(p plan.Plan) []string {
	own, owners := map[string][]topology.Hazard{}, ownersOf(p)
	for _, c := range p.Changes {
		if c.Kind != topology.KindBinding {
			own[c.Name] = append(own[c.Name], c.Hazards...)
		}
	}
	bindings := map[string]int{} // by the text behind their number
	var order, out []string
	for _, c := range p.Changes {
		if c.Action == plan.Blocked || len(c.Hazards) == 0 {
			continue
		}
		if b, ok := c.Object().(topology.Binding); ok {
			if slices.ContainsFunc(c.Hazards, func(h topology.Hazard) bool { return !slices.Contains(own[b.Destination], h) }) {
				row := fmt.Sprintf(" of %s%s | %s | %s|\n", cell(text.Name(b.Destination)), team(c, owners),
					consentCell(p, c), copiesCell(c))
				if bindings[string(c.Action)+row] == 0 {
					order = append(order, string(c.Action)+row)
				}
				bindings[string(c.Action)+row]++
			}
			continue
		}
		stake := strings.TrimSpace(copiesCell(c))
		if u := c.Stake; u != nil {
			if stake != "" {
				stake = "; " + stake
			}
			stake = fmt.Sprintf("%d ready, %s, %s, %s", u.Ready, u.NotReady(), text.Count(u.Bytes,
				"byte"), u.ConsumersText()) + stake
		}
		out = append(out, fmt.Sprintf("| %s %s %s%s | %s | %s |\n", c.Action, c.Kind, cell(nameOf(c)),
			team(c, owners), consentCell(p, c), stake))
	}
	for _, row := range order {
		action, rest, _ := strings.Cut(row, " ")
		out = append(out, fmt.Sprintf("| %s %s %s", action, text.Count(bindings[row], "binding"), rest))
	}
	return out
}

// team names the owner of what a change belongs to, behind its name. It is empty if there is none.
func team(c plan.Change, owners map[string]string) string {
	owner := ownerOf(c, owners)
	if owner == "" {
		return ""
	}
	return " of team " + cell(topology.Printable(owner))
}

// copiesCell says what a deletion copies, with a space behind it. It is empty if it copies nothing.
func copiesCell(c plan.Change) string {
	if len(c.Copies) == 0 {
		return ""
	}
	return strings.ReplaceAll(escape(c.CopiesText()), "|", `\|`) + " "
}

// cell returns a name as code within a table.
func cell(name string) string { return strings.ReplaceAll(text.Code(name), "|", `\|`) }

// consentCell names the hazards of a change.
func consentCell(p plan.Plan, c plan.Change) string {
	var names []string
	for _, h := range c.Hazards {
		name := "`" + string(h) + "`"
		if p.AllowedByFile(c, h) {
			name += " (allowed: listed under `removed`)"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// escape keeps names in a sentence from being read as markup.
func escape(s string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;").Replace(s)
}
