package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/dlxctl/dlxctl/topology"
)

// Edited is a message as a person wants it: what is set replaces what the message has. The zero
// value changes nothing.
type Edited struct {
	// Body is the new body; nil keeps the old one.
	Body []byte
	// MessageID is the new message-id; empty keeps the old one.
	MessageID string
	// ContentType and ContentEncoding replace the properties; nil keeps them.
	ContentType, ContentEncoding *string
	// Headers are set. A number keeps the type that the header has, if it fits. Removed are
	// the names of headers that go.
	Headers map[string]any
	Removed []string
}

// longestProperty is how many bytes a property of AMQP may have.
const longestProperty = 255

// Apply returns a message as an edit wants it. It does not change d.
func Apply(d amqp091.Delivery, e Edited) (amqp091.Delivery, error) {
	if e.Body != nil {
		d.Body = e.Body
	}
	for _, p := range []struct {
		name string
		old  *string
		set  *string
	}{
		{"message-id", &d.MessageId, setOr(e.MessageID)},
		{"content-type", &d.ContentType, e.ContentType},
		{"content-encoding", &d.ContentEncoding, e.ContentEncoding},
	} {
		if p.set == nil {
			continue
		}
		if len(*p.set) > longestProperty {
			return amqp091.Delivery{}, fmt.Errorf("the %s has %d bytes; the limit is %d", p.name, len(*p.set), longestProperty)
		}
		*p.old = *p.set
	}
	if len(e.Headers) == 0 && len(e.Removed) == 0 {
		return d, nil
	}
	headers := maps.Clone(d.Headers)
	if headers == nil {
		headers = amqp091.Table{}
	}
	for _, name := range e.Removed {
		delete(headers, name)
	}
	for name, v := range e.Headers {
		typed, err := like(d.Headers[name], v)
		if err != nil {
			return amqp091.Delivery{}, fmt.Errorf("header %q: %w", name, err)
		}
		if len(name) > longestProperty {
			return amqp091.Delivery{}, fmt.Errorf(
				"header %.20q has a name of %d bytes; the limit is %d", name, len(name), longestProperty,
			)
		}
		headers[name] = typed
	}
	d.Headers = headers
	return d, headers.Validate()
}

func setOr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// like returns a value as a header, with the type of the header that it replaces where it fits.
// JSON and YAML know fewer types than AMQP.
func like(old, v any) (any, error) {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 && !isFloat(old) {
			return likeInteger(old, int64(v)), nil
		}
		return v, nil
	case map[string]any:
		return likeTable(old, v)
	case amqp091.Table:
		return likeTable(old, v)
	case []any:
		out := make([]any, len(v))
		before, _ := old.([]any)
		for i, e := range v {
			var previous any
			if i < len(before) {
				previous = before[i]
			}
			typed, err := like(previous, e)
			if err != nil {
				return nil, err
			}
			out[i] = typed
		}
		return out, nil
	case string:
		if _, ok := old.([]byte); ok {
			return []byte(v), nil
		}
		return v, nil
	}
	if n, ok := topology.Integer(v); ok && !isInteger(v) {
		return likeInteger(old, n), nil
	}
	if err := (amqp091.Table{"value": v}).Validate(); err != nil {
		return nil, fmt.Errorf("a value of the type %T is no header", v)
	}
	return v, nil
}

// isInteger reports whether a value has a width that AMQP knows. Then it was chosen.
func isInteger(v any) bool {
	_, plain := v.(int)
	_, long := v.(int64)
	return !plain && !long
}

func isFloat(v any) bool {
	switch v.(type) {
	case float32, float64, amqp091.Decimal:
		return true
	default:
		return false
	}
}

func likeTable(old any, v map[string]any) (amqp091.Table, error) {
	out, before := amqp091.Table{}, table(old)
	for name, e := range v {
		typed, err := like(before[name], e)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		out[name] = typed
	}
	return out, nil
}

// likeInteger returns n in the width of old, or as an int64.
func likeInteger(old any, n int64) any {
	switch old.(type) {
	case int8:
		if n == int64(int8(n)) { //nolint:gosec // the comparison finds what does not fit
			return int8(n)
		}
	case int16:
		if n == int64(int16(n)) { //nolint:gosec // as above
			return int16(n)
		}
	case int32:
		if n == int64(int32(n)) { //nolint:gosec // as above
			return int32(n)
		}
	case uint8:
		if n == int64(uint8(n)) { //nolint:gosec // as above
			return uint8(n)
		}
	case uint16:
		if n == int64(uint16(n)) { //nolint:gosec // as above
			return uint16(n)
		}
	case uint32:
		if n == int64(uint32(n)) { //nolint:gosec // as above
			return uint32(n)
		}
	}
	return n
}

// ErrNoDraft is wrapped by the error of [Reader.Draft] for a body that cannot be edited.
var ErrNoDraft = errors.New("the body cannot be edited as text")

// Draft returns the body of a message as a text for an editor: JSON and protobuf with a schema
// as they are shown, inside their encodings, and any other text as it is. It refuses what
// [Reader.FromDraft] could not write back as bytes, and a body of which the person may not see
// all.
func (r *Reader) Draft(m Message) ([]byte, error) {
	in := r.input(m.Delivery, Read(m.Delivery, m.Queue, r.Known))
	shown := r.Decoder.Decode(in).Text
	if r.View(m).Body.Text != shown {
		return nil, fmt.Errorf("%w: rules mask a part of it", ErrNoDraft)
	}
	_, err := r.Decoder.Encode(in, shown)
	switch {
	case err == nil:
		return []byte(ended(shown)), nil
	case isText(m.Delivery):
		return bytes.Clone(m.Delivery.Body), nil
	default:
		return nil, fmt.Errorf("%w: %w; export the message, edit its file, and import it", ErrNoDraft, err)
	}
}

// isText reports whether the bytes of a body are a text that an editor can write back.
func isText(d amqp091.Delivery) bool {
	odd := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }
	return (d.ContentEncoding == "" || d.ContentEncoding == "identity") && utf8.Valid(d.Body) &&
		!bytes.ContainsFunc(d.Body, odd) && !json.Valid(d.Body)
}

// FromDraft returns the edit that a person has made to a draft. What the draft does not show
// stays as it was: encodings, the style of JSON, and each value that was not edited.
func (r *Reader) FromDraft(m Message, draft []byte) (Edited, error) {
	before, err := r.Draft(m)
	if err != nil || bytes.Equal(before, draft) {
		return Edited{}, err
	}
	if bytes.Equal(before, m.Delivery.Body) && isText(m.Delivery) {
		return Edited{Body: bytes.Clone(draft)}, nil
	}
	body, err := r.Decoder.Encode(r.input(m.Delivery, Read(m.Delivery, m.Queue, r.Known)), string(draft))
	return Edited{Body: body}, err
}

// Diff returns the differences between two texts as lines that begin with "+" and "-". Empty if
// they are equal. It shows tabs as four spaces, and escapes what controls a terminal.
func Diff(nameA, a, nameB, b string) string {
	return string(diff.Diff(safe(nameA), []byte(lines(a)), safe(nameB), []byte(lines(b))))
}

func ended(s string) string { return strings.TrimSuffix(s, "\n") + "\n" }

// lines returns a text for a terminal, with a line feed at its end.
func lines(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")
		out.WriteString(safe(line) + "\n")
	}
	return out.String()
}
