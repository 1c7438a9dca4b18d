package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// bom is the mark that some programs write before UTF-8.
const bom = "\xef\xbb\xbf"

// json reads the body as JSON, if the content type says so or it begins like an object or an
// array.
func (r *reading) json(media string) bool {
	declared := isJSON(media)
	body := bytes.TrimPrefix(r.body, []byte(bom))
	if !declared && !begins(body, "{[") {
		return false
	}
	value, err := parseJSON(body)
	if err != nil {
		if declared || errors.Is(err, errDeep) || errors.Is(err, errMany) {
			r.note("the body was not read as JSON: %v", err)
		}
		return false
	}
	r.Format, r.Value, r.Tree, r.whole = JSON, value, true, true
	r.begin, r.end = len(r.body)-len(body), len(r.body)
	r.Text = indent(body)
	return true
}

// parseJSON reads one value of JSON within the limits.
func parseJSON(b []byte) (any, error) {
	if err := bounded(b); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("it ends too early")
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the first value")
	}
	return withNumbers(v), nil
}

// bounded checks depth and number of values before any is built.
func bounded(b []byte) error {
	depth, values, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',' || c == ':':
			values++
		}
		if depth > MaxDepth {
			return errDeep
		}
		if values > maxValues {
			return errMany
		}
	}
	return nil
}

// withNumbers replaces the numbers of a tree, as [number] says.
func withNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = withNumbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = withNumbers(inner)
		}
	case json.Number:
		return number(string(v))
	}
	return v
}

// number returns a number of JSON as int64 where that is exact, and otherwise as float64. A whole
// number with more digits than either keeps, such as an id, and one beyond both are their text.
func number(s string) any {
	i, err := strconv.ParseInt(s, 10, 64)
	if err == nil {
		return i
	}
	if errors.Is(err, strconv.ErrRange) { // digits alone
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && math.IsInf(f, 0) {
		return s
	}
	const exact = 1 << 53
	if i := int64(f); f == math.Trunc(f) && math.Abs(f) < exact && !(f == 0 && math.Signbit(f)) {
		return i
	}
	return f
}

// indent shows JSON with a line for each value. Keys and numbers stay as they are written.
func indent(b []byte) string {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(b), "", "  "); err != nil {
		return clean(string(b), false)
	}
	return clean(out.String(), true)
}

// Member is an entry of an Object.
type Member struct {
	Name  string
	Value any
}

// Object is an object of JSON in the order of its text. A name may be there twice.
type Object []Member

// ParseOrdered reads JSON as a tree of Object, []any, string, json.Number, bool and nil: all
// that the text says, in its order.
func ParseOrdered(text string) (any, error) {
	if err := bounded([]byte(text)); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	v, err := ordered(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the first value")
	}
	return v, nil
}

func ordered(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	var v any = token
	switch token {
	case json.Delim('{'):
		o := Object{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			value, err := ordered(dec)
			if err != nil {
				return nil, err
			}
			text, _ := name.(string)
			o = append(o, Member{text, value})
		}
		v = o
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			value, err := ordered(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		v = list
	default:
		return v, nil
	}
	_, err = dec.Token() // the closing bracket
	return v, err
}

// Render returns a tree as indented JSON, with the keys of maps sorted.
func Render(v any) string {
	var b strings.Builder
	render(&b, v, "\n")
	return clean(b.String(), true)
}

func render(b *strings.Builder, v any, line string) {
	switch v := v.(type) {
	case map[string]any:
		o := make(Object, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			o = append(o, Member{k, v[k]})
		}
		render(b, o, line)
	case Object:
		renderList(b, "{}", len(v), line, func(i int, line string) {
			b.WriteString(quote(v[i].Name) + ": ")
			render(b, v[i].Value, line)
		})
	case []any:
		renderList(b, "[]", len(v), line, func(i int, line string) { render(b, v[i], line) })
	case float64:
		b.WriteString(formatFloat(v, 64))
	case json.Number:
		b.WriteString(string(v))
	case nil:
		b.WriteString("null")
	case string:
		b.WriteString(quote(v))
	default:
		fmt.Fprint(b, v) // int64, uint64 and bool
	}
}

// renderList writes an object or an array, with each entry on a line of its own.
func renderList(b *strings.Builder, brackets string, n int, line string, entry func(i int, line string)) {
	if n == 0 {
		b.WriteString(brackets)
		return
	}
	b.WriteByte(brackets[0])
	inner := line + "  "
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(inner)
		entry(i, inner)
	}
	b.WriteString(line)
	b.WriteByte(brackets[1])
}

// quote returns a text as JSON, without escapes for HTML.
func quote(s string) string {
	quoted, _ := text.JSON(s) // no text makes the encoder fail
	return quoted
}

// formatFloat returns a number as JSON. What JSON has no number for is a text, as protobuf
// spells it.
func formatFloat(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		return `"NaN"`
	case math.IsInf(f, 1):
		return `"Infinity"`
	case math.IsInf(f, -1):
		return `"-Infinity"`
	}
	return strconv.FormatFloat(f, 'g', -1, bits)
}

// span finds a member of an object of JSON, and returns where its value begins and ends. It
// fails if the object has the member twice.
func span(b []byte, name string) (begin, end int, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return 0, 0, false
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return 0, 0, false
		}
		if key != name {
			continue
		}
		if ok {
			return 0, 0, false
		}
		end = int(dec.InputOffset())
		begin, ok = end-len(raw), true
	}
	return begin, end, ok
}
