package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/topology"
)

// String gives the problem as one line: file, line, column, what is wrong and
// what to do about it.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Col)
	if p.Name != "" {
		fmt.Fprintf(&b, "warning %s: ", p.Name)
	}
	b.WriteString(p.Msg)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Error is everything that is wrong with the files, by place.
type Error struct{ Problems []Problem }

// Error gives a line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Summary counts: "2 problems in orders.yaml".
func (e *Error) Summary() string {
	var files []string
	for _, p := range e.Problems {
		if !slices.Contains(files, p.File) {
			files = append(files, p.File)
		}
	}
	noun := "problems"
	if len(e.Problems) == 1 {
		noun = "problem"
	}
	summary := fmt.Sprintf("%d %s in %s", len(e.Problems), noun, strings.Join(files, ", "))
	if len(e.Problems) >= maxProblems {
		summary += "; reading stopped there"
	}
	return summary
}

// nearest gives the word of words that name was probably meant to be, or "".
func nearest(name string, words []string) string {
	best, least := "", min(len(name), 2+len(name)/3) // from there on it is another word
	for _, w := range words {
		if longest := max(len(w), len(name)); longest > topology.MaxNameBytes || longest-min(len(w), len(name)) > utf8.UTFMax*least {
			continue // too far apart, or no name at all
		}
		if d := editDistance(strings.ToLower(name), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that lead from a to b.
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(y)]
}

// didYouMean gives the remedy for a name that is not among names: the nearest
// of them, or all if there are few, or otherwise.
func didYouMean(name string, names []string, otherwise string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}
