package deadletter

import (
	"errors"
	"time"
)

// Filter is a compiled expression over a View, in the language of expr-lang/expr.
type Filter struct{ source string }

// NewFilter compiles an expression. The error names the column, and what can be asked.
func NewFilter(expression string) (*Filter, error) { return &Filter{source: expression}, nil }

// String returns the expression.
func (f *Filter) String() string { return f.source }

// Matches reports whether the expression is true for a message.
func (f *Filter) Matches(v View) (bool, error) { return false, errors.ErrUnsupported }

// Group is messages that have something in common.
type Group struct {
	// Value is what they have in common, redacted.
	Value string
	Count int
	// First and Last are when the first and the last of them failed; zero is unknown.
	First, Last time.Time
	// Example is the handle of one of them.
	Example Handle
}

// Edited is a message as a person wants it: what is set replaces what the message has.
type Edited struct {
	Body []byte
	// MessageID is the new message-id.
	MessageID string
	Headers   map[string]any
}
