package deadletter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/redact"
)

// hostile are headers of every type of AMQP, with values that a form or JSON could damage.
func hostile() amqp091.Table {
	return amqp091.Table{
		"<b>bold</b>": `<img src=x onerror="document.title='owned'">`, "quote\"'": "a\r\nb\tc",
		"bool": true, "int8": int8(-1), "byte": byte(200), "int16": int16(-2), "uint16": uint16(3), "int32": int32(4),
		"uint32": uint32(5), "int64": int64(1<<53 + 1), "float32": float32(0.5), "float64": 7.0, "nan": math.NaN(),
		"infinite": math.Inf(-1), "decimal": amqp091.Decimal{Scale: 2, Value: 12345}, "void": nil,
		"not UTF-8": "\xff<", "base64:": "base64:AA==", "empty": "", "binary": []byte{0xff, 0, 'a'},
		"time":  time.Unix(1_700_000_000, 0),
		"table": amqp091.Table{"n": int32(7), "void": nil, "<i>": []any{int64(1), 1.0, nil, time.Unix(1, 0), []byte{0}}},
		"list":  []any{"a", int16(2), amqp091.Table{"deep": byte(1)}}, "long": strings.Repeat("x", 100_000),
	}
}

// Each header is read back as it was shown, with its type, and then it is not a change. A header
// that was not named stays, whatever it is.
func TestHeadersKeepTheirTypes(t *testing.T) {
	t.Parallel()
	m := message(`{}`, hostile())
	v := new(deadletter.Reader).View(m)
	drafts := v.DraftHeaders(m.Delivery)
	if len(drafts) != len(hostile()) {
		t.Fatalf("%d headers of %d", len(drafts), len(hostile()))
	}
	for _, h := range drafts {
		if h.Fixed != "" {
			t.Errorf("%q cannot be edited: %s", h.Name, h.Fixed)
			continue
		}
		same := deadletter.HeaderChange{Name: h.Name, Type: h.Type, Text: h.Text}
		e, err := v.Change(m.Delivery, []deadletter.HeaderChange{same})
		if err != nil || !e.Unchanged(m.Delivery) {
			t.Errorf("%+.200v is the change %+v, %v", same, e, err)
		}
		same.Name += "2" // as a new header it must have the same value
		if e, err = v.Change(m.Delivery, []deadletter.HeaderChange{same}); err != nil {
			t.Errorf("%+.200v: %v", same, err)
		}
		want := m.Delivery.Headers[h.Name]
		if diff := cmp.Diff(want, e.Headers[same.Name], cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%q, written as %s %.100q, is another value: %s", h.Name, h.Type, h.Text, diff)
		}
	}
	e, err := v.Change(m.Delivery, []deadletter.HeaderChange{
		{Name: "int32", Text: "5"},
		{Name: "empty", Type: "int8", Text: "1"},
		{Name: "new", Text: "7"},
		{Name: "void", Remove: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := deadletter.Apply(m.Delivery, e)
	if err != nil {
		t.Fatal(err)
	}
	want := hostile()
	want["int32"], want["empty"], want["new"] = int32(5), int8(1), "7"
	delete(want, "void")
	if diff := cmp.Diff(want, got.Headers, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("after the edit: %s", diff)
	}
	if shown := deadletter.DiffHeaders(m.Delivery, e, "a", "b"); !strings.Contains(shown, "-int32  4 (int32)\n") ||
		!strings.Contains(shown, "+int32  5 (int32)\n") || !strings.Contains(shown, "-void   (null)\n") ||
		!strings.Contains(shown, "-routing key  a\n") || !strings.Contains(shown, "+routing key  b\n") {
		t.Errorf("the difference is\n%s", shown)
	}
}

// A masked header has no text, and no change of it is accepted, not even one that guesses its
// value: the answer would tell whether the guess is right. It stays in the message.
func TestMaskedHeadersStayAndAreNotShown(t *testing.T) {
	t.Parallel()
	rules, err := redact.New(redact.Rules{Paths: []string{"headers.authorization", "headers.user.mail", "body.name"}})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.Reader{Redactor: func(string) *redact.Redactor { return rules }}
	m := message(`{"name":"Ann Example"}`, amqp091.Table{
		"authorization": "Zx81secret", "user": amqp091.Table{"mail": "ann@example.org", "n": int32(1)},
		"copy": "of Ann Example", "tenant": "eu-1",
	})
	v := r.View(m)
	for _, h := range v.DraftHeaders(m.Delivery) {
		if masked := h.Name != "tenant"; masked != (h.Fixed != "") || masked && h.Text != "" {
			t.Errorf("%+v", h)
		}
	}
	for _, guess := range []deadletter.HeaderChange{
		{Name: "authorization", Type: "string", Text: "Zx81secret"},
		{Name: "authorization", Text: "other"},
		{Name: "authorization", Type: "string", Text: "[masked]"},
		{Name: "authorization", Remove: true},
		{Name: "user", Type: "table", Text: `{"mail":{"string":"ann@example.org"},"n":{"int32":1}}`},
		{Name: "copy", Text: "x"},
	} {
		_, err := v.Change(m.Delivery, []deadletter.HeaderChange{guess})
		if err == nil || !strings.Contains(err.Error(), "rules mask it, and it stays as it is") {
			t.Errorf("%+v: %v", guess, err)
		}
	}
	e, err := v.Change(m.Delivery, []deadletter.HeaderChange{{Name: "tenant", Text: "eu-2"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := deadletter.Apply(m.Delivery, e)
	if err != nil || got.Headers["authorization"] != "Zx81secret" || got.Headers["copy"] != "of Ann Example" ||
		got.Headers["tenant"] != "eu-2" {
		t.Errorf("the headers are %v (%v)", got.Headers, err)
	}
}

// A change that the message would not have when it is sent is refused, and so is a value that is
// none of its type.
func TestChangesOfHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	m := message(`{}`, processed(2, "tenant", "eu-1", "CC", []any{"@billing"}))
	m.Delivery.Headers["x-delivery-count"] = int64(1)
	v := (&deadletter.Reader{Known: deadletter.Knows(shop())}).View(m)
	for _, tc := range []struct {
		changes []deadletter.HeaderChange
		want    string
	}{
		{[]deadletter.HeaderChange{{Name: "retry-queue", Text: "shipping"}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "CC", Remove: true}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "BCC", Type: "array", Text: "[]"}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "x-death", Type: "array", Text: "[]"}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "x-delivery-count", Text: "0"}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "desk-run", Text: "x"}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "count", Type: "int64", Text: "0"}}, "dlxctl or RabbitMQ writes it"},
		{[]deadletter.HeaderChange{{Name: "", Text: "x"}}, "a header has no name"},
		{[]deadletter.HeaderChange{{Name: "a"}, {Name: "a"}}, `the header "a" is named twice`},
		{[]deadletter.HeaderChange{{Name: "gone", Remove: true}}, `the message has no header "gone"; leave it out`},
		{[]deadletter.HeaderChange{{Name: "a", Type: "int8", Text: "200"}}, `"200" is not of type int8`},
		{[]deadletter.HeaderChange{{Name: "a", Type: "text", Text: "x"}}, "the types are bool, int8"},
		{[]deadletter.HeaderChange{{Name: "a", Type: "timestamp", Text: "noon"}}, "write a time such as"},
		{[]deadletter.HeaderChange{{Name: "a", Type: "null", Text: "x"}}, "null has no value"},
		{[]deadletter.HeaderChange{{Name: "a", Type: "table", Text: `{"n":7}`}}, `has no type; write it as {"string": "x"}`},
	} {
		if _, err := v.Change(m.Delivery, tc.changes); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.changes, err, tc.want)
		}
	}
}

func TestHeaderChangesAreReadAndWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]deadletter.HeaderChange{
		"a=b":           {Name: "a", Text: "b"},
		"a=":            {Name: "a"},
		"a:int32=7":     {Name: "a", Type: "int32", Text: "7"},
		"x:y=1":         {Name: "x:y", Text: "1"},
		"a:string=b=c:": {Name: "a", Type: "string", Text: "b=c:"},
	} {
		got, err := deadletter.ParseHeaderChange(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v, written %q (%v)", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"a", "=b", ""} {
		if _, err := deadletter.ParseHeaderChange(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
