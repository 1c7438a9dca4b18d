package spec

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/topology"
)

// The limits of what is read: a file may come from an untrusted pull request. They are far
// beyond what people write, and the worst file within them is refused in seconds, with a few
// hundred megabytes of memory.
const (
	// MaxFileBytes is the size of the largest file that is read.
	MaxFileBytes = 4 << 20
	// maxNodes is how many values a topology may hold, those reached through
	// aliases counted each time: a few nested aliases can stand for billions.
	maxNodes = 1_000_000
	// maxDepth is how deep values may be nested. The format needs seven levels.
	maxDepth = 50
	// MaxObjects is how many queues a topology may declare, and how many exchanges.
	// With their dead-letter queues and bindings they are four times as many
	// objects on the broker.
	MaxObjects = 20_000
	// maxProblems is how many problems are collected. Then reading stops.
	maxProblems = 1000
	// maxText is the length of the longest message, in bytes.
	maxText = 2000
	// maxComparisons is how many names are compared for suggestions.
	maxComparisons = 200_000
)

// Limits describes the limits beyond which a file is refused, wrapped for help texts.
func Limits() string {
	return fmt.Sprintf("A file has at most %d MiB. A topology has at most %d queues, %d exchanges, %d\nvalues (YAML aliases count each time they are used) and %d levels of nesting. validate\nstops after %d problems.",
		MaxFileBytes>>20, MaxObjects, MaxObjects, maxNodes, maxDepth, maxProblems)
}

// bounded refuses a file that would take forever to read: multiplying aliases, a value that
// contains itself, endless nesting.
func (d *decoder) bounded(n *yaml.Node, depth int) bool {
	if d.nodes++; d.nodes > maxNodes {
		d.problem(d.at(n), fmt.Sprintf("the file holds more than %d values, counting what aliases repeat", maxNodes),
			"split the topology")
		return false
	}
	if depth > maxDepth {
		d.problem(d.at(n), fmt.Sprintf("values are nested more than %d levels deep", maxDepth), "remove levels")
		return false
	}
	if n.Kind == yaml.AliasNode {
		return d.bounded(n.Alias, depth+1)
	}
	return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !d.bounded(c, depth+1) })
}

// full reports whether there are so many problems that reading stops.
func (d *decoder) full() bool { return len(d.problems) >= maxProblems }

// room reports whether one more object fits a list that has some already. The
// first that does not is a problem.
func (d *decoder) room(n *yaml.Node, what string, have int) bool {
	if have < MaxObjects {
		return true
	}
	d.problem(d.at(n), fmt.Sprintf("the topology has more than %d %s", MaxObjects, what),
		"split it into several topologies, each with its own name")
	return false
}

// didYouMean returns the nearest of names, as long as not too many were compared.
func (d *decoder) didYouMean(name string, names []string, otherwise string) string {
	if !d.compares(len(names)) {
		return otherwise
	}
	return topology.DidYouMean(name, names, otherwise)
}

// nearest returns the word of names that name was probably meant to be, or "". Once
// too many were compared it gives none.
func (d *decoder) nearest(name string, names []string) string {
	if !d.compares(len(names)) {
		return ""
	}
	return topology.Nearest(name, names)
}

// compares counts comparisons, and reports whether they are not too many yet.
func (d *decoder) compares(n int) bool {
	d.compared += n
	return d.compared <= maxComparisons
}

// byPlace sorts problems, drops repetitions (a node that aliases share is read
// more than once) and shortens what is too much to read.
func byPlace(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	problems = slices.Compact(problems)
	problems = problems[:min(len(problems), maxProblems)]
	for i := range problems {
		problems[i].Msg, problems[i].Fix = shortened(problems[i].Msg), shortened(problems[i].Fix)
	}
	return problems
}

// shortened removes the middle of a long text: the end says what is wrong with the value.
func shortened(s string) string {
	if len(s) <= maxText {
		return s
	}
	begin, end := maxText*3/4, len(s)-maxText/4+len(" … ")
	for !utf8.RuneStart(s[begin]) {
		begin--
	}
	for !utf8.RuneStart(s[end]) {
		end++
	}
	return s[:begin] + " … " + s[end:]
}
