package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// ErrUnsafe is wrapped by the error of Encode if a body cannot be written back so that all of
// it that the text does not change stays as it was. The error says why.
var ErrUnsafe = errors.New("this body cannot be edited safely")

// Encode returns the body of a message with the text of its document replaced by an edited one.
// It writes JSON and protobuf with a schema, inside the envelope and the encodings of the
// original. Everything that the text does not show stays byte for byte, and so does each
// key, text and number of JSON that was not edited; compression may give other bytes for the
// same content. The error says what is wrong with the text, or wraps ErrUnsafe.
func (d *Decoder) Encode(in Input, edited string) ([]byte, error) {
	r := d.read(in)
	if err := r.editable(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	body, err := r.replace([]byte(edited))
	if err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(r.layers) {
		if body, err = l.redo(body); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsafe, err)
		}
	}
	return body, nil
}

// editable says why a body cannot be edited safely, or returns nil.
func (r *reading) editable() error {
	switch {
	case r.Format != JSON && r.Format != Protobuf:
		return fmt.Errorf("its format is %s; only JSON, and protobuf with a schema, can be written back", r.Format)
	case !r.whole:
		return fmt.Errorf("the text is only the %s of the %s envelope", r.Inside, r.Steps[len(r.Steps)-1])
	case r.Note != "":
		return fmt.Errorf("not all of it was decoded: %s", r.Note)
	case r.Format == JSON && !utf8.Valid(r.body):
		return errors.New("it is JSON that is not UTF-8")
	case r.Format == JSON:
		return r.sameJSON()
	default:
		return r.sameMessage()
	}
}

// sameJSON checks that the text stands for the same JSON, literal by literal.
func (r *reading) sameJSON() error {
	var before, after bytes.Buffer
	if json.Compact(&before, r.body[r.begin:r.end]) != nil || json.Compact(&after, []byte(r.Text)) != nil ||
		!bytes.Equal(before.Bytes(), after.Bytes()) {
		return errors.New("it has characters that are not shown as they are")
	}
	return nil
}

// sameMessage checks that the text stands for the same message. Encoders may order fields and
// the entries of maps differently, but nothing may come or go.
func (r *reading) sameMessage() error {
	if len(r.message.unknown) > 0 {
		return fmt.Errorf("the schema does not declare the fields %s", list(r.message.unknown))
	}
	again, err := r.message.encode([]byte(r.Text))
	if err != nil {
		return fmt.Errorf("its text cannot be read back: %w", err)
	}
	m, _, err := r.message.schemas.parse(r.message.Descriptor(), again)
	if err != nil || !proto.Equal(m.Message, r.message.Message) {
		return errors.New("its text stands for another message")
	}
	if len(again) != len(r.body) {
		return fmt.Errorf("encoding it again gives %d bytes in place of %d: its publisher encodes differently",
			len(again), len(r.body))
	}
	return nil
}

// replace returns the body with the edited text in place of the value.
func (r *reading) replace(edited []byte) ([]byte, error) {
	if r.message != nil {
		out, err := r.message.encode(edited)
		if err != nil {
			return nil, fmt.Errorf("the text is not a message of type %s: %w", r.Type, err)
		}
		return out, nil
	}
	if _, err := parseJSON(edited); err != nil {
		return nil, fmt.Errorf("the text is not JSON: %w%s", err, place(edited, err))
	}
	styled := restyle(edited, r.body[r.begin:r.end])
	return slices.Concat(r.body[:r.begin], styled, r.body[r.end:]), nil
}

// place names the line and column of a syntax error, if it has one.
func place(text []byte, err error) string {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset < 1 || int(syntax.Offset) > len(text) {
		return ""
	}
	before := text[:syntax.Offset-1]
	line := bytes.Count(before, []byte("\n"))
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Sprintf(" (line %d, column %d)", line+1, column+1)
}

// restyle writes JSON with the spaces of the original, if that has a known style, and otherwise
// without spaces.
func restyle(edited, original []byte) []byte {
	trimmed := bytes.TrimSpace(original)
	for _, style := range styles() {
		if bytes.Equal(style(trimmed), trimmed) {
			end := len(bytes.TrimRight(original, " \t\r\n"))
			return slices.Concat(original[:end-len(trimmed)], style(edited), original[end:])
		}
	}
	return compact(edited)
}

// styles are the ways in which programs write JSON: compact, with a space after each comma and
// colon as Python does, and indented.
func styles() []func([]byte) []byte {
	all := []func([]byte) []byte{compact, spaced}
	for _, margin := range []string{"  ", "    ", "\t"} {
		all = append(all, func(b []byte) []byte {
			var out bytes.Buffer
			if json.Indent(&out, compact(b), "", margin) != nil {
				return nil
			}
			return out.Bytes()
		})
	}
	return all
}

func compact(b []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return nil
	}
	return out.Bytes()
}

// spaced writes a space after each comma and colon.
func spaced(b []byte) []byte {
	var out strings.Builder
	quoted := false
	b = compact(b)
	for i := 0; i < len(b); i++ {
		out.WriteByte(b[i])
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
			out.WriteByte(b[i])
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':'):
			out.WriteByte(' ')
		}
	}
	return []byte(out.String())
}
