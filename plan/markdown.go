package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteMarkdown writes p as a comment for a pull request: the count first, then
// what a reviewer must look at (what is blocked, hazards, drift, warnings), and
// the whole plan folded behind it.
func WriteMarkdown(w io.Writer, p Plan) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "### dlxctl plan: topology %s, vhost %s%s\n\n**%s**\n", code(text.Name(p.Topology)),
		code(text.Name(p.VHost)), where(p), Summary(p))
	for _, c := range p.Changes {
		if c.Action == Blocked {
			fmt.Fprintf(b, "\n:no_entry: **%s %s is blocked.** %s\n", c.Kind, code(nameOf(c)), c.Reason)
			for _, f := range c.Fields {
				fmt.Fprintf(b, "- %s: %s → %s\n", f.Name, code(topology.Printable(value(f.Name, f.Before))),
					code(topology.Printable(value(f.Name, f.After))))
			}
		}
	}
	hazardRows(b, p)
	if len(p.Drift) > 0 {
		fmt.Fprint(b, "\n**Drift**: no file declares these, and they touch the topology's objects; `--prune` deletes them.\n")
		for _, c := range p.Drift {
			fmt.Fprintf(b, "- %s %s\n", c.Kind, code(nameOf(c)))
		}
	}
	if len(p.Warnings) > 0 {
		fmt.Fprintln(b)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(b, "- :warning: `%s`: %s\n", warning.Name, escape(warning.Text))
	}
	if !p.Empty() {
		var text strings.Builder
		if err := WriteText(&text, p, TextOptions{}); err != nil {
			return err
		}
		fence := strings.Repeat("`", max(3, longestRun(text.String(), '`')+1)) // names may hold backticks
		fmt.Fprintf(b, "\n<details><summary>Full plan</summary>\n\n%s\n%s%s\n\n</details>\n", fence, text.String(), fence)
	}
	return b.Flush()
}

// hazardRows writes a table of the changes that need consent.
func hazardRows(w io.Writer, p Plan) {
	head := "\n| | needs consent | at risk |\n| --- | --- | --- |\n"
	for _, c := range p.Changes {
		refused := consents{}.refused(c)
		if c.Action == Blocked || len(refused) == 0 {
			continue
		}
		var names []string
		for _, h := range refused {
			name := "`" + string(h) + "`"
			if p.consents(nil).cover(c, h) {
				name += " (allowed: listed under `removed`)"
			}
			names = append(names, name)
		}
		stake := ""
		if u := c.Stake; u != nil {
			stake = fmt.Sprintf("%d ready, %d unacknowledged, %s, %s", u.Ready, u.Unacknowledged, text.Count(u.Bytes,
				"byte"), u.ConsumersText())
		}
		fmt.Fprintf(w, "%s| %s %s %s | %s | %s |\n", head, c.Action, c.Kind, strings.ReplaceAll(code(nameOf(c)), "|",
			`\|`), strings.Join(names, " "), stake)
		head = ""
	}
}

// code gives a text as code, whatever backticks it holds.
func code(name string) string {
	if n := longestRun(name, '`'); n > 0 {
		fence := strings.Repeat("`", n+1)
		return fence + " " + name + " " + fence
	}
	return "`" + name + "`"
}

// escape keeps names in a sentence from being read as markup.
func escape(s string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;").Replace(s)
}

// longestRun gives the length of the longest run of r in s.
func longestRun(s string, r rune) int {
	longest, run := 0, 0
	for _, c := range s {
		run++
		if c != r {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
