// Package redact masks what a person at the desk must not see. It works on decoded messages,
// before a filter, a group or an output sees them, so that a masked value cannot be found.
// Nothing that is sent back to a queue passes through it.
package redact

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// Mask stands where a value was masked.
const Mask = "[masked]"

// Rules says what is masked. The zero value masks nothing.
type Rules struct {
	// Paths name values of the decoded body or of the headers, as "body.customer.email",
	// "body.items[*].card" and "headers.authorization". Case, - and _ do not matter, * is any
	// key, and all elements of a list are meant, with [*] or without.
	Paths []string
	// Types name kinds of values that are masked wherever they are: email, iban, bearer.
	Types []string
	// HideBodies hides the bodies whole.
	HideBodies bool
}

// Redactor masks according to rules. It may be used by several goroutines.
type Redactor struct {
	body, headers []path
	find          []func(string) []span
	hide          bool
}

// New checks rules. The zero Rules are valid.
func New(r Rules) (*Redactor, error) {
	out := &Redactor{hide: r.HideBodies}
	for _, text := range r.Paths {
		root, p, err := parsePath(text)
		if err != nil {
			return nil, err
		}
		if root == "body" {
			out.body = append(out.body, p)
		} else {
			out.headers = append(out.headers, p)
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.Types))) {
		find := finder(name)
		if find == nil {
			return nil, fmt.Errorf("there is no kind of values %q; write email, iban or bearer", name)
		}
		out.find = append(out.find, find)
	}
	return out, nil
}

// NeedsBody reports whether rules name values of the body. What they mask may be repeated in
// headers and texts, so the body must be masked first.
func (r *Redactor) NeedsBody() bool { return r != nil && len(r.body) > 0 && !r.hide }

// Masks reports whether rules mask anything.
func (r *Redactor) Masks() bool { return !r.nothing() }

// nothing reports that no rule masks anything.
func (r *Redactor) nothing() bool {
	return r == nil || len(r.body)+len(r.headers)+len(r.find) == 0 && !r.hide
}

// Begin begins with a message that has these headers. Document is called next, then Headers,
// then Text, since each masks what those before it found.
func (r *Redactor) Begin(headers map[string]any) *Pass {
	p := &Pass{rules: r}
	if !r.nothing() {
		p.paths(headers, start(r.headers))
	}
	return p
}

// Pass masks one message. Values that a path names are masked wherever else they are in the
// message too, if they are long enough to be told from ordinary words.
type Pass struct {
	rules    *Redactor
	secrets  map[string]bool // what paths masked
	replaced *replacers      // of the secrets; nil until they are needed
	masked   int             // how many values were masked
}

// shortest is the length in bytes from which a value that a path names is masked elsewhere too.
const shortest = 6

// Document returns a copy of a decoded body with values masked, its Text included. A body in
// which the rules cannot find what they name is hidden whole.
func (p *Pass) Document(d decode.Document) decode.Document {
	if p.rules.nothing() {
		return d
	}
	if why := p.cannot(d); why != "" {
		return p.hidden(d, why)
	}
	if !d.Tree {
		d.Text, d.Type, d.Note = p.Text(d.Text), p.Text(d.Type), p.Text(d.Note)
		d.Envelope, _ = p.values(d.Envelope).(map[string]any)
		if len(d.Envelope) == 0 {
			d.Envelope = nil
		}
		return d
	}
	text, err := decode.ParseOrdered(d.Text)
	p.masked = 0
	states := p.inside(d)
	d.Value, text = p.paths(d.Value, states), p.paths(text, states)
	envelope, _ := p.paths(d.Envelope, start(p.rules.body)).(map[string]any)
	d.Value, text = p.values(d.Value), p.values(text)
	d.Envelope, _ = p.values(envelope).(map[string]any)
	if len(d.Envelope) == 0 {
		d.Envelope = nil
	}
	switch before := d.Text; {
	case err == nil:
		d.Text = decode.Render(text)
	case p.masked > 0 || p.Text(before) != before:
		d.Text = decode.Render(d.Value)
	}
	d.Type, d.Note = p.name(d.Type), p.Text(d.Note)
	return d
}

// cannot says why the rules cannot be applied to a body. Empty: they can.
func (p *Pass) cannot(d decode.Document) string {
	r := p.rules
	switch {
	case r.hide:
		return "all bodies are"
	case d.Format == decode.Text && d.Text == "":
		return ""
	case len(r.body) > 0 && !d.Tree:
		return "rules mask values of the body, and it could not be decoded"
	case d.Format == decode.RawProtobuf && slices.ContainsFunc(r.body, path.isNamed):
		return "rules mask values of the body by name, and protobuf without a schema has no names"
	case len(r.find) > 0 && d.Format == decode.Binary:
		return "rules mask kinds of values, which cannot be found in a binary body"
	}
	return ""
}

// hidden returns a document that says no more than how the body is encoded and which type the
// message has.
func (p *Pass) hidden(d decode.Document, why string) decode.Document {
	return decode.Document{
		Format: d.Format, Steps: d.Steps, Type: p.name(d.Type), Text: Mask, Note: "the body is hidden: " + why,
	}
}

// inside returns the paths for the value of a document. A path may begin at the body as it was
// published or at what the envelope holds: who writes the rule may know the message alone.
func (p *Pass) inside(d decode.Document) []state {
	states := start(p.rules.body)
	if d.Inside == "" {
		return states
	}
	states = append(states, advance(states, d.Inside)...)
	if d.Inside == "data_base64" { // CloudEvents has the same data under two names
		states = append(states, advance(start(p.rules.body), "data")...)
	}
	return states
}

// Headers returns a copy of headers with values masked.
func (p *Pass) Headers(h map[string]any) map[string]any {
	if p.rules.nothing() || h == nil {
		return h
	}
	masked, _ := p.paths(h, start(p.rules.headers)).(map[string]any)
	masked, _ = p.values(masked).(map[string]any)
	return masked
}

// Text returns a text, such as an error or a routing key, with values of Types masked, and what
// Document and Headers masked.
func (p *Pass) Text(s string) string {
	if p.rules.nothing() || s == "" {
		return s
	}
	return p.text(s)
}

// name masks the name of a type. The name may be part of a masked value: that of MassTransit
// is the end of a longer one.
func (p *Pass) name(s string) string {
	for secret := range p.secrets {
		if len(s) >= shortest && strings.Contains(secret, s) {
			return Mask
		}
	}
	return p.Text(s)
}
