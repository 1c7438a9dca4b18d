package definitions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// decoder reads one file. It keeps the offset of each object and of each field.
type decoder struct {
	place
	json *json.Decoder
}

// element is a JSON object in a list.
type element struct {
	at     int
	fields map[string]field
}

// field is a field of an object. Its value is as encoding/json gives it, with json.Number.
type field struct {
	at    int
	value any
}

// has reports whether e has all these fields.
func (e element) has(names ...string) bool {
	for _, name := range names {
		if _, ok := e.fields[name]; !ok {
			return false
		}
	}
	return true
}

// hasAny reports whether e has one of these fields.
func (e element) hasAny(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return e.has(name) })
}

func newDecoder(f File) (*decoder, error) {
	d := &decoder{place: place{file: f.Name, data: bytes.TrimPrefix(f.Data, []byte("\ufeff"))}}
	if err := d.notJSON(); err != nil {
		return nil, err
	}
	d.json = json.NewDecoder(bytes.NewReader(d.data))
	d.json.UseNumber()
	return d, nil
}

// next returns the offset of the next value or key: after white space, commas and colons.
func (d *decoder) next() int {
	at := int(d.json.InputOffset())
	for at < len(d.data) && strings.IndexByte(" \t\r\n,:", d.data[at]) >= 0 {
		at++
	}
	return at
}

// syntax returns the problem of an error of the JSON decoder.
func (d *decoder) syntax(err error) error {
	problem := (*ProblemError)(nil)
	if errors.As(err, &problem) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return d.problem(len(d.data), "the file ends in the middle of a value; it is incomplete, write it again")
	}
	// Offsets of errors of tokens and of values differ, and both are after the fault. What is
	// quoted in the text is one character.
	at := int(d.json.InputOffset())
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
		at = max(int(s.Offset)-1, at)
		if strings.Contains(s.Error(), "unexpected end") {
			return d.problem(len(d.data), "the file ends in the middle of a value; it is incomplete, write it again")
		}
	}
	for at < len(d.data) && strings.IndexByte(" \t\r\n", d.data[at]) >= 0 {
		at++
	}
	return d.problem(at, "the file is not valid JSON: %v; correct it, or export the definitions again",
		strings.TrimPrefix(err.Error(), "json: "))
}

// open reads the next token, which must be that bracket.
func (d *decoder) open(want json.Delim, what string) error {
	at := d.next()
	t, err := d.json.Token()
	if err != nil {
		return d.syntax(err)
	}
	if t != want {
		found := describe(t)
		if _, isText := t.(string); isText {
			found = "text" // it may be a secret in the wrong place
		}
		return d.problem(at, "%s is %s; it must be %s", what, found, bracketName(want))
	}
	return nil
}

// list reads a list of objects and calls each with every one of them.
func (d *decoder) list(what string, each func(element) error) error {
	if err := d.open('[', what); err != nil {
		return err
	}
	for d.json.More() {
		e, err := d.element(what)
		if err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
	_, err := d.json.Token()
	if err != nil {
		return d.syntax(err)
	}
	return nil
}

// element reads an object.
func (d *decoder) element(list string) (element, error) {
	e := element{at: d.next(), fields: map[string]field{}}
	if err := d.open('{', "an element of "+list); err != nil {
		return e, err
	}
	return e, d.members(func(key string, at int) error {
		var v any
		if err := d.json.Decode(&v); err != nil {
			return err
		}
		e.fields[key] = field{at, v}
		return nil
	})
}

// members reads the rest of an object, and calls each with every key and the offset of its value.
// each reads the value.
func (d *decoder) members(each func(key string, at int) error) error {
	for d.json.More() {
		t, err := d.json.Token()
		if err != nil {
			return d.syntax(err)
		}
		key, ok := t.(string)
		if !ok {
			return d.problem(int(d.json.InputOffset()), "a key of an object is %s; keys are text in quotes", describe(t))
		}
		if err := each(key, d.next()); err != nil {
			return d.syntax(err)
		}
	}
	if _, err := d.json.Token(); err != nil {
		return d.syntax(err)
	}
	return nil
}

// skip reads a value and forgets it.
func (d *decoder) skip() error {
	var v json.RawMessage
	return d.json.Decode(&v)
}

// peek returns the first byte of the next value: 0 at the end of the file.
func (d *decoder) peek() byte {
	if at := d.next(); at < len(d.data) {
		return d.data[at]
	}
	return 0
}

// bracketName names what a bracket begins.
func bracketName(b json.Delim) string {
	if b == '[' {
		return "a list, in [ ]"
	}
	return "an object, in { }"
}

// describe names a JSON value for a message, with the value where it is short.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return quoteShort(v)
	case json.Delim:
		if v == '[' {
			return "a list"
		}
		return "an object"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return fmt.Sprint(v)
	}
}
