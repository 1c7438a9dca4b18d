package decode

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Fit says how well a message type of the schemas fits a body.
type Fit struct {
	// Type is the full name of the message type.
	Type string
	// Fields is how many fields the body has that the type declares, those of nested messages
	// included, and Unknown how many it does not declare.
	Fields, Unknown int
	// Steps names what was undone before the body was read, as in [Document].
	Steps []string
}

// Fits reads a body by each message type of the schemas, and returns those that it may have: the
// type that leaves the fewest fields unknown first, and of equal ones that with the most fields.
// It looks into base64 too. Empty if the body fits none, or no schema is known.
func (d *Decoder) Fits(in Input) []Fit {
	if d == nil || d.schemas == nil || len(in.Body) == 0 || len(in.Body) > MaxBytes {
		return nil
	}
	media, params := mediaType(in)
	r := &reading{body: in.Body}
	r.unwrap(in.ContentEncoding)
	d.unwrapUndeclared(r, in, media, params)
	fits := d.schemas.fits(r.body, r.Steps)
	if out, l, ok := undoBase64(r.body); ok {
		fits = append(fits, d.schemas.fits(out, append(slices.Clone(r.Steps), l.name))...)
	}
	slices.SortFunc(fits, func(a, b Fit) int {
		return cmp.Or(a.Unknown-b.Unknown, b.Fields-a.Fields, strings.Compare(a.Type, b.Type), len(a.Steps)-len(b.Steps))
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(fits, func(f Fit) bool {
		again := seen[f.Type]
		seen[f.Type] = true
		return again
	})
}

// fits returns the message types that a body may have.
func (s *Schemas) fits(body []byte, steps []string) []Fit {
	var out []Fit
	for _, name := range s.Types() {
		m, _, err := s.parse(s.message(name), body)
		if err != nil {
			continue
		}
		if n := fieldsIn(m.Message); n > 0 {
			out = append(out, Fit{Type: name, Fields: n, Unknown: len(m.unknown), Steps: steps})
		}
	}
	return out
}

// fieldsIn counts the fields that a message has, and those of its nested messages.
func fieldsIn(m protoreflect.Message) int {
	n := 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		n++
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				n += fieldsIn(v.List().Get(i).Message())
			}
		default:
			n += fieldsIn(v.Message())
		}
		return true
	})
	return n
}

// isProtobufIn reports whether base64 that nothing declares stands for protobuf: the message has
// the type that a rule or its properties name, or the content type is protobuf, or it is clearly
// protobuf. A body that is such a message as it stands is not base64.
func (d *Decoder) isProtobufIn(body, decoded []byte, in Input, media string, params map[string]string) bool {
	name, certain := d.typeOf(in, media, params)
	if descriptor := d.schemas.message(name); descriptor != nil {
		before, whole := d.schemas.unknownFields(descriptor, body)
		after, inside := d.schemas.unknownFields(descriptor, decoded)
		switch {
		case whole && before == 0:
			return false
		case inside && after == 0:
			return true
		case certain && inside && (!whole || after < before): // of a newer version of the type
			return true
		}
	}
	if isProtobuf(media) {
		_, whole := parseWire(body, newBudget(), MaxDepth)
		_, inside := parseWire(decoded, newBudget(), MaxDepth)
		return inside && !whole
	}
	return !isJSON(media) && !isXML(media) && isClearlyProtobuf(decoded)
}

// unknownFields returns how many fields of a body a message type does not declare, and whether the
// body can be a message of that type.
func (s *Schemas) unknownFields(d protoreflect.MessageDescriptor, body []byte) (int, bool) {
	m, _, err := s.parse(d, body)
	if err != nil {
		return 0, false
	}
	return len(m.unknown), true
}

// isClearlyProtobuf reports bytes that hardly anything but a message of protobuf has: its fields
// are in their order, as encoders write them, and one is a text.
func isClearlyProtobuf(b []byte) bool {
	const shortest = 4 // shorter texts come about by chance
	fields, ok := parseWire(b, newBudget(), MaxDepth)
	if !ok || !plausible(fields) {
		return false
	}
	named := false
	for i, f := range fields {
		if i > 0 && f.number < fields[i-1].number {
			return false
		}
		named = named || f.isText && len(f.raw) >= shortest || f.fields != nil && isClearlyProtobuf(f.raw)
	}
	return named
}
