package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// HeaderChange is a header as a person wants it, in the words of the flags of the command line.
type HeaderChange struct {
	Name string `json:"name"`
	// Type is the type of the value, see [HeaderTypes]. Empty: that of the header that is replaced,
	// and string for a new one.
	Type string `json:"type"`
	Text string `json:"text"`
	// Remove removes the header. It has no type and no text then.
	Remove bool `json:"remove"`
}

// DraftHeader is a header of a message for a person who edits it.
type DraftHeader struct {
	Name string
	// Type and Text are what [View.Change] reads.
	Type, Text string
	// Fixed says why the header cannot be edited. It has no text then. Empty: it can.
	Fixed string
}

// typeNull is the type of a header without a value.
const typeNull = "null"

// HeaderTypes returns the types of headers, the most frequent first.
func HeaderTypes() []string {
	return []string{
		"string", "bool", "int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "float64", "float32",
		"timestamp", "decimal", "bytes", "table", "array", typeNull,
	}
}

// DraftHeaders returns the headers of a message, sorted by name, as a person may edit them who may
// see the view. d is the message of the view.
func (v View) DraftHeaders(d amqp091.Delivery) []DraftHeader {
	var out []DraftHeader
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		h := DraftHeader{Name: name, Fixed: v.fixed(d, name)}
		if h.Fixed == "" {
			var err error
			if h.Type, h.Text, err = headerText(d.Headers[name]); err != nil {
				h.Fixed = err.Error()
			}
		}
		out = append(out, h)
	}
	return out
}

// fixed says why a header cannot be changed. Empty: it can. A masked header must not be compared
// with what a person writes, which would tell whether a guess is right.
func (v View) fixed(d amqp091.Delivery, name string) string {
	shown, isShown := v.Headers[name]
	value, has := d.Headers[name]
	switch {
	case has != isShown || has && !equal(plain(value, 0), shown):
		return "rules mask it, and it stays as it is"
	case v.Framework == EasyNetQ:
		return "it is in the error that EasyNetQ has published around the message; 'dlxctl desk edit' changes those of the message"
	case !utf8.ValidString(name):
		return "its name is not UTF-8"
	case v.family(name) >= familyOfDlxctl, topology.IsDeathHeader(name), name == topology.CC, name == topology.BCC,
		name == v.countHeader && SaysFailure(d.Headers):
		return "dlxctl or RabbitMQ writes it, and removes it when the message is sent again"
	}
	with := maps.Clone(d.Headers)
	if with == nil {
		with = amqp091.Table{}
	}
	with[name] = value
	if left, _ := Retried(with); !hasHeader(left, name) {
		return "it describes a failure, and is removed when the message is sent again"
	}
	return ""
}

func hasHeader(t amqp091.Table, name string) bool {
	_, ok := t[name]
	return ok
}

// equal reports whether two plain values of headers are the same. A number that is none is itself.
func equal(a, b any) bool { return reflect.DeepEqual(a, b) || literal(a) == literal(b) }

// Change returns the edit that changes headers of a message, for a person who may see the view. d
// is the message of the view. All other headers keep their values and types, also those that the
// view masks. A change that changes nothing is left out.
func (v View) Change(d amqp091.Delivery, changes []HeaderChange) (Edited, error) {
	var out Edited
	named := map[string]bool{}
	for _, c := range changes {
		fixed := v.fixed(d, c.Name)
		switch {
		case c.Name == "":
			return Edited{}, errors.New("a header has no name; write one, or leave the header out")
		case named[c.Name]:
			return Edited{}, fmt.Errorf("the header %q is named twice; name it once", c.Name)
		case fixed != "":
			return Edited{}, fmt.Errorf("the header %q cannot be changed: %s", c.Name, fixed)
		case c.Remove && !hasHeader(d.Headers, c.Name):
			return Edited{}, fmt.Errorf("the message has no header %q; leave it out", c.Name)
		}
		named[c.Name] = true
		if c.Remove {
			out.Removed = append(out.Removed, c.Name)
			continue
		}
		value, err := c.value(d.Headers)
		if err != nil {
			return Edited{}, fmt.Errorf("the header %q: %w", c.Name, err)
		}
		if hasHeader(d.Headers, c.Name) && headerLine(c.Name, d.Headers[c.Name]) == headerLine(c.Name, value) {
			continue
		}
		if out.Headers == nil {
			out.Headers = map[string]any{}
		}
		out.Headers[c.Name] = value
	}
	return out, nil
}

// value returns the value of a changed header among those of the message.
func (c HeaderChange) value(headers amqp091.Table) (any, error) {
	kind := c.Type
	if kind == "" {
		kind = "string"
		if old, has := headers[c.Name]; has {
			kind, _, _ = headerText(old) // one that has no text is fixed
		}
	}
	return readHeader(kind, c.Text)
}

// headerText returns the type of a header, and its value as a text that [readHeader] reads. Tables
// and lists are JSON in which each value has its type, as exports write them.
func headerText(v any) (kind, text string, err error) {
	switch v := v.(type) {
	case nil:
		return typeNull, "", nil
	case string:
		coded, err := exact(v).MarshalText()
		return "string", string(coded), err
	case time.Time:
		return "timestamp", v.UTC().Format(time.RFC3339), nil
	}
	one, err := typed(v)
	if err != nil {
		return "", "", err
	}
	for name, value := range one.(map[string]any) {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(value); err != nil {
			return "", "", err
		}
		kind, text = name, strings.TrimSuffix(b.String(), "\n")
	}
	if unquoted, err := strconv.Unquote(text); err == nil { // bytes, and floats that are not numbers
		text = unquoted
	}
	return kind, text, nil
}

// readHeader reads the text of a value of a type.
func readHeader(kind, text string) (any, error) {
	v, err := readHeaderText(kind, text)
	if err != nil {
		return nil, fmt.Errorf("%.80q is not of type %s: %w", text, kind, err)
	}
	return v, (amqp091.Table{"value": v}).Validate()
}

func readHeaderText(kind, text string) (any, error) {
	switch kind {
	case typeNull:
		if text != "" {
			return nil, errors.New("null has no value; leave it empty, or choose another type")
		}
		return nil, nil //nolint:nilnil // a void of AMQP
	case "string":
		var s exact
		err := s.UnmarshalText([]byte(text))
		return string(s), err
	case "bytes":
		return readKind(kind, []byte(strconv.Quote(text)), 0)
	case "timestamp":
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, errors.New("write a time such as 2026-01-02T15:04:05Z")
		}
		return time.Unix(at.Unix(), 0), nil // AMQP knows seconds
	}
	return readKind(kind, []byte(text), 0)
}

// ParseHeaderChange reads NAME=VALUE, or NAME:TYPE=VALUE with one of [HeaderTypes].
func ParseHeaderChange(s string) (HeaderChange, error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return HeaderChange{}, fmt.Errorf("%q is not a header; write NAME=VALUE or NAME:TYPE=VALUE, where TYPE is one of %s",
			s, strings.Join(HeaderTypes(), ", "))
	}
	c := HeaderChange{Name: name, Text: value}
	if at := strings.LastIndexByte(name, ':'); at > 0 && slices.Contains(HeaderTypes(), name[at+1:]) {
		c.Name, c.Type = name[:at], name[at+1:]
	}
	return c, nil
}

// String returns what [ParseHeaderChange] reads, for a change that sets a header.
func (c HeaderChange) String() string {
	if c.Type == "" {
		return c.Name + "=" + c.Text
	}
	return c.Name + ":" + c.Type + "=" + c.Text
}

// DiffHeaders returns what an edit changes in the headers, and in the routing key if that is not
// empty, as lines that begin with "+" and "-". key is the routing key before.
func DiffHeaders(d amqp091.Delivery, e Edited, key, newKey string) string {
	var before, after strings.Builder
	if newKey != "" && newKey != key {
		fmt.Fprintf(&before, "routing key  %s\n", key)
		fmt.Fprintf(&after, "routing key  %s\n", newKey)
	}
	names := slices.AppendSeq(slices.Clone(e.Removed), maps.Keys(e.Headers))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if old, has := d.Headers[name]; has {
			before.WriteString(headerLine(name, old))
		}
		if v, has := e.Headers[name]; has {
			after.WriteString(headerLine(name, v))
		}
	}
	return Diff("headers before", before.String(), "headers after", after.String())
}

func headerLine(name string, v any) string {
	kind, text, err := headerText(v)
	if err != nil {
		text = fmt.Sprint(v)
	}
	line := fmt.Sprintf("%s  %s", name, text)
	if kind != "string" {
		line += " (" + kind + ")"
	}
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(line) + "\n"
}
