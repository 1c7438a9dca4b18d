package decode

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// wireField is a field of a message of protobuf that was read without a schema.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	bits   uint64 // of a varint and of fixed numbers
	raw    []byte // of a length-delimited field
	// isText reports that raw is printable, and fields are what raw holds if it is a message.
	// Both may be true: only the schema could tell which is meant.
	isText bool
	fields []wireField
}

// wire reads the body as protobuf without a schema. Bodies that the content type does not
// declare must also look like protobuf.
func (r *reading) wire(declared bool) bool {
	fields, ok := parseWire(r.body, newBudget(), MaxDepth)
	if !ok || !declared && !plausible(fields) {
		if declared {
			r.note("the content type is protobuf, but the body is not")
		}
		return false
	}
	r.Format, r.Value, r.Tree = RawProtobuf, wireValue(fields), true
	var b strings.Builder
	wireText(&b, fields, "")
	r.Text = clean(strings.TrimSuffix(b.String(), "\n"), false)
	return true
}

// parseWire reads fields. It fails if any byte is left over.
func parseWire(b []byte, left *budget, depth int) ([]wireField, bool) {
	var fields []wireField
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || !left.spend(1) {
			return nil, false
		}
		b = b[n:]
		f := wireField{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			f.bits, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			f.bits = uint64(v)
		case protowire.Fixed64Type:
			f.bits, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.raw, n = protowire.ConsumeBytes(b)
		case protowire.StartGroupType, protowire.EndGroupType:
			return nil, false // groups are older than any program that would use RabbitMQ with protobuf
		default:
			return nil, false
		}
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		fields = append(fields, f)
	}
	for i := range fields {
		if f := &fields[i]; f.kind == protowire.BytesType && len(f.raw) > 0 {
			f.isText = utf8.Valid(f.raw) && controls(f.raw) == 0
			if depth > 1 {
				f.fields, _ = parseWire(f.raw, left, depth-1)
			}
			f.settle()
		}
	}
	return fields, true
}

// settle drops the reading of a field that is less likely than the other one: text that begins
// with a line break, which is the tag of field 1, and a message in which nothing is text.
func (f *wireField) settle() {
	if !f.isText || f.fields == nil {
		return
	}
	named := slices.ContainsFunc(f.fields, func(inner wireField) bool { return inner.isText || inner.fields != nil })
	switch {
	case !named || !plausible(f.fields):
		f.fields = nil
	case f.raw[0] == '\n':
		f.isText = false
	}
}

// plausible reports whether fields look like those of a message. Random bytes that parse
// have large or scattered field numbers, or length-delimited fields that cannot be read.
func plausible(fields []wireField) bool {
	const highest = 1 << 11 // tags of up to two bytes
	unread, named := 0, 0
	for _, f := range fields {
		if f.number >= highest {
			return false
		}
		switch {
		case f.kind != protowire.BytesType || len(f.raw) == 0:
		case f.isText || plausible(f.fields) && len(f.fields) > 0:
			named++
		default:
			unread++
		}
	}
	if len(fields) > 0 && fields[0].number > 100 {
		return false
	}
	return len(fields) > 0 && unread <= named && (named > 0 || len(fields) > 1)
}

// wireValue returns fields as a tree, by number. A field that is there several times is a list.
func wireValue(fields []wireField) map[string]any {
	out := element{members: map[string]any{}}
	for _, f := range fields {
		out.add(strconv.Itoa(int(f.number)), f.value())
	}
	return out.members
}

// value returns the likelier reading of a field.
func (f wireField) value() any {
	switch f.kind {
	case protowire.BytesType:
		switch {
		case f.isText || len(f.raw) == 0:
			return string(f.raw)
		case f.fields != nil:
			return wireValue(f.fields)
		}
		return "0x" + hex.EncodeToString(f.raw)
	case protowire.Fixed32Type:
		if v := float64(math.Float32frombits(uint32(f.bits))); isUsual(v) {
			return number(strconv.FormatFloat(v, 'g', -1, 32))
		}
	case protowire.Fixed64Type:
		if v := math.Float64frombits(f.bits); isUsual(v) {
			return v
		}
	case protowire.VarintType, protowire.StartGroupType, protowire.EndGroupType:
	}
	return int64(f.bits) // beyond int64 it is a negative number: protobuf has few unsigned ones of that size
}

// isUsual reports a number of a size that programs send as a float.
func isUsual(v float64) bool {
	const least, most = 1e-6, 1e15
	return v == 0 || math.Abs(v) >= least && math.Abs(v) <= most
}

// wireText writes fields in the order of the body, with all readings.
func wireText(b *strings.Builder, fields []wireField, margin string) {
	for _, f := range fields {
		fmt.Fprintf(b, "%s%d: ", margin, f.number)
		if f.kind != protowire.BytesType {
			b.WriteString(f.numbers() + "\n")
			continue
		}
		switch {
		case f.isText || len(f.raw) == 0:
			b.WriteString(quote(string(f.raw)))
		case f.fields == nil:
			b.WriteString("0x" + hex.EncodeToString(f.raw[:min(len(f.raw), maxHex)]))
			if len(f.raw) > maxHex {
				fmt.Fprintf(b, "… (%d bytes)", len(f.raw))
			}
		}
		if f.fields != nil {
			if f.isText {
				b.WriteString(" or ")
			}
			b.WriteString("{\n")
			wireText(b, f.fields, margin+"  ")
			b.WriteString(margin + "}")
		}
		b.WriteByte('\n')
	}
}

// numbers shows the readings of a number.
func (f wireField) numbers() string {
	switch f.kind {
	case protowire.Fixed32Type:
		return readings(float64(math.Float32frombits(uint32(f.bits))), 32, uint64(uint32(f.bits)), int64(int32(f.bits)))
	case protowire.Fixed64Type:
		return readings(math.Float64frombits(f.bits), 64, f.bits, int64(f.bits))
	case protowire.VarintType, protowire.BytesType, protowire.StartGroupType, protowire.EndGroupType:
	}
	if f.bits > math.MaxInt64 {
		return fmt.Sprintf("%d or %d", int64(f.bits), f.bits)
	}
	return strconv.FormatUint(f.bits, 10)
}

// readings shows a number of fixed size as float and as integer, the likelier one first.
func readings(f float64, bits int, unsigned uint64, signed int64) string {
	whole := strconv.FormatUint(unsigned, 10)
	if signed < 0 {
		whole += fmt.Sprintf(" or %d", signed)
	}
	if isUsual(f) {
		return strconv.FormatFloat(f, 'g', -1, bits) + " or " + whole
	}
	return whole
}
