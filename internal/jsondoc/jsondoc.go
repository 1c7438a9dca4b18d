// Package jsondoc writes the JSON that dlxctl prints, in one dialect: what a report is called in
// JSON are the tags of its own fields, and the rules below are the same for all.
//
//   - A list or an object is never null. Without entries it is empty.
//   - A duration is a number of whole milliseconds; one of the type [Seconds] is in seconds.
//   - A time is in RFC 3339 and in UTC. A time that is not known is null, or left out.
//   - A number with the tag `jsondoc:"known"` is null below zero, as it is not known. With
//     omitempty it is then left out.
//
// docs/json.md lists the documents. It is made from the same types.
package jsondoc

import (
	"bytes"
	"encoding"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Former is a value that is written in another form than its own fields, such as with counts that
// the reader would have to compute. The type of the form must be the same for each value.
type Former interface{ JSON() any }

// Seconds is a duration that JSON has as a number of seconds, with a fraction.
type Seconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Seconds) UnmarshalJSON(raw []byte) error {
	var n float64
	err := json.Unmarshal(raw, &n)
	*s = Seconds(n * float64(time.Second))
	return err
}

// V1 is the version of a document whose format is the first one.
type V1 struct{}

// MarshalJSON implements [json.Marshaler].
func (V1) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// Write writes v, indented and with a newline at its end, without escaping HTML: names stay
// readable.
func Write(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return encode(enc, v)
}

// Marshal returns v as one line, with escapes for HTML.
func Marshal(v any) ([]byte, error) { return json.Marshal(form(reflect.ValueOf(v))) }

// WriteLine writes v as one line.
func WriteLine(w io.Writer, v any) error { return encode(json.NewEncoder(w), v) }

func encode(enc *json.Encoder, v any) error {
	enc.SetEscapeHTML(false)
	return enc.Encode(form(reflect.ValueOf(v)))
}

// form returns a value that [encoding/json] writes as the rules of the package say.
func form(v reflect.Value) any {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Time:
		if x.IsZero() || x.Year() < 0 || x.Year() > 9999 { // JSON has four digits for a year
			return nil
		}
		return x.UTC()
	case time.Duration:
		return x.Milliseconds()
	case json.Marshaler, encoding.TextMarshaler:
		return x
	case Former:
		return form(reflect.ValueOf(x.JSON()))
	}
	switch v.Kind() { //nolint:exhaustive // the others need no form
	case reflect.Pointer:
		return form(v.Elem())
	case reflect.Struct:
		return members(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // bytes, in base64
			return v.Interface()
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = form(v.Index(i))
		}
		return list
	case reflect.Map:
		if v.Len() == 0 {
			return map[string]any{}
		}
	}
	return v.Interface() // what others wrote, such as headers, stays as it is
}

// object is the members of an object in the order of the fields.
type object []member

type member struct {
	key   string
	value any
}

func members(v reflect.Value) object {
	var out object
	for _, f := range Fields(v.Type()) {
		value := v.FieldByIndex(f.index)
		unknown := f.Known && value.Int() < 0
		if f.omitEmpty && (unknown || !f.Known && empty(value)) || f.omitZero && value.IsZero() {
			continue
		}
		m := member{f.Key, nil}
		if !unknown {
			m.value = form(value)
		}
		out = append(out, m)
	}
	return out
}

// empty reports whether omitempty leaves a value out.
func empty(v reflect.Value) bool {
	switch v.Kind() { //nolint:exhaustive // the others are never empty or empty if zero
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(m.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Field is a member of an object.
type Field struct {
	// Key is the name in JSON. Empty: the field has no tag that gives it one.
	Key string
	// Name is the name of the field, and Owner the struct that declares it.
	Name  string
	Owner reflect.Type
	Type  reflect.Type
	// Optional reports that the member is left out if it says nothing.
	Optional bool
	// Known reports that the member is a number, and null below zero.
	Known bool

	index               []int
	omitEmpty, omitZero bool
}

// Fields returns the members of a struct, in the order in which they are written, with those of
// embedded structs.
func Fields(t reflect.Type) []Field {
	var out []Field
	for f := range t.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		key, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
		case f.Anonymous && !tagged && embedded(f.Type):
			for _, inner := range Fields(f.Type) {
				inner.index = append([]int{f.Index[0]}, inner.index...)
				out = append(out, inner)
			}
		case f.IsExported():
			omitEmpty, omitZero := has(options, "omitempty"), has(options, "omitzero")
			out = append(out, Field{
				Key: key, Name: f.Name, Owner: t, Type: f.Type, Optional: omitEmpty || omitZero,
				Known: f.Tag.Get("jsondoc") == "known", index: f.Index, omitEmpty: omitEmpty, omitZero: omitZero,
			})
		}
	}
	return out
}

// embedded reports whether the members of an embedded type are members of the struct around it.
func embedded(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && Form(t) == t
}

func has(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

// Form returns the type of what is written for a value of a type: that of its [Former], if it is
// one, and otherwise the type itself.
func Form(t reflect.Type) reflect.Type {
	if former, ok := reflect.TypeAssert[Former](reflect.Zero(t)); ok && t.Kind() != reflect.Pointer {
		return Form(reflect.TypeOf(former.JSON()))
	}
	return t
}
