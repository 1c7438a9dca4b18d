package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// String returns the problem as one line: file, line, column, what is wrong and
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

// Error returns a line for each problem.
func (e *Error) Error() string {
	return strings.Join(text.Each(e.Problems, Problem.String), "\n")
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
