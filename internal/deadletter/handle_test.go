package deadletter_test

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

func dead(h amqp091.Table) amqp091.Delivery {
	return amqp091.Delivery{MessageId: "m-1", Type: "order.placed", Body: []byte(`{"a":1}`), Headers: h}
}

func TestAHandleNamesTheContent(t *testing.T) {
	t.Parallel()
	base := amqp091.Table{"count": int32(2), "x-death": []any{amqp091.Table{"queue": "billing", "time": time.Unix(9, 0)}}}
	with := func(name string, v any) amqp091.Table {
		h := maps.Clone(base)
		h[name] = v
		return h
	}
	want := deadletter.HandleOf(dead(base))
	if len(want) != 32 || want.String() != string(want[:12]) {
		t.Fatalf("handle %q, shown as %s; want 32 digits, and the first 12", string(want), want)
	}
	for name, h := range map[string]amqp091.Table{
		"a wider integer":         with("count", int64(2)),
		"a delivery count":        with("x-delivery-count", int64(7)),
		"an acquired count":       with("x-acquired-count", int64(7)),
		"headers of the desk":     with("desk-run", "r"),
		"the offset in a stream":  with("x-stream-offset", int64(4)),
		"a time in another place": with("x-death", []any{amqp091.Table{"queue": "billing", "time": time.Unix(9, 0).UTC()}}),
	} {
		if got := deadletter.HandleOf(dead(h)); got != want {
			t.Errorf("%s: handle %s; want %s", name, got, want)
		}
	}
	others := map[string]amqp091.Delivery{
		"another number": dead(with("count", int32(3))),
		"a text":         dead(with("count", "2")),
		"a float":        dead(with("count", 2.0)),
		"bytes":          dead(with("count", []byte("2"))),
		"void":           dead(with("count", nil)),
		"a decimal":      dead(with("count", amqp091.Decimal{Value: 2})),
		"another header": dead(with("other", true)),
		"no headers":     dead(nil),
	}
	for name, change := range map[string]func(*amqp091.Delivery){
		"another body":                      func(d *amqp091.Delivery) { d.Body = []byte(`{"a":2}`) },
		"another id":                        func(d *amqp091.Delivery) { d.MessageId = "m-2" },
		"another type":                      func(d *amqp091.Delivery) { d.Type = "order" },
		"a text that moved from id to type": func(d *amqp091.Delivery) { d.MessageId, d.Type = "m-1o", "rder.placed" },
	} {
		d := dead(base)
		change(&d)
		others[name] = d
	}
	seen := map[deadletter.Handle]string{want: "the original"}
	for name, d := range others {
		h := deadletter.HandleOf(d)
		if before, taken := seen[h]; taken {
			t.Errorf("%s has the handle of %s", name, before)
		}
		seen[h] = name
	}
}

// A run that one release has begun can be resumed by the next: the contents in its list stay the
// same.
func TestHandlesStayTheSame(t *testing.T) {
	t.Parallel()
	got := deadletter.HandleOf(dead(amqp091.Table{
		"count": int32(-1), "retry-queue": "billing", "desk-cc": []any{"@billing"}, "x-delivery-count": int64(3),
		"x-death": []any{amqp091.Table{"time": time.Unix(9, 0), "routing-keys": []any{"a", "b"}}}, "f": 1.5, "n": nil,
		"b": []byte{1}, "d": amqp091.Decimal{Scale: 2, Value: -7}, "t": true,
	}))
	if want := "92f1a2d93bff"; got.String() != want {
		t.Errorf("handle %s, want %s", got, want)
	}
}

// A NaN equals no other, and must not make a message differ from itself.
func TestAHandleIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	h := amqp091.Table{"nan": math.NaN(), "a": int8(1), "b": "x", "c": []any{amqp091.Table{"d": nil}}}
	if a, b := deadletter.HandleOf(dead(h)), deadletter.HandleOf(dead(maps.Clone(h))); a != b {
		t.Errorf("handles %s and %s of the same message", a, b)
	}
	if a, b := deadletter.HandleOf(dead(nil)), deadletter.HandleOf(dead(amqp091.Table{})); a != b {
		t.Errorf("handles %s and %s without headers", a, b)
	}
}

func TestTheAddressesOfAMessageAreKeptAside(t *testing.T) {
	t.Parallel()
	h := amqp091.Table{"CC": []any{"@billing"}, "BCC": []any{"x"}, "count": int32(-1)}
	aside := deadletter.Aside(h)
	if aside["CC"] != nil || aside["BCC"] != nil || aside["desk-cc"] == nil || h["CC"] == nil {
		t.Errorf("Aside = %v, of %v", aside, h)
	}
	if a, b := deadletter.HandleOf(dead(h)), deadletter.HandleOf(dead(aside)); a != b {
		t.Errorf("handles %s and %s", a, b)
	}
	if a, b := deadletter.HandleOf(dead(h)), deadletter.HandleOf(dead(deadletter.Restore(aside))); a != b {
		t.Errorf("handles %s and %s after Restore", a, b)
	}
}

func TestCopiesAreNumbered(t *testing.T) {
	t.Parallel()
	var c deadletter.Copies
	a, b := deadletter.Handle("0a1b2c3d4e5f"), deadletter.Handle("000000000000")
	for i, want := range []struct {
		h    deadletter.Handle
		n    int
		name string
	}{{a, 1, "0a1b2c3d4e5f"}, {b, 1, "000000000000"}, {a, 2, "0a1b2c3d4e5f#2"}, {a, 3, "0a1b2c3d4e5f#3"}} {
		if got := c.Next(want.h); got != want.n || deadletter.NameOf(want.h, got) != want.name {
			t.Errorf("%d: copy %d, named %s; want %+v", i, got, deadletter.NameOf(want.h, got), want)
		}
	}
}

func TestNamesOfMessagesAreRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		h    deadletter.Handle
		n    int
		fail string
	}{
		"0a1b2c3d4e5f":    {"0a1b2c3d4e5f", 1, ""},
		"0A1B2C3D4E5F#2 ": {"0a1b2c3d4e5f", 2, ""},
		"0a1b2c3d4e5f#1":  {"0a1b2c3d4e5f", 1, ""},
		"":                {"", 0, "has 0 hexadecimal digits, and needs 12 to 32"},
		"0a1b":            {"", 0, "has 4 hexadecimal digits"},
		"0a1b2c3d4e5f0#3": {"0a1b2c3d4e5f0", 3, ""},

		strings.Repeat("a", 33): {"", 0, "has 33 hexadecimal digits"},

		"0a1b2c3d4e5g":   {"", 0, "'g', which is not a hexadecimal digit"},
		"0a1b…#2":        {"", 0, "'…'"},
		"0a1b2c3d4e5f#0": {"", 0, `copy "0"; write a number from 1, as in 0a1b2c3d4e5f#2`},
		"0a1b2c3d4e5f#":  {"", 0, `copy ""`},
	} {
		h, n, err := deadletter.ParseHandle(name)
		if want.fail != "" {
			if err == nil || !strings.Contains(err.Error(), want.fail) {
				t.Errorf("ParseHandle(%q) = %v; want an error with %q", name, err, want.fail)
			}
		} else if err != nil || h != want.h || n != want.n {
			t.Errorf("ParseHandle(%q) = %s, %d, %v; want %s, %d", name, h, n, err, want.h, want.n)
		}
	}
}
