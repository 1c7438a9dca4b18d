package deadletter_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
)

func shown(t *testing.T, v deadletter.View, width int) string {
	t.Helper()
	var out bytes.Buffer
	if err := deadletter.WriteShow(&out, v, width); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAMessageIsShown(t *testing.T) {
	t.Parallel()
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	m := message("", processed(2, "tenant", "2", "n", int32(2), "desk-run", "r1", "desk-replays", int64(1),
		"retry-after", "5 minutes", "x-delivery-count", int64(4)))
	m.Handle, m.Delivery.DeliveryMode = "0a1b2c3d4e5f", amqp091.Persistent
	v := r.View(m)
	v.Body = decode.Document{Format: decode.JSON, Text: "{\n\t\"a\": 1\n}", Steps: []string{"gzip"}}
	v.Bytes = 7
	want := `0a1b2c3d4e5f in billing.dead

failure
  cause         rejected
  work queue    billing
  attempts      2
  first failed  2026-11-22T09:00:01Z
  last failed   2026-11-22T09:00:09Z
  published to  exchange events, key order.placed
  replays       1, the last by run r1
  ignored       retry-after: "5 minutes" is not a time

timeline
  2026-11-22T09:00:01Z  billing                  failed, came through exchange events, key order.placed
  *                     shop.standard.retry.10s  expired
  2026-11-22T09:00:09Z  billing                  rejected
  * not in the headers: according to the topology as it is today

properties
  message-id    m-1
  type          order.placed
  content-type  application/json

headers of publisher
  n       2
  tenant  "2"

headers of dlxctl
  CC                     ["@billing"]
  count                  -1
  desk-replays           1
  desk-run               "r1"
  retry-after            "5 minutes"
  retry-attempts         2
  retry-exchange         "events"
  retry-first-failed-at  "2026-11-22T09:00:01.000Z"
  retry-last-failed-at   "2026-11-22T09:00:09.500Z"
  retry-queue            "billing"
  retry-reason           "rejected"
  retry-routing-key      "order.placed"

headers of RabbitMQ
  x-delivery-count  4

body, 7 bytes, json, from gzip
  {
      "a": 1
  }
`
	if d := cmp.Diff(want, shown(t, v, 0)); d != "" {
		t.Errorf("show (-want +got):\n%s", d)
	}
}

// The timeline has a line for each attempt, with its error and its wait, masked as the error is.
func TestTheHistoryIsShown(t *testing.T) {
	t.Parallel()
	h := processed(2, "retry-error-type", "CardError", "retry-history", []any{
		amqp091.Table{
			"at": "2026-11-22T09:00:01.000Z", "attempt": int64(1), "reason": "rejected", "error-type": "Timeout", "tier": "8s",
		},
		amqp091.Table{
			"at": "2026-11-22T09:00:09.500Z", "attempt": int64(2), "reason": "permanent", "error-type": "CardError",
		},
	})
	for _, masked := range []bool{false, true} {
		r := deadletter.Reader{Known: deadletter.Knows(shop())}
		first, last := "Timeout", "CardError"
		if masked {
			rules, err := redact.New(redact.Rules{Paths: []string{"headers.retry-error-type"}})
			if err != nil {
				t.Fatal(err)
			}
			r.Redactor = func(string) *redact.Redactor { return rules }
			first, last = "[masked]", "[masked]"
		}
		got := shown(t, r.View(message("", h)), 0)
		for _, line := range []string{
			"2026-11-22T09:00:01Z  billing  attempt 1: rejected by " + first + ", then waited 8s, came through exchange events",
			"2026-11-22T09:00:09Z  billing  attempt 2: permanent by " + last,
		} {
			if !strings.Contains(got, line) || masked && strings.Contains(got, "Timeout") {
				t.Errorf("masked %t: no %q in\n%s", masked, line, got)
			}
		}
	}
}

// A tier is not shown as a wait that the times contradict: the processor had an older file.
func TestAWaitThatWasNoneIsNotShown(t *testing.T) {
	t.Parallel()
	failed := func(n int, at, tier string) any {
		return amqp091.Table{"at": "2026-11-22T09:00:" + at, "attempt": int64(n), "reason": "rejected", "tier": tier}
	}
	h := processed(3, "retry-history", []any{
		failed(1, "01.000Z", "5s"), failed(2, "06.000Z", "1m"), failed(3, "08.000Z", ""),
	})
	var r deadletter.Reader
	got := shown(t, r.View(message("", h)), 0)
	if !strings.Contains(got, "then waited 5s") || strings.Contains(got, "waited 1m") {
		t.Errorf("it is shown as\n%s", got)
	}
}

func TestALastFailureWithoutATimeIsShown(t *testing.T) {
	t.Parallel()
	var r deadletter.Reader
	got := shown(t, r.View(message("", amqp091.Table{"x-death": []any{died("w", "rejected", 3, 1, "x")}})), 0)
	if !strings.Contains(got, "first failed  2026-11-22T09:00:01Z\n  last failed   unknown: of several deaths") {
		t.Errorf("it is shown as\n%s", got)
	}
}

func TestHeadersAreShownByTheirAuthor(t *testing.T) {
	t.Parallel()
	var r deadletter.Reader
	got := r.View(message("", amqp091.Table{
		"MT-Reason": "fault", "MT-Fault-Message": "x", "mine": 1, "count": int32(1), "x-death": []any{}, "x-shovelled": true,
		"retry-queue": "q", "CC": []any{},
	})).Families()
	want := []deadletter.Family{
		{Name: "publisher", Headers: []string{"CC", "count", "mine"}},
		{Name: "MassTransit", Headers: []string{"MT-Fault-Message", "MT-Reason"}},
		{Name: "dlxctl", Headers: []string{"retry-queue"}},
		{Name: "RabbitMQ", Headers: []string{"x-death", "x-shovelled"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("families (-want +got):\n%s", d)
	}
}

// Long values are wrapped, at spaces where they have some, and not where programs read the text.
func TestLongValuesAreWrapped(t *testing.T) {
	t.Parallel()
	var r deadletter.Reader
	m := message("x", spring("events", "k"))
	long := strings.Repeat("ab ", 300)
	m.Delivery.Headers["long"] = long
	m.Delivery.Headers["x-exception-stacktrace"] = "first\n\tat " + strings.Repeat("y", 200)
	for _, width := range []int{80, 120} {
		v := r.View(m)
		v.Body = decode.Document{}
		for line := range strings.Lines(shown(t, v, width)) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("a line has %d of %d columns: %s", n, width, line)
			}
			if strings.HasSuffix(line, " a\n") {
				t.Errorf("a word is broken at %d columns: %s", width, line)
			}
		}
	}
	if text := shown(t, r.View(m), 0); !strings.Contains(text, strings.TrimSpace(long)) {
		t.Errorf("a text without a width is wrapped:\n%s", text)
	}
}

func TestTheDifferenceOfTwoMessagesIsShown(t *testing.T) {
	t.Parallel()
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	a, b := r.View(message("", processed(1))), r.View(message("", processed(1, "more", int64(1))))
	if c := deadletter.Compare(a, a, false); len(c.Differences) > 0 || c.Masked {
		t.Errorf("the same message differs: %+v", c)
	}
	want := []deadletter.Difference{{Part: "headers", Name: "more", B: "1"}}
	if d := cmp.Diff(want, deadletter.Compare(a, b, false).Differences); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b = r.View(message(`{"order":1,"country":"AT"}`, processed(2, "tenant", "a", "retry-error", "no\nroute")))
	a = r.View(message(`{"order":1,"country":"Austria"}`, processed(1, "tenant", "b", "x-delivery-count", int64(3))))
	got := compared(t, a, b, false)
	for _, part := range []string{
		"\nfailure\n  error\n", "\n- attempts  1\n+ attempts  2\n", "\n- tenant  \"b\"\n+ tenant  \"a\"\n",
		"\n-  \"country\": \"Austria\"\n+  \"country\": \"AT\"\n",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("it does not show %q:\n%s", part, got)
		}
	}
	// As they were published: without what dlxctl and RabbitMQ have added.
	got = compared(t, a, b, true)
	if !strings.Contains(got, "tenant") || !strings.Contains(got, "country") || strings.Contains(got, "retry-") ||
		strings.Contains(got, "failure") || strings.Contains(got, "timeline") || strings.Contains(got, "x-delivery") {
		t.Errorf("as published:\n%s", got)
	}
}

// compared returns what a person sees of a comparison.
func compared(t *testing.T, a, b deadletter.View, published bool) string {
	t.Helper()
	var out strings.Builder
	if err := deadletter.Compare(a, b, published).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A comparison does not tell whether masked values are equal: a publisher could guess one.
func TestMaskedValuesAreNotCompared(t *testing.T) {
	t.Parallel()
	rules, err := redact.New(redact.Rules{Paths: []string{"body.card", "headers.token"}})
	if err != nil {
		t.Fatal(err)
	}
	r := deadletter.Reader{Known: deadletter.Knows(shop()), Redactor: func(string) *redact.Redactor { return rules }}
	of := func(card, token string) deadletter.View {
		return r.View(message(`{"n":1,"card":"`+card+`"}`, processed(1, "token", token, "seen", "card "+card)))
	}
	a := of("4111110271831111", "secret-one")
	const want = "the messages do not differ, except in their places\nmasked values are not compared\n"
	for name, b := range map[string]deadletter.View{
		"equal": of("4111110271831111", "secret-one"), "others": of("5500000000000004", "secret-two"),
		"longer": of("41111102718311110000", "s"),
	} {
		out := compared(t, a, b, false)
		if !strings.HasSuffix(out, want) || strings.Count(out, "\n") != 4 {
			t.Errorf("%s:\n%s", name, out)
		}
		raw, err := json.Marshal(deadletter.Compare(a, b, false).Differences)
		if err != nil || string(raw) != "[]" {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
}

// Nothing in a message reaches a terminal as a control character, an escape or a mark that
// turns the direction of a text.
func TestHostileContentIsShownHarmlessly(t *testing.T) {
	t.Parallel()
	hostile := "\x1b[2J\x07\u202e\u2066\u200f\x9b31m\u009b\r\nnext\xff\u2028\x00"
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	m := message(hostile, processed(2, hostile, hostile, "table", amqp091.Table{hostile: []any{hostile}},
		"retry-error", hostile, "retry-routing-key", hostile, "retry-reason", hostile, "x-death", []any{
			died(hostile, hostile, 2, 3, hostile, hostile, hostile),
		},
		"NServiceBus.FailedQ", hostile, "NServiceBus.ExceptionInfo.StackTrace", hostile, "desk-run", hostile,
		"desk-replays", int32(1)))
	d := &m.Delivery
	d.MessageId, d.Type, d.ContentType, d.ContentEncoding = hostile, hostile, hostile, hostile
	d.ReplyTo, d.AppId, d.CorrelationId, d.UserId, d.Expiration = hostile, hostile, hostile, hostile, hostile
	m.Queue = hostile
	v := r.View(m)
	v.Body = decode.Document{Text: hostile, Note: hostile, Steps: []string{hostile}, Format: decode.Format(hostile)}
	for _, out := range []string{shown(t, v, 80), compared(t, v, deadletter.View{}, false)} {
		if !utf8.ValidString(out) {
			t.Errorf("no valid UTF-8: %q", out)
		}
		for _, c := range out {
			if c != '\n' && !unicode.IsGraphic(c) {
				t.Errorf("%q is shown as it is", c)
			}
		}
	}
}

// What a consumer says is untrusted text: it does not control a terminal, and its size and type do
// no harm.
func TestAHostileErrorIsShownSafely(t *testing.T) {
	t.Parallel()
	r := deadletter.Reader{Known: deadletter.Knows(shop())}
	large := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		problem, kind, stack any
		want                 string // part of what is shown
	}{
		"control characters":  {"a\x1b[2Jb\r\nc", "T\x07", "at\tpay()\x00", `a\x1b[2Jb`},
		"marks of direction":  {"user\u202Egpj.exe", "T\u2066", "at \u200Bpay()", `user\u202egpj.exe`},
		"no UTF-8":            {"a\xffb", []byte("T\xfe"), "at", "a\uFFFDb"},
		"a megabyte":          {large, large, large, "xxx"},
		"numbers and a table": {int64(1), 2.5, amqp091.Table{"a": []any{true, nil}}, "retry-error"},
		"nothing":             {nil, nil, nil, "retry-error"},
	} {
		v := r.View(message("{}", processed(1, "retry-error", tc.problem, "retry-error-type", tc.kind,
			"retry-error-stack", tc.stack)))
		out := shown(t, v, 0)
		if !strings.Contains(out, tc.want) {
			t.Errorf("%s: %.500s", name, out)
		}
		for i, c := range out {
			if c != '\n' && !unicode.IsGraphic(c) || c == utf8.RuneError && !strings.HasPrefix(out[i:], "\uFFFD") {
				t.Fatalf("%s: the output has %U", name, c)
			}
		}
		if got := grouped(t, "error", v)[0]; utf8.RuneCountInString(got.Value) > 200 {
			t.Errorf("%s: a group has a name of %d bytes", name, len(got.Value))
		}
	}
}
