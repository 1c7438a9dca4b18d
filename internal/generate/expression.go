package generate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/text"
)

// maxExpression is the length of the longest expression for permissions that
// RabbitMQ 4.3 accepts, in bytes (measured on 4.3.6). Older lines accept longer ones.
const maxExpression = 1024

// Expression joins alternatives to one regular expression, as set_permissions
// takes it. That of none permits nothing. What names have in common at their begin or end is
// written once. If the expression would still be longer than RabbitMQ accepts, it covers all names
// with some prefixes: see [Covered].
func Expression(alternatives []string) string {
	expression, _ := joined(alternatives)
	return expression
}

// Covered returns the prefixes of which Expression covers all names, as expressions, because the
// names alone would take too many bytes. Nil: it covers exactly the names.
func Covered(alternatives []string) []string {
	_, covered := joined(alternatives)
	return covered
}

func joined(alternatives []string) (expression string, covered []string) {
	switch len(alternatives) {
	case 0:
		return "^$", nil
	case 1:
		return "^" + alternatives[0] + "$", nil
	}
	const anchors = len("^$")
	root := tree(alternatives, words)
	if len(root.expression())+anchors > maxExpression {
		root = tree(alternatives, units) // harder to read, and shorter
	}
	for size := len(root.expression()); size+anchors > maxExpression; size = len(root.expression()) {
		deepest := root.deepest("", nil)
		if len(deepest) == 0 {
			break
		}
		// The longest first: each saves at least what its branches take, less the two bytes of
		// the wildcard.
		slices.SortFunc(deepest, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.saves, a.saves), cmp.Compare(a.prefix, b.prefix))
		})
		for _, c := range deepest {
			if size+anchors <= maxExpression {
				break
			}
			size -= c.saves
			covered = slices.DeleteFunc(covered, func(p string) bool { return strings.HasPrefix(p, c.prefix) })
			covered = append(covered, c.prefix)
			c.branch.next, c.branch.ends = map[string]*branch{wildcard: {ends: true}}, false
		}
	}
	slices.Sort(covered)
	return "^" + root.expression() + "$", covered
}

// wildcard is the unit that stands for any characters.
const wildcard = ".*"

// tree returns the tree of alternatives, each split into steps.
func tree(alternatives []string, split func(string) []string) *branch {
	root := &branch{}
	for _, a := range alternatives {
		root.add(split(a))
	}
	return root
}

// separates reports whether an expression ends with a character that separates words in names.
func separates(s string) bool { return s != "" && strings.ContainsAny(s[len(s)-1:], ".-_/:") }

// words splits an expression into words and the characters between them.
func words(expression string) []string {
	var out []string
	joins := false
	for _, unit := range units(expression) {
		if joins && !separates(unit) && unit != wildcard {
			out[len(out)-1] += unit
			continue
		}
		out = append(out, unit)
		joins = !separates(unit) && unit != wildcard
	}
	return out
}

// units splits an expression of exactly, or one with a wildcard at its end, into characters. An
// escaped character is one unit.
func units(expression string) []string {
	var out []string
	for expression != "" {
		_, n := utf8.DecodeRuneInString(expression)
		switch {
		case expression == wildcard:
			n = len(wildcard)
		case strings.HasPrefix(expression, `\x`) && len(expression) >= 4:
			n = 4
		case expression[0] == '\\' && len(expression) > 1:
			n = 2
		}
		out, expression = append(out, expression[:n]), expression[n:]
	}
	return out
}

// branch is a node of the tree of all alternatives: what can follow one prefix.
type branch struct {
	ends bool // an alternative ends here
	next map[string]*branch
}

func (b *branch) add(units []string) {
	if len(units) == 0 {
		b.ends = true
		return
	}
	if b.next == nil {
		b.next = map[string]*branch{}
	}
	if b.next[units[0]] == nil {
		b.next[units[0]] = &branch{}
	}
	b.next[units[0]].add(units[1:])
}

// expression returns the expression for all that can follow. Alternatives that end alike share
// their end: (a|b)(\.dead)? in place of a(\.dead)?|b(\.dead)?.
func (b *branch) expression() string {
	if b.next[wildcard] != nil {
		return wildcard // it covers the others too
	}
	heads := map[string][][]string{} // by what follows
	for _, unit := range b.order() {
		head, node := []string{unit}, b.next[unit]
		for !node.ends && len(node.next) == 1 && node.next[wildcard] == nil {
			only := node.order()[0]
			head, node = append(head, only), node.next[only]
		}
		tail := node.expression()
		heads[tail] = append(heads[tail], head)
	}
	var parts []string
	for tail, list := range heads {
		parts = append(parts, alternatives(list, tail)...)
	}
	slices.Sort(parts)
	out := strings.Join(parts, "|")
	switch {
	case len(parts) == 0:
		return ""
	case b.ends:
		return "(" + out + ")?"
	case len(parts) > 1:
		return "(" + out + ")"
	}
	return out
}

// alternatives joins heads that the same tail follows. What they have in common at their end joins
// the tail. Without any tail they stay apart.
func alternatives(heads [][]string, tail string) []string {
	common := ""
	if len(heads) > 1 {
		for shares(heads) {
			last := len(heads[0]) - 1
			common = heads[0][last] + common
			for i := range heads {
				heads[i] = heads[i][:len(heads[i])-1]
			}
		}
	}
	out := text.Each(heads, func(head []string) string { return strings.Join(head, "") })
	slices.Sort(out)
	if common+tail == "" || len(out) == 1 {
		out[0] += common + tail
		return out
	}
	return []string{"(" + strings.Join(out, "|") + ")" + common + tail}
}

// shares reports whether all heads end with the same unit, and are longer than that.
func shares(heads [][]string) bool {
	return !slices.ContainsFunc(heads, func(head []string) bool {
		return len(head) < 2 || head[len(head)-1] != heads[0][len(heads[0])-1]
	})
}

// leaves counts the alternatives.
func (b *branch) leaves() int {
	n := 0
	if b.ends {
		n = 1
	}
	for _, next := range b.next {
		n += next.leaves()
	}
	return n
}

// order returns the units that can follow, in order.
func (b *branch) order() []string {
	return slices.Sorted(maps.Keys(b.next))
}

// candidate is a branch whose names a prefix can cover.
type candidate struct {
	prefix string
	branch *branch
	saves  int // bytes, about
}

// deepest adds to list the branches behind a separator, such as a dot, that hold several names, and
// that have no such branch in them: their prefixes are the longest, and cover the fewest other
// names.
func (b *branch) deepest(prefix string, list []candidate) []candidate {
	found := len(list)
	for _, unit := range b.order() {
		list = b.next[unit].deepest(prefix+unit, list)
	}
	if len(list) == found && separates(prefix) && len(prefix) > 1 && b.leaves() > 1 {
		list = append(list, candidate{prefix, b, max(0, len(b.expression())-len(wildcard))})
	}
	return list
}
