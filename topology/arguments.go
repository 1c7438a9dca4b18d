package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Arguments are the arguments of a queue, exchange or binding, or the definition of a policy,
// in canonical form: every value is a string, int64, float64 that is not a whole number, bool,
// nil, []any or Arguments of such. So an integer is the same whether it came from YAML, JSON or
// AMQP. Nil and empty are equal. Arguments of bindings that were read from a broker may hold
// whole numbers as float64: the broker has floats there. Such a float is not equal to the
// integer, because a headers exchange of 4.x does not match one with the other.
type Arguments map[string]any

// HasAny reports whether a has one of these names.
func (a Arguments) HasAny(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := a[name]; return ok })
}

// OrEmpty returns a, or an empty table for nil: JSON's null is an error to brokers.
func (a Arguments) OrEmpty() Arguments {
	if a == nil {
		return Arguments{}
	}
	return a
}

// Canonical returns args in canonical form. It fails on a value that no AMQP
// table can hold.
func Canonical(args map[string]any) (Arguments, error) {
	if len(args) == 0 {
		return nil, nil
	}
	out := make(Arguments, len(args))
	for name, v := range args {
		c, err := CanonicalValue(v)
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", name, err)
		}
		out[name] = c
	}
	return out, nil
}

// CanonicalBinding returns the arguments of a binding, as JSON decoded with UseNumber has them, in
// canonical form, in which whole numbers that were written as floats, as 1.0, stay float64. It
// fails as [Canonical] does.
func CanonicalBinding(read map[string]any) (Arguments, error) {
	args, err := Canonical(read)
	keepFloats(args, read)
	return args, err
}

// keepFloats makes those integers of args float64 that read has as floats.
func keepFloats(args Arguments, read map[string]any) {
	for name, v := range args {
		args[name] = keptFloat(v, read[name])
	}
}

// keptFloat is keepFloats for one value.
func keptFloat(v, read any) any {
	switch v := v.(type) {
	case int64:
		if n, _ := read.(json.Number); strings.ContainsAny(string(n), ".eE") {
			return float64(v)
		}
	case Arguments:
		table, _ := read.(map[string]any)
		keepFloats(v, table)
	case []any:
		list, _ := read.([]any)
		for i := range min(len(v), len(list)) {
			v[i] = keptFloat(v[i], list[i])
		}
	}
	return v
}

// CanonicalValue returns v in canonical form; see [Arguments].
func CanonicalValue(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, bool, int64:
		return v, nil
	case []byte:
		return string(v), nil
	case int:
		return int64(v), nil
	case int8:
		return int64(v), nil
	case int16:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case uint8:
		return int64(v), nil
	case uint16:
		return int64(v), nil
	case uint32:
		return int64(v), nil
	case uint64:
		if v > math.MaxInt64 {
			return nil, fmt.Errorf("%d is beyond 64 bits with a sign", v)
		}
		return int64(v), nil
	case float32:
		return canonicalFloat(float64(v)), nil
	case float64:
		return canonicalFloat(v), nil
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", v)
		}
		return canonicalFloat(f), nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			c, err := CanonicalValue(e)
			if err != nil {
				return nil, err
			}
			out[i] = c
		}
		return out, nil
	case map[string]any:
		return canonicalTable(v)
	case Arguments:
		return canonicalTable(v)
	default:
		return nil, fmt.Errorf("a value of type %T does not fit an AMQP table", v)
	}
}

// canonicalTable keeps an empty table a table: inside arguments it is a value.
func canonicalTable(v map[string]any) (any, error) {
	out, err := Canonical(v)
	if err != nil {
		return nil, err
	}
	if out == nil {
		out = Arguments{}
	}
	return out, nil
}

// canonicalFloat returns an int64 for a whole number, as JSON knows no integers.
func canonicalFloat(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return f
}

// Names returns the names in order.
func (a Arguments) Names() []string {
	if len(a) == 0 {
		return nil
	}
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// With returns a copy of a in which name is v. It leaves a as it is.
func (a Arguments) With(name string, v any) Arguments {
	out := maps.Clone(a)
	if out == nil {
		out = Arguments{}
	}
	out[name] = v
	return out
}

// Without returns a copy of a that lacks names.
func (a Arguments) Without(names ...string) Arguments {
	out := maps.Clone(a)
	for _, n := range names {
		delete(out, n)
	}
	return out
}

// WithoutX returns a copy of a that lacks the names that begin with "x-": the
// headers that a headers exchange compares.
func (a Arguments) WithoutX() Arguments {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(name string, _ any) bool { return strings.HasPrefix(name, "x-") })
	return out
}

// Equal reports whether a and b hold the same names and values.
func (a Arguments) Equal(b Arguments) bool { return a.String() == b.String() }

// String returns a as one line of JSON with the names in order: equal arguments
// give equal texts.
func (a Arguments) String() string { return string(a.appendText(nil)) }

// appendText appends what String gives.
func (a Arguments) appendText(out []byte) []byte {
	if len(a) == 1 { // as most arguments of bindings
		for name, v := range a {
			return append(appendValue(append(appendQuoted(append(out, '{'), name), ':'), v), '}')
		}
	}
	out = append(out, '{')
	var few [8]string // most have no more: they are sorted without a list on the heap
	names := few[:0]
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendQuoted(out, name), ':')
		out = appendValue(out, a[name])
	}
	return append(out, '}')
}

// FormatValue returns one canonical value as text: strings in quotes, so that 1
// and "1" differ.
func FormatValue(v any) string { return string(appendValue(nil, v)) }

func appendValue(out []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendQuoted(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case float64:
		if whole, ok := canonicalFloat(v).(int64); ok {
			return append(strconv.AppendInt(out, whole, 10), ".0"...)
		}
		return fmt.Append(out, v)
	case bool:
		return strconv.AppendBool(out, v)
	case Arguments:
		return v.appendText(out)
	case []any:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(out, e)
		}
		return append(out, ']')
	case nil:
		return append(out, "null"...)
	default:
		return fmt.Append(out, v)
	}
}

// appendQuoted appends what strconv.Quote gives. Almost all names are plain, and
// names are compared very often: those are copied as they are.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return strconv.AppendQuote(out, s)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}

// UnmarshalJSON reads a JSON object into canonical form, integers beyond 2^53
// included. An empty list is taken for an empty object, as brokers write it.
func (a *Arguments) UnmarshalJSON(data []byte) error {
	if string(data) == "[]" {
		*a = nil
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return err
	}
	c, err := Canonical(m)
	*a = c
	return err
}

// Integer returns a value of AMQP as an int64 if it is an integer, of any width. A float is no
// integer, a whole one neither: RabbitMQ 4.x tells them apart.
func Integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	default:
		return 0, false
	}
}
