// Package pattern reads the regular expressions of RabbitMQ's policies.
//
// It is pure, and imports no other package.
package pattern

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// Pattern is a compiled pattern of a policy. A nil Pattern matches nothing.
type Pattern struct{ expression *regexp2.Regexp }

// Compile reads a pattern as the broker does: as Perl's. Many begin with (?!amq\.), which the
// standard library does not know. With the option, \w, \d and [[:alpha:]] are what they are for the
// broker; but it hides some of what cannot be read, such as \Q.
func Compile(s string) (*Pattern, error) {
	if _, err := regexp2.Compile(s, regexp2.None); err != nil {
		return nil, err
	}
	expression, err := regexp2.Compile(s, regexp2.RE2)
	if err != nil {
		return nil, err
	}
	expression.MatchTimeout = time.Second // some never come to an end
	return &Pattern{expression}, nil
}

// Matches reports whether a name has a match. It fails if three tries of a second each do not tell:
// a busy machine may not run the program in the first one.
func (p *Pattern) Matches(name string) (matches bool, err error) {
	if p == nil {
		return false, nil
	}
	for range 3 {
		if matches, err = p.expression.MatchString(name); err == nil {
			break
		}
	}
	return matches, err
}

// Begin returns how all names begin that a pattern matches, as far as that is plain text and sure.
// Empty: they may begin with anything.
func Begin(s string) string {
	rest, anchored := strings.CutPrefix(s, "^")
	if !anchored || alternates(rest) {
		return ""
	}
	var out strings.Builder
	for rest != "" {
		c, size := utf8.DecodeRuneInString(rest)
		if c == '\\' {
			next, more := utf8.DecodeRuneInString(rest[size:])
			if more == 0 || !unicode.IsPunct(next) && !unicode.IsSymbol(next) {
				break // it has a meaning
			}
			c, size = next, size+more
		} else if strings.ContainsRune(`.^$*+?()[]{}|`, c) {
			break
		}
		rest = rest[size:]
		if rest != "" && strings.ContainsRune("*+?{", rune(rest[0])) {
			break // it may be missing
		}
		out.WriteRune(c)
	}
	return out.String()
}

// alternates reports whether a pattern may be several, with | between them.
func alternates(s string) bool {
	if strings.Contains(s, "|") && (strings.Contains(s, "[") || strings.Contains(s, `\Q`)) {
		return true // it may be a part of a class, and so may be a parenthesis
	}
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth <= 0 {
				return true
			}
		}
	}
	return false
}

// Disjoint reports whether it is sure that no name has a match of both patterns: they begin with
// different text.
func Disjoint(a, b string) bool {
	a, b = Begin(a), Begin(b)
	return !strings.HasPrefix(a, b) && !strings.HasPrefix(b, a)
}
