// Package pattern reads the regular expressions of RabbitMQ's policies.
//
// It is pure, and imports no other package.
package pattern

import (
	"time"

	"github.com/dlclark/regexp2"
)

// Pattern is a compiled pattern of a policy. A nil Pattern matches nothing.
type Pattern struct{ expression *regexp2.Regexp }

// Compile reads a pattern as the broker does: as Perl's. Many begin with (?!amq\.), which the
// standard library does not know.
func Compile(s string) (*Pattern, error) {
	expression, err := regexp2.Compile(s, regexp2.None)
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
