package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/dlxctl/dlxctl/internal/redact"
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
	// Headers are set, with these types. Removed are the names of headers that go.
	Headers map[string]any
	Removed []string
}

// Unchanged reports whether an edit leaves a message as it is, but for its message-id. It changes a
// header that it sets: see [View.Change].
func (e Edited) Unchanged(d amqp091.Delivery) bool {
	return (e.Body == nil || bytes.Equal(e.Body, d.Body)) && len(e.Headers) == 0 && len(e.Removed) == 0 &&
		e.ContentType == nil && e.ContentEncoding == nil
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
		if len(name) > longestProperty {
			return amqp091.Delivery{}, fmt.Errorf(
				"header %.20q has a name of %d bytes; the limit is %d", name, len(name), longestProperty,
			)
		}
		headers[name] = v
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

// CheckBody refuses a new body that is a mistake: an empty one, and one with the text that stands
// for what is masked, which the service would take for the value.
func CheckBody(before, after []byte) error {
	switch {
	case len(after) == 0 && len(before) > 0:
		return errors.New("is empty")
	case bytes.Contains(after, []byte(redact.Mask)) && !bytes.Contains(before, []byte(redact.Mask)):
		return fmt.Errorf("has the text %s, which stands for a masked value, and the body of the message does not have it; "+
			"'dlxctl desk show HANDLE --raw' prints the body with all values", redact.Mask)
	}
	return nil
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
