package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes p as a comment for a pull request: the count first, the
// whole plan folded behind it.
func WriteMarkdown(w io.Writer, p Plan) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "### dlxctl plan: topology `%s`, vhost `%s`%s\n\n", p.Topology, p.VHost, where(p))
	fmt.Fprintf(b, "**%s**\n", Summary(p))
	for _, c := range p.Changes {
		if c.Action == Blocked {
			fmt.Fprintf(b, "\n:no_entry: **%s `%s` is blocked.** %s\n", c.Kind, c.Name, c.Reason)
		}
	}
	if !p.Empty() {
		var text strings.Builder
		if err := WriteText(&text, p, TextOptions{}); err != nil {
			return err
		}
		fence := strings.Repeat("`", max(3, longestRun(text.String(), '`')+1)) // names may hold backticks
		fmt.Fprintf(b, "\n<details><summary>The whole plan</summary>\n\n%s\n%s%s\n\n</details>\n", fence, text.String(), fence)
	}
	return b.Flush()
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
