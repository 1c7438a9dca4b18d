package deadletter_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/redact"
)

func TestAnEditReplacesWhatItSets(t *testing.T) {
	t.Parallel()
	d := dead(amqp091.Table{"count": int32(2), "keep": "x", "gone": true})
	d.ContentEncoding, d.Timestamp = "gzip", time.Unix(1, 0)
	plain := ""
	got, err := deadletter.Apply(d, deadletter.Edited{
		Body: []byte("new"), MessageID: "m-2", ContentEncoding: &plain, Removed: []string{"gone"},
		Headers: map[string]any{"count": int32(3), "more": amqp091.Table{"a": []any{1.5, "x", nil, true, int64(7)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := d
	want.Body, want.MessageId, want.ContentEncoding = []byte("new"), "m-2", ""
	want.Headers = amqp091.Table{
		"count": int32(3), "keep": "x", "more": amqp091.Table{"a": []any{1.5, "x", nil, true, int64(7)}},
	}
	if diff := cmp.Diff(want.Headers, got.Headers); diff != "" || string(got.Body) != "new" || got.MessageId != "m-2" ||
		got.ContentEncoding != "" || !got.Timestamp.Equal(d.Timestamp) {
		t.Errorf("edited %+v\n%s", got, diff)
	}
	if d.Headers["count"] != int32(2) || string(d.Body) == "new" {
		t.Error("the edit changed the original")
	}
	same, err := deadletter.Apply(d, deadletter.Edited{})
	if err != nil || deadletter.HandleOf(same) != deadletter.HandleOf(d) {
		t.Errorf("an empty edit changes the message: %v", err)
	}
	if _, err := deadletter.Apply(d, deadletter.Edited{Headers: map[string]any{"count": make(chan int)}}); err == nil {
		t.Error("a header that AMQP has no type for")
	}
	if _, err := deadletter.Apply(d, deadletter.Edited{MessageID: strings.Repeat("x", 256)}); err == nil {
		t.Error("a message-id of 256 bytes")
	}
}

func zipped(t *testing.T, s string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestADraftIsWrittenBack(t *testing.T) {
	t.Parallel()
	const number = "12345678901234567890.10"
	for name, tc := range map[string]struct {
		body, encoding, contentType string
		draft, change, want         string // of the draft, and the body with it
	}{
		"JSON on one line": {
			`{"b":1,"a":` + number + `}`, "", "application/json",
			"{\n  \"b\": 1,\n  \"a\": " + number + "\n}\n", `"b": 1=>"b": 2`, `{"b":2,"a":` + number + `}`,
		},
		"JSON in gzip": {`{"b":1}`, "gzip", "application/json", "{\n  \"b\": 1\n}\n", `1=>2`, `{"b":2}`},
		"a text":       {"one\ttwo\r\n", "", "text/plain", "one\ttwo\r\n", "two=>2", "one\t2\r\n"},
		"XML":          {"<a><b>1</b></a>", "", "application/xml", "<a><b>1</b></a>", "1=>2", "<a><b>2</b></a>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r deadletter.Reader
			m := message(tc.body, nil)
			m.Delivery.ContentType, m.Delivery.ContentEncoding = tc.contentType, tc.encoding
			if tc.encoding != "" {
				m.Delivery.Body = []byte(zipped(t, tc.body))
			}
			draft, err := r.Draft(m)
			if err != nil || string(draft) != tc.draft {
				t.Fatalf("draft %q, %v; want %q", draft, err, tc.draft)
			}
			if e, err := r.FromDraft(m, draft); err != nil || e.Body != nil {
				t.Errorf("an unchanged draft is the edit %+v, %v", e, err)
			}
			before, after, _ := strings.Cut(tc.change, "=>")
			e, err := r.FromDraft(m, []byte(strings.Replace(string(draft), before, after, 1)))
			if err != nil {
				t.Fatal(err)
			}
			got := string(e.Body)
			if tc.encoding != "" {
				z, err := gzip.NewReader(bytes.NewReader(e.Body))
				if err != nil {
					t.Fatal(err)
				}
				raw, _ := io.ReadAll(z)
				got = string(raw)
			}
			if got != tc.want {
				t.Errorf("body %q; want %q", got, tc.want)
			}
		})
	}
}

func TestBodiesWithoutADraft(t *testing.T) {
	t.Parallel()
	rules, err := redact.New(redact.Rules{Paths: []string{"body.a"}})
	if err != nil {
		t.Fatal(err)
	}
	masking := deadletter.Reader{Redactor: func(string) *redact.Redactor { return rules }}
	if _, err := masking.Draft(
		message(`{"a":"secret"}`, nil),
	); !errors.Is(err, deadletter.ErrNoDraft) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a masked body: %v", err)
	}
	var r deadletter.Reader
	if _, err := r.Draft(message("\x00\xff", nil)); !errors.Is(err, deadletter.ErrNoDraft) {
		t.Errorf("a binary body: %v", err)
	}
	if _, err := r.FromDraft(
		message(`{"a":1}`, nil), []byte("{\n\"a\": ,}"),
	); err == nil || !strings.Contains(err.Error(), "JSON") {
		t.Errorf("a draft that is not JSON: %v", err)
	}
}
