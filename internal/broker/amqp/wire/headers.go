package wire

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// The library ends a connection over headers that it considers an attack: a list or table with more
// than 8,192 entries, or one that is nested more than 32 deep (v1.16.0, read.go). The broker
// accepts such headers from any publisher and would redeliver the message on each new connection.
// So Conn gives them to the library as one header that holds their bytes, and Unwrap decodes them.
// The library can write them.
//
// Upstream: the limits are intended (https://github.com/rabbitmq/amqp091-go/pull/397, "Reader
// hardening"); an issue that asks to configure them was not found.
const (
	maxEntries = 8192
	maxDepth   = 32
)

// wrapHeader is the name of that header. It is drawn for each process, so that no publisher can
// know it.
var wrapHeader = "dlxctl-" + rand.Text() //nolint:gochecknoglobals // it must be one for all connections

const (
	flagContentType     = 0x8000
	flagContentEncoding = 0x4000
	flagHeaders         = 0x2000
)

var errTable = errors.New("the headers are not as AMQP has them")

// headerTable returns where the bytes of the header table are in a content header frame, without
// their length. It reports false if there is no table.
func headerTable(frame []byte) (from, to int, ok bool) {
	at := contentHead + 2
	if len(frame) < at+1 {
		return 0, 0, false
	}
	flags := binary.BigEndian.Uint16(frame[contentHead:])
	if flags&flagHeaders == 0 {
		return 0, 0, false
	}
	for _, flag := range []uint16{flagContentType, flagContentEncoding} {
		if flags&flag != 0 {
			if at >= len(frame) {
				return 0, 0, false
			}
			at += 1 + int(frame[at])
		}
	}
	if at+4 >= len(frame) {
		return 0, 0, false
	}
	size := int(binary.BigEndian.Uint32(frame[at:]))
	if at+4+size >= len(frame) { // the octet at the end
		return 0, 0, false
	}
	return at + 4, at + 4 + size, true
}

// legible reports whether the library can read the headers in a content header frame. It also
// reports true for headers that are malformed: no reader can read them.
func legible(frame []byte) bool {
	from, to, ok := headerTable(frame)
	if !ok || to-from <= maxEntries && to-from <= maxDepth*5 { // an entry has a byte, a level five
		return true
	}
	f := fields{rest: frame[from:to]}
	err := f.skipEntries(true, 0)
	return !f.excess || err != nil
}

// wrapped returns a content header frame in which one header holds the bytes of all headers.
// Without keep the headers are left out; the frame is then no longer than before.
func wrapped(frame []byte, keep bool) []byte {
	from, to, _ := headerTable(frame)
	var table []byte
	if keep {
		table = append(table, byte(len(wrapHeader)))
		table = append(table, wrapHeader...)
		table = append(table, 'x')
		table = binary.BigEndian.AppendUint32(table, uint32(to-from)) //nolint:gosec // it was in a frame
		table = append(table, frame[from:to]...)
	}
	out := append([]byte(nil), frame[:from-4]...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(table))) //nolint:gosec // it was in a frame
	out = append(out, table...)
	out = append(out, frame[to:]...)
	binary.BigEndian.PutUint32(out[3:], uint32(len(out)-frameHead-1)) //nolint:gosec // it was in a frame
	return out
}

// Unwrap returns the headers of a delivery as they were published.
func Unwrap(h amqp091.Table) amqp091.Table {
	if len(h) != 1 {
		return h
	}
	raw, ok := h[wrapHeader].([]byte)
	if !ok {
		return h
	}
	f := fields{rest: raw}
	if table, err := f.entries(); err == nil {
		return table
	}
	return h // cannot happen: legible has decoded it
}

// fields decodes the values of AMQP tables as the library does, but of any size and depth: a frame
// has room for no more than some 200,000 values.
type fields struct {
	rest   []byte
	excess bool // there was more than the library reads
}

// take returns the next n bytes.
func (f *fields) take(n int) ([]byte, error) {
	if n < 0 || n > len(f.rest) {
		return nil, errTable
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b, nil
}

// long returns a value that follows a length of four octets.
func (f *fields) long() ([]byte, error) {
	b, err := f.take(4)
	if err != nil {
		return nil, err
	}
	return f.take(int(binary.BigEndian.Uint32(b)))
}

// name returns a value that follows a length of one octet.
func (f *fields) name() (string, error) {
	b, err := f.take(1)
	if err != nil {
		return "", err
	}
	b, err = f.take(int(b[0]))
	return string(b), err
}

// sizeOf returns the size of a value whose kind has a fixed size.
func sizeOf(kind byte) (int, bool) {
	switch kind {
	case 'V':
		return 0, true
	case 't', 'b', 'B':
		return 1, true
	case 's', 'u':
		return 2, true
	case 'I', 'i', 'f':
		return 4, true
	case 'D':
		return 5, true
	case 'l', 'd', 'T':
		return 8, true
	default:
		return 0, false
	}
}

// skipEntries skips all entries of a table or a list, and notes an excess.
func (f *fields) skipEntries(named bool, depth int) error {
	f.excess = f.excess || depth > maxDepth
	for n := 1; len(f.rest) > 0; n++ {
		f.excess = f.excess || n > maxEntries
		if named {
			if _, err := f.name(); err != nil {
				return err
			}
		}
		kind, err := f.take(1)
		if err != nil {
			return err
		}
		if size, fixed := sizeOf(kind[0]); fixed {
			if _, err := f.take(size); err != nil {
				return err
			}
			continue
		}
		b, err := f.long()
		if err != nil {
			return err
		}
		switch kind[0] {
		case 'S', 'x':
		case 'A', 'F':
			inner := fields{rest: b}
			err := inner.skipEntries(kind[0] == 'F', depth+1)
			f.excess = f.excess || inner.excess
			if err != nil {
				return err
			}
		default:
			return errTable
		}
	}
	return nil
}

// entries decodes everything as a table.
func (f *fields) entries() (amqp091.Table, error) {
	out := amqp091.Table{}
	for len(f.rest) > 0 {
		name, err := f.name()
		if err != nil {
			return nil, err
		}
		if out[name], err = f.value(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// list decodes everything as a list.
func (f *fields) list() ([]any, error) {
	var out []any
	for len(f.rest) > 0 {
		v, err := f.value()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// value decodes a value to the Go type that the library uses for it.
func (f *fields) value() (any, error) {
	kind, err := f.take(1)
	if err != nil {
		return nil, err
	}
	if size, fixed := sizeOf(kind[0]); fixed {
		b, err := f.take(size)
		if err != nil {
			return nil, err
		}
		return fixedValue(kind[0], b), nil
	}
	b, err := f.long()
	if err != nil {
		return nil, err
	}
	switch inner := (&fields{rest: b}); kind[0] {
	case 'S':
		return string(b), nil
	case 'x':
		return append([]byte(nil), b...), nil
	case 'A':
		return inner.list()
	case 'F':
		return inner.entries()
	default:
		return nil, errTable
	}
}

// fixedValue decodes a value whose kind has a fixed size.
func fixedValue(kind byte, b []byte) any {
	order := binary.BigEndian
	switch kind {
	case 't':
		return b[0] != 0
	case 'b':
		return int8(b[0]) //nolint:gosec // it is one
	case 'B':
		return b[0]
	case 's':
		return int16(order.Uint16(b)) //nolint:gosec // it is one
	case 'u':
		return order.Uint16(b)
	case 'I':
		return int32(order.Uint32(b)) //nolint:gosec // it is one
	case 'i':
		return order.Uint32(b)
	case 'f':
		return math.Float32frombits(order.Uint32(b))
	case 'D':
		return amqp091.Decimal{Scale: b[0], Value: int32(order.Uint32(b[1:]))} //nolint:gosec // it is one
	case 'l':
		return int64(order.Uint64(b)) //nolint:gosec // it is one
	case 'd':
		return math.Float64frombits(order.Uint64(b))
	case 'T':
		return time.Unix(int64(order.Uint64(b)), 0) //nolint:gosec // it is one
	default:
		return nil
	}
}
