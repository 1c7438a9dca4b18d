package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// message is a message of protobuf that was read by its schema.
type message struct {
	*dynamicpb.Message
	schemas *Schemas
	// unknown are the numbers of fields that the schema does not declare.
	unknown []protowire.Number
}

// schema reads the body by the schema that a rule or the properties name. A type that only the
// properties name is no more than a hint: where it does not fit, nothing is noted.
func (d *Decoder) schema(r *reading, in Input, media string, params map[string]string) bool {
	name, certain := d.typeOf(in, media, params)
	descriptor := d.schemas.message(name)
	if descriptor == nil {
		return false
	}
	m, tree, err := d.schemas.parse(descriptor, r.body)
	if err != nil {
		if certain || isProtobuf(media) {
			r.note("the body was not read as %s: %v", name, err)
		}
		return false
	}
	r.Format, r.Tree, r.Type, r.message, r.whole = Protobuf, true, name, m, true
	r.Value, r.Text = plain(tree), Render(tree)
	if len(m.unknown) > 0 {
		r.note("%s does not declare these fields, and they are not shown: %s", name, list(m.unknown))
	}
	return true
}

func list(numbers []protowire.Number) string {
	const most = 10
	var out []string
	for _, n := range numbers[:min(len(numbers), most)] {
		out = append(out, strconv.Itoa(int(n)))
	}
	if len(numbers) > most {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}

// parse reads a message and returns it as an ordered tree as well.
func (s *Schemas) parse(d protoreflect.MessageDescriptor, body []byte) (*message, any, error) {
	if err := countWire(d, body, newBudget(), MaxDepth); err != nil {
		return nil, nil, err
	}
	m := &message{Message: dynamicpb.NewMessage(d), schemas: s}
	o := proto.UnmarshalOptions{AllowPartial: true, Resolver: s.types, RecursionLimit: MaxDepth}
	if err := o.Unmarshal(body, m.Message); err != nil {
		return nil, nil, errors.New("it does not fit the schema")
	}
	tree := m.tree(m.Message)
	slices.Sort(m.unknown)
	m.unknown = slices.Compact(m.unknown)
	if fields, ok := tree.(Object); ok && len(fields) == 0 && len(m.unknown) > 0 {
		return nil, nil, errors.New("it has none of the fields of the schema")
	}
	return m, tree, nil
}

// countWire checks depth and number of values before any is built: a packed list holds a value
// for each byte.
func countWire(d protoreflect.MessageDescriptor, b []byte, left *budget, depth int) error {
	if depth == 0 {
		return errDeep
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errors.New("it is not protobuf")
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return errors.New("it is not protobuf")
		}
		value := b[n : n+size]
		b = b[n+size:]
		if !left.spend(1) {
			return errMany
		}
		field := d.Fields().ByNumber(number)
		if field == nil || kind != protowire.BytesType {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		switch {
		case field.Message() != nil:
			if err := countWire(field.Message(), value, left, depth-1); err != nil {
				return err
			}
		case field.IsList() && !left.spend(packed(field.Kind(), value)):
			return errMany
		}
	}
	return nil
}

// packed returns how many values a packed list holds.
func packed(kind protoreflect.Kind, b []byte) int {
	switch kind {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(b) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(b) / 8
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return 0 // these are never packed
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind,
		protoreflect.Uint32Kind, protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind:
	}
	return len(b)
}

// tree returns a message as an ordered tree, with the names of protobuf's JSON.
func (m *message) tree(v protoreflect.Message) any {
	if known, ok := m.wellKnown(v); ok {
		return known
	}
	m.note(v.GetUnknown())
	var fields []protoreflect.FieldDescriptor
	v.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	out := make(Object, len(fields))
	for i, f := range fields {
		name := f.JSONName()
		if f.IsExtension() {
			name = "[" + string(f.FullName()) + "]"
		}
		out[i] = Member{name, m.field(f, v.Get(f))}
	}
	return out
}

// note notes the numbers of unknown fields.
func (m *message) note(unknown []byte) {
	for len(unknown) > 0 {
		number, _, n := protowire.ConsumeField(unknown)
		if n < 0 {
			return
		}
		m.unknown = append(m.unknown, number)
		unknown = unknown[n:]
	}
}

// wellKnown returns the messages that protobuf gives a form of their own in JSON: times,
// wrappers, google.protobuf.Struct and Any.
func (m *message) wellKnown(v protoreflect.Message) (any, bool) {
	if v.Descriptor().ParentFile().Package() != "google.protobuf" {
		return nil, false
	}
	data, err := protojson.MarshalOptions{Resolver: m.schemas.types, AllowPartial: true}.Marshal(v.Interface())
	if err != nil {
		return nil, false // such as an Any of a type that no schema declares: its fields are shown
	}
	tree, err := ParseOrdered(string(data)) // with its numbers as they are written: an edit reads them back
	return tree, err == nil
}

func (m *message) field(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.IsMap():
		out := map[string]any{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			out[k.String()] = m.value(f.MapValue(), v)
			return true
		})
		return out
	case f.IsList():
		out := make([]any, v.List().Len())
		for i := range out {
			out[i] = m.value(f, v.List().Get(i))
		}
		return out
	}
	return m.value(f, v)
}

// value returns one value of a field. Numbers beyond int64 keep their digits.
func (m *message) value(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return v.Bool()
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return string(e.Name())
		}
		return int64(v.Enum())
	case protoreflect.StringKind:
		return v.String()
	case protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	case protoreflect.FloatKind:
		return float(v.Float(), 32)
	case protoreflect.DoubleKind:
		return float(v.Float(), 64)
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return m.tree(v.Message())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if v.Uint() > math.MaxInt64 {
			return json.Number(strconv.FormatUint(v.Uint(), 10))
		}
		return int64(v.Uint())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Int64Kind, protoreflect.Sint64Kind,
		protoreflect.Sfixed32Kind, protoreflect.Sfixed64Kind:
	}
	return v.Int()
}

// float returns a float as JSON writes it. What JSON has no number for is a text.
func float(f float64, bits int) any {
	if text := formatFloat(f, bits); text[0] != '"' {
		return json.Number(text)
	}
	return fmt.Sprint(strings.Trim(formatFloat(f, bits), `"`))
}

// plain returns an ordered tree with maps in place of ordered objects.
func plain(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(map[string]any, len(v))
		for _, m := range v {
			out[m.Name] = plain(m.Value)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			out[k] = plain(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = plain(inner)
		}
		return out
	case json.Number:
		return number(string(v))
	}
	return v
}

// encode returns the message that a text of JSON stands for. The order of fields is fixed.
func (m *message) encode(text []byte) ([]byte, error) {
	out := dynamicpb.NewMessage(m.Descriptor())
	err := protojson.UnmarshalOptions{Resolver: m.schemas.types, AllowPartial: true}.Unmarshal(text, out)
	if err != nil {
		// The library varies the spaces of its errors on purpose.
		return nil, errors.New(string(bytes.Join(bytes.Fields([]byte(err.Error())), []byte(" "))))
	}
	return proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(out)
}
