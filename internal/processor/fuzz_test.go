package processor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// reader makes AMQP values of bytes: each is read as a kind and what it needs.
type reader struct{ data []byte }

func (r *reader) byte() byte {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

func (r *reader) number() uint64 {
	var n [8]byte
	r.data = r.data[copy(n[:], r.data):]
	return binary.BigEndian.Uint64(n[:])
}

// text returns one that may be longer than what a frame takes for a name or a key.
func (r *reader) text() string {
	n := min(2*int(r.byte()), len(r.data))
	s := string(r.data[:n])
	r.data = r.data[n:]
	return s
}

// name returns one that means something as a rule.
func (r *reader) name() string {
	known := []string{
		"x-death", "count", "CC", "BCC", "queue", "reason", "exchange", "routing-keys", "time",
		"x-delivery-count", "x-first-death-queue", "billing", "shop.standard.retry.10s", "rejected", "expired",
	}
	known = append(known, topology.RetryHeaders()...)
	if i := int(r.byte()); i < len(known) {
		return known[i]
	}
	return r.text()
}

// value returns a value of any type that a table off the wire can hold.
func (r *reader) value(depth int) any {
	kind := r.byte()
	if depth > 6 {
		kind %= 12
	}
	switch kind % 16 {
	case 0:
		return nil
	case 1:
		return r.byte()&1 == 1
	case 2:
		return int8(r.byte()) //nolint:gosec // any bits will do, here and below
	case 3:
		return r.byte()
	case 4:
		return int16(r.number()) //nolint:gosec // see above
	case 5:
		return int32(r.number()) //nolint:gosec // see above
	case 6:
		return int64(r.number()) //nolint:gosec // see above
	case 7:
		return math.Float64frombits(r.number())
	case 8:
		return time.Unix(int64(r.number()), 0) //nolint:gosec // see above
	case 9:
		return []byte(r.text())
	case 10:
		return amqp091.Decimal{Scale: r.byte(), Value: int32(r.number())} //nolint:gosec // see above
	case 11:
		return r.name()
	case 12, 13:
		list := make([]any, 0, 4)
		for n := r.byte() % 4; n > 0; n-- {
			list = append(list, r.value(depth+1))
		}
		return list
	default:
		return r.table(depth + 1)
	}
}

func (r *reader) table(depth int) amqp091.Table {
	t := amqp091.Table{}
	for n := r.byte() % 8; n > 0; n-- {
		t[r.name()] = r.value(depth)
	}
	return t
}

// Whatever headers a message has, it goes to one place, as it was: nothing of it
// is lost but what the broker writes itself, and no header that leads elsewhere
// is left.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{}, "@billing", "", "", uint32(0))
	f.Add([]byte("\x02\x00\x0c\x01\x0e\x03\x04\x0b\x0b\x05\x0b\x0d\x06\x0b\x20\x01\x06\x00\x00\x00\x00\x00\x00\x00\x01"),
		"@billing", "user", "60000", uint32(4096))
	f.Add([]byte("\x03\x01\x06\x7f\xff\xff\xff\xff\xff\xff\xff\x0f\x0b\x0b\x02\x0c\x02\x0b\xff\x03@qu\x0e"), "@", "", "x",
		uint32(100))
	// It has been through a retry queue, and its key is too long: in its own header, in x-death.
	long := "\x96" + strings.Repeat("k", 300)
	waited := "\x00\x0c\x02\x0e\x02\x04\x0b\x0b\x07\x0c\x01\x0b%s\x0e\x01\x04\x0b\x0c" +
		"\x01\x06\x00\x00\x00\x00\x00\x00\x00\x01" + "\x0f\x0b\x0b"
	f.Add([]byte("\x04"+fmt.Sprintf(waited, "\x0e")+"\x11\x0b\xff"+long), "@billing", "", "", uint32(0))
	f.Add([]byte("\x03"+fmt.Sprintf(waited, "\xff"+long)), "@billing", "", "", uint32(0))
	f.Fuzz(func(t *testing.T, headers []byte, key, user, expiration string, frameMax uint32) {
		key = key[:min(len(key), topology.MaxNameBytes)] // that of a delivery is no longer
		r := reader{headers}
		d := amqp091.Delivery{
			RoutingKey: key, UserId: user, Expiration: expiration, Headers: r.table(0), Body: []byte("body"), MessageId: "m",
			Priority: 3, DeliveryMode: amqp091.Persistent,
		}
		before := maps.Clone(d.Headers)
		rules := retry.NewRules(shop(), shop().Backoffs[0], int(frameMax%200_000))
		out := decide(rules, d, now())
		if !reflect.DeepEqual(stringsOf(before), stringsOf(d.Headers)) {
			t.Error("the delivery itself was changed")
		}
		if len(out.Key) > topology.MaxNameBytes {
			t.Errorf("no frame takes its key of %d bytes", len(out.Key))
		}
		m := out.Message
		switch out.Outcome {
		case retry.Dropped:
			t.Error("it is dropped, and the file does not say so")
		case retry.Retried, retry.DeadLettered:
			if out.Exchange != "shop.standard.dlx" || out.Queue != "billing" || key != "@billing" {
				t.Errorf("%s by %q for queue %q, key %q", out.Outcome, out.Exchange, out.Queue, key)
			}
			count, ok := m.Headers["count"].(int32)
			if !ok || out.Outcome == retry.Retried != (count == 1 || count == 2) ||
				out.Outcome == retry.DeadLettered != (count == -1) {
				t.Errorf("%s with the count %v", out.Outcome, m.Headers["count"])
			}
			addressed := out.Key == "@billing"
			if list, ok := m.Headers["CC"].([]any); ok {
				addressed = !addressed && len(list) == 1 && list[0] == "@billing" && !strings.HasPrefix(out.Key, "@")
			} else if _, ok := m.Headers["CC"]; ok {
				t.Errorf("CC is %v", m.Headers["CC"])
			}
			if !addressed {
				t.Errorf("it is addressed to %q and %v", out.Key, m.Headers["CC"])
			}
			if list, ok := m.Headers["retry-history"].([]any); ok {
				last, _ := list[len(list)-1].(amqp091.Table)
				if len(list) > 20 || last["at"] != nowText || last["reason"] != string(out.Reason) ||
					last["attempt"] != out.Attempts {
					t.Errorf("its history is %v", list)
				}
				for _, v := range list {
					entry, _ := v.(amqp091.Table)
					if size := relay.HeaderSize(amqp091.Publishing{Headers: entry}); entry == nil || size > 2500 {
						t.Errorf("its history has %v", v)
					}
				}
			} else if frameMax%200_000 == 0 {
				t.Errorf("its history is %v", m.Headers["retry-history"])
			}
			if frameMax%200_000 > 0 && relay.HeaderSize(m) > int(frameMax%200_000) {
				t.Errorf("its headers have %d bytes, and %d fit", relay.HeaderSize(m), frameMax%200_000)
			}
		case retry.Unroutable:
			if out.Exchange != "shop.unroutable" || out.Error == "" || m.Headers["CC"] != nil {
				t.Errorf("parked by %q because of %q, CC %v", out.Exchange, out.Error, m.Headers["CC"])
			}
		default:
			t.Errorf("it becomes %q", out.Outcome)
		}
		if !bytes.Equal(m.Body, d.Body) || m.MessageId != "m" || m.Priority != 3 || m.DeliveryMode != amqp091.Persistent ||
			m.UserId != "" || m.Expiration != "" {
			t.Errorf("it became another message: %+v", m)
		}
		for name := range m.Headers {
			if name == "x-death" || name == "x-delivery-count" || name == "BCC" {
				t.Errorf("it has the header %s", name)
			}
		}
		if err := m.Headers.Validate(); err != nil {
			t.Errorf("no frame takes its headers: %v", err)
		}
	})
}

// stringsOf makes headers comparable: no float that is not a number equals itself.
func stringsOf(t amqp091.Table) map[string]string {
	out := map[string]string{}
	for name, v := range t {
		out[name] = fmt.Sprintf("%#v", v)
	}
	return out
}
