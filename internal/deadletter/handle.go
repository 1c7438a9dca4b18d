package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

const (
	handleDigits = 32
	// shownDigits is how many of them outputs show.
	shownDigits = 12
)

// Digest tells the contents of messages apart: a SHA-256 over message-id, type, body and headers.
// It is for the program alone: who knows a message but for a masked value could guess the value
// with it.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a message.
//
// It leaves out what changes while a message moves between a queue and a hold: the counts of
// deliveries, the headers of the desk, and the offset in a stream. The types of AMQP are part
// of the content, so that the number 2 and the text "2" differ. The widths of numbers are not:
// clients choose them by the value, and a broker that converts a message to another protocol
// may widen them.
func DigestOf(d amqp091.Delivery) Digest {
	h := sha256.New()
	w := hasher{make([]byte, 0, 1024)}
	w.text('S', d.MessageId)
	w.text('S', d.Type)
	w.number('B', uint64(len(d.Body)))
	h.Write(w.bytes)
	h.Write(d.Body)
	w.bytes = w.bytes[:0]
	w.headers(d.Headers)
	h.Write(w.bytes)
	var sum Digest
	h.Sum(sum[:0])
	return sum
}

// Whole returns the digest of a message with its other properties and its routing key, of one whose
// [DigestOf] it is. Messages of one handle may have different ones.
//
// It leaves out what does not come back from a hold: the exchange, the expiration, the user-id. Of
// the headers of the desk it has those that a person may choose by. The message is as in its queue.
func (g Digest) Whole(d amqp091.Delivery) Digest {
	w := hasher{append(make([]byte, 0, 512), g[:]...)}
	for _, s := range []string{d.RoutingKey, d.CorrelationId, d.ReplyTo, d.AppId, d.ContentType, d.ContentEncoding} {
		w.text('S', s)
	}
	w.number('l', uint64(d.Priority))
	w.value(d.Timestamp)
	var own []named
	for name, v := range d.Headers {
		if strings.HasPrefix(name, deskPrefix) && (!isReserved(name) || strings.HasPrefix(name, parkedPrefix)) {
			own = append(own, named{name, v})
		}
	}
	w.list(own)
	return sha256.Sum256(w.bytes)
}

// HandleOf returns the handle of a message in which nothing is masked. What prints a handle calls
// [Reader.Handle].
func HandleOf(d amqp091.Delivery) Handle { return DigestOf(d).handle() }

func (g Digest) handle() Handle { return Handle(hex.EncodeToString(g[:handleDigits/2])) }

// handle returns the handle of a message in which something is masked. It is made of nothing but
// what the view shows, so that no one can guess a masked value with it.
func (v View) handle() Handle {
	w := hasher{make([]byte, 0, 1024+len(v.Body.Text))}
	w.text('M', v.MessageID)
	w.text('S', v.Type)
	w.text('B', v.Body.Text)
	w.headers(v.Headers)
	return Digest(sha256.Sum256(w.bytes)).handle()
}

// String returns the first digits, which outputs show.
func (h Handle) String() string { return string(h[:min(len(h), shownDigits)]) }

// Begins reports whether the handle begins with the digits that a person has typed.
func (h Handle) Begins(digits Handle) bool { return strings.HasPrefix(string(h), string(digits)) }

// hasher collects values in a form that differs for different values. Each value begins with
// a byte for its type, and with its length where that is not fixed.
type hasher struct{ bytes []byte }

func (w *hasher) number(kind byte, n uint64) {
	w.bytes = binary.BigEndian.AppendUint64(append(w.bytes, kind), n)
}

func (w *hasher) text(kind byte, s string) {
	w.number(kind, uint64(len(s)))
	w.bytes = append(w.bytes, s...)
}

// headers adds all headers but those that change on the way to a hold and back. CC and BCC count
// under their own names, also where a desk has put them aside.
func (w *hasher) headers(h amqp091.Table) {
	var room [32]named
	list := room[:0]
	for name, v := range h {
		if name != topology.CC && name != topology.BCC && !isTransient(name) {
			list = append(list, named{name, v})
		}
	}
	for _, name := range [][2]string{{topology.CC, HeaderCC}, {topology.BCC, HeaderBCC}} {
		if v, ok := keptOf(h, name[0], name[1]); ok {
			list = append(list, named{name[0], v})
		}
	}
	w.list(list)
}

// named is an entry of a table.
type named struct {
	name  string
	value any
}

// isTransient reports whether a header is not part of the content.
func isTransient(header string) bool {
	return topology.IsDeliveryCount(header) || header == "x-stream-offset" || strings.HasPrefix(header, deskPrefix)
}

func (w *hasher) table(t amqp091.Table) {
	list := make([]named, 0, len(t))
	for name, v := range t {
		list = append(list, named{name, v})
	}
	w.list(list)
}

// list adds the entries of a table in the order of their names.
func (w *hasher) list(list []named) {
	slices.SortFunc(list, func(a, b named) int { return strings.Compare(a.name, b.name) })
	w.number('F', uint64(len(list)))
	for _, e := range list {
		w.text('S', e.name)
		w.value(e.value)
	}
}

func (w *hasher) value(v any) {
	if n, ok := topology.Integer(v); ok {
		w.number('l', uint64(n)) //nolint:gosec // only the bits matter
		return
	}
	switch v := v.(type) {
	case nil:
		w.number('V', 0)
	case bool:
		w.text('t', strconv.FormatBool(v))
	case float32:
		w.number('d', floatBits(float64(v)))
	case float64:
		w.number('d', floatBits(v))
	case string:
		w.text('S', v)
	case []byte:
		w.text('x', string(v))
	case time.Time:
		w.number('T', uint64(v.Unix())) //nolint:gosec // only the bits matter
	case amqp091.Decimal:
		w.number('D', uint64(v.Scale)<<32|uint64(uint32(v.Value))) //nolint:gosec // only the bits matter
	case amqp091.Table:
		w.table(v)
	case map[string]any: // of a view
		w.table(v)
	case []any:
		w.number('A', uint64(len(v)))
		for _, e := range v {
			w.value(e)
		}
	default: // no value that a client of AMQP 0.9.1 receives
		w.text('?', fmt.Sprintf("%T %v", v, v))
	}
}

// floatBits returns the bits of a float, the same for each NaN.
func floatBits(f float64) uint64 {
	if math.IsNaN(f) {
		f = math.NaN()
	}
	return math.Float64bits(f)
}

// Copies numbers messages that have the same handle. The zero value is ready to use. It needs
// some 40 bytes for each handle.
type Copies struct {
	seen map[[handleDigits / 2]byte]uint32
}

// Next returns 1 for the first message of a handle, 2 for the second, and so on.
func (c *Copies) Next(h Handle) int {
	if c.seen == nil {
		c.seen = map[[handleDigits / 2]byte]uint32{}
	}
	var key [handleDigits / 2]byte
	_, _ = hex.Decode(key[:], []byte(h)) // a handle has nothing but digits
	c.seen[key]++
	return int(c.seen[key])
}

// NameOf writes a handle and the number of its copy, as [ParseHandle] reads them:
// 0a1b2c3d4e5f for the first message of that content, and 0a1b2c3d4e5f#2 for the second.
func NameOf(h Handle, copied int) string {
	if copied <= 1 {
		return h.String()
	}
	return h.String() + "#" + strconv.Itoa(copied)
}

// Name returns the handle of the message, and the number of its copy from the second on.
func (m Message) Name() string { return NameOf(m.Handle, m.Copy) }

// ParseHandle reads the name of a message: the first 12 digits of a handle or more, and the number
// of a copy after "#". A name without a number is that of the first message.
func ParseHandle(name string) (h Handle, copied int, err error) {
	digits, number, numbered := strings.Cut(strings.TrimSpace(name), "#")
	digits = strings.ToLower(digits)
	if i := strings.IndexFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }); i >= 0 {
		return "", 0, fmt.Errorf("handle %q has %q, which is not a hexadecimal digit; copy a handle from the list",
			name, []rune(digits[i:])[0])
	}
	if len(digits) < shownDigits || len(digits) > handleDigits {
		return "", 0, fmt.Errorf("handle %q has %d hexadecimal digits, and needs %d to %d; copy a handle from the list",
			name, len(digits), shownDigits, handleDigits)
	}
	if !numbered {
		return Handle(digits), 1, nil
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("handle %q has the copy %q; write a number from 1, as in %s#2", name, number, digits)
	}
	return Handle(digits), int(n), nil
}
