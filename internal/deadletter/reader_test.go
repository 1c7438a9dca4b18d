package deadletter_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// message returns a message of the dead-letter queue of billing.
func message(body string, h amqp091.Table) deadletter.Message {
	d := dead(h)
	d.ContentType, d.Body = "application/json", []byte(body)
	return deadletter.Message{Delivery: d, Queue: "billing.dead", Handle: deadletter.HandleOf(d), Copy: 1}
}

func TestHeadersOfEachTypeAreReadable(t *testing.T) {
	t.Parallel()
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	got := r.View(message(`{}`, amqp091.Table{
		"int8": int8(-1), "byte": byte(200), "int16": int16(2), "uint16": uint16(3), "int32": int32(4), "uint32": uint32(5),
		"int64": int64(6), "float32": float32(0.5), "float64": 0.25, "decimal": amqp091.Decimal{Scale: 2, Value: 12345},
		"bool": true, "void": nil, "text": "a", "bytes": []byte("b"), "binary": []byte{0xff, 0}, "time": at(1).Local(),
		"table": amqp091.Table{"list": []any{int32(1), amqp091.Table{"x": "y"}}},
	})).Headers
	want := map[string]any{
		"int8": int64(-1), "byte": int64(200), "int16": int64(2), "uint16": int64(3), "int32": int64(4), "uint32": int64(5),
		"int64": int64(6), "float32": 0.5, "float64": 0.25, "decimal": 123.45,
		"bool": true, "void": nil, "text": "a", "bytes": "b", "binary": "0xff00", "time": at(1),
		"table": map[string]any{"list": []any{int64(1), map[string]any{"x": "y"}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("headers (-want +got):\n%s", d)
	}
}

func TestAViewIsJSONForScripts(t *testing.T) {
	t.Parallel()
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	m := message(`{"customer":{"country":"AT"}}`, processed(3, "odd", math.NaN(), "when", time.Unix(1<<40, 0)))
	m.Copy = 2
	raw, err := json.Marshal(r.View(m))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"name": m.Handle.String() + "#2", "handle": string(m.Handle), "copy": true, "copyNumber": 2.0,
		"liesIn": "billing.dead",
		"queue":  "billing", "cause": "rejected", "attempts": 3.0, "firstFailed": "2026-11-22T09:00:01Z",
		"lastFailed": "2026-11-22T09:00:09.5Z", "exchange": "events", "key": "order.placed", "replays": 0.0, "run": "",
		"id": "m-1", "type": "order.placed", "size": 29.0, "published": nil,
	} {
		if d := cmp.Diff(want, got[name]); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if h, _ := got["headers"].(map[string]any); h["odd"] != "NaN" || h["when"] != float64(1<<40) {
		t.Errorf("headers %v", h)
	}
	if _, err := json.Marshal(r.View(deadletter.Message{})); err != nil {
		t.Errorf("an empty message: %v", err)
	}
}

func TestAHeadHasNoBody(t *testing.T) {
	t.Parallel()
	var r deadletter.Reader
	v := r.Head(message(strings.Repeat("x", 100), processed(1)))
	if v.Body.Text != "" || v.Bytes != 100 || v.WorkQueue != "billing" {
		t.Errorf("head %+v", v)
	}
}

// Nothing that a publisher sends makes Read or View panic, and each view is valid JSON.
func FuzzHostileMessages(f *testing.F) {
	f.Add("retry_info", `{"error":"x"}`, []byte(`{"a":1}`), "application/json", int64(3))
	f.Add("MT-Fault-InputAddress", "rabbitmq://h/%zz", []byte{0xff}, "", int64(-1))
	f.Add("x-death", "x", []byte("x"), "text/plain", int64(math.MaxInt64))
	f.Add("rascal", "\x1b[2J", []byte("\u202e"), "application/x-protobuf", int64(0))
	f.Fuzz(func(t *testing.T, name, text string, body []byte, contentType string, n int64) {
		t.Parallel()
		r := deadletter.Reader{Known: deadletter.Knows(shop())}
		for _, v := range []any{
			text, []byte(text), n, amqp091.Table{text: n, "queue": text, "count": n}, []any{amqp091.Table{"queue": text}, text},
		} {
			h := processed(
				n, name, v, "x-death", []any{amqp091.Table{"queue": text, "reason": name, "count": n, "routing-keys": []any{v}}},
			)
			d := amqp091.Delivery{Headers: h, Body: body, ContentType: contentType, MessageId: text, Type: name}
			view := r.View(deadletter.Message{Delivery: d, Queue: text, Handle: deadletter.HandleOf(d), Copy: 1})
			raw, err := json.Marshal(view)
			if err != nil || !json.Valid(raw) || bytes.ContainsRune(raw, '\x1b') {
				t.Fatalf("view as JSON: %v\n%q", err, raw)
			}
		}
	})
}
