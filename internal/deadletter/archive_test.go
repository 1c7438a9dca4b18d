package deadletter_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/deadletter"
)

// anyHeader draws a value of each type that AMQP knows, at most so deep.
func anyHeader(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int8().AsAny(), rapid.Int16().AsAny(), rapid.Int32().AsAny(),
		rapid.Int64().AsAny(), rapid.Uint8().AsAny(), rapid.Uint16().AsAny(), rapid.Uint32().AsAny(), rapid.Float32().AsAny(),
		rapid.Float64().AsAny(), rapid.Just[any](math.NaN()), rapid.Just[any](float32(math.Inf(-1))), anyText().AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(),
		rapid.Map(rapid.Int64(), func(s int64) any { return time.Unix(s, 0) }),
		rapid.Map(rapid.Int32(), func(n int32) any { return amqp091.Decimal{Scale: uint8(n), Value: n} }),
	}
	if depth > 0 {
		kinds = append(kinds,
			rapid.Map(anyTable(depth-1), func(t amqp091.Table) any { return t }),
			rapid.Map(rapid.SliceOfN(anyHeader(depth-1), 0, 4), func(l []any) any { return l }))
	}
	return rapid.OneOf(kinds...)
}

// anyText draws a text that may not be UTF-8, or look like base64.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(0, 20, 60), rapid.Just("base64:x"),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 60), func(b []byte) string { return string(b) }))
}

func anyTable(depth int) *rapid.Generator[amqp091.Table] {
	return rapid.Map(rapid.MapOfN(anyText(), anyHeader(depth), 0, 6), func(m map[string]any) amqp091.Table { return m })
}

// anyMessage draws a message with all properties.
func anyMessage() *rapid.Generator[deadletter.Message] {
	return rapid.Custom(func(t *rapid.T) deadletter.Message {
		text := func(name string) string { return anyText().Draw(t, name) }
		d := amqp091.Delivery{
			Headers: anyTable(3).Draw(t, "headers"), ContentType: text("content-type"), ContentEncoding: text("encoding"),
			DeliveryMode: rapid.Byte().Draw(t, "mode"), Priority: rapid.Byte().Draw(t, "priority"),
			CorrelationId: text("correlation"),
			ReplyTo:       text("reply-to"), Expiration: text("expiration"), MessageId: text("id"), Type: text("type"),
			UserId: text("user"), AppId: text("app"), Exchange: text("exchange"), RoutingKey: text("key"),
			Redelivered: rapid.Bool().Draw(t, "redelivered"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		if rapid.Bool().Draw(t, "timed") {
			d.Timestamp = time.Unix(rapid.Int64Range(0, 1<<50).Draw(t, "timestamp"), 0)
		}
		return deadletter.Message{
			Delivery: d, Queue: text("queue"), Handle: deadletter.HandleOf(d), Copy: rapid.IntRange(1, 9).Draw(t, "copy"),
		}
	})
}

// same compares what a broker would be sent.
func same(t interface{ Errorf(string, ...any) }, want, got deadletter.Message) {
	options := cmp.Options{
		cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(amqp091.Delivery{}, "Acknowledger"),
	}
	if d := cmp.Diff(want, got, options); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
}

func TestAnExportHasAllOfAMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(anyMessage(), 1, 3).Draw(t, "messages")
		var file bytes.Buffer
		folder, first := fstest.MapFS{}, rapid.SampledFrom([]int{1, 999_998}).Draw(t, "number")
		for i, m := range want {
			if err := deadletter.WriteArchived(&file, m); err != nil {
				t.Fatal(err)
			}
			name, describe, bodyName, err := deadletter.ArchiveFiles(m, first+i)
			if err != nil {
				t.Fatal(err)
			}
			folder[name], folder[bodyName] = &fstest.MapFile{Data: describe}, &fstest.MapFile{Data: m.Delivery.Body}
		}
		if lines := strings.Count(file.String(), "\n"); lines != len(want) {
			t.Errorf("%d lines for %d messages", lines, len(want))
		}
		for where, read := range map[string]func(func(deadletter.Archived) error) error{
			"file":   func(v func(deadletter.Archived) error) error { return deadletter.ReadArchived(&file, v) },
			"folder": func(v func(deadletter.Archived) error) error { return deadletter.ReadArchivedFolder(folder, v) },
		} {
			n := 0
			err := read(func(a deadletter.Archived) error {
				if a.Changed {
					t.Errorf("%s: message %d counts as changed", where, n)
				}
				same(t, want[n], a.Message)
				n++
				return nil
			})
			if err != nil || n != len(want) {
				t.Errorf("%s: read %d of %d: %v", where, n, len(want), err)
			}
		}
	})
}

// What an export looks like is a contract.
func TestTheFormOfAnExport(t *testing.T) {
	t.Parallel()
	m := message(`{"a":1}`, amqp091.Table{"n": int32(2), "list": []any{"x", nil}, "at": time.Unix(9, 0)})
	m.Delivery.DeliveryMode, m.Delivery.RoutingKey = 2, "\xff"
	var out bytes.Buffer
	if err := deadletter.WriteArchived(&out, m); err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"handle":"` + string(m.Handle) + `","sha256":"` + sha256Of(m) + `","copy":1,"queue":"billing.dead","routingKey":"base64:/w==",` +
		`"properties":{"messageId":"m-1","type":"order.placed","contentType":"application/json","deliveryMode":2},` +
		`"headers":{"at":{"timestamp":9},"list":{"array":[{"string":"x"},null]},"n":{"int32":2}},` +
		`"bodyIsUtf8":true,"bodyBase64":"eyJhIjoxfQ=="}` + "\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("export (-want +got):\n%s", d)
	}
}

func sha256Of(m deadletter.Message) string { return fmt.Sprintf("%x", deadletter.DigestOf(m.Delivery)) }

func TestARedactedExportIsNotImported(t *testing.T) {
	t.Parallel()
	var r deadletter.Reader
	v := r.View(message(`{"a":1}`, nil))
	var out bytes.Buffer
	if err := deadletter.WriteRedacted(&out, v); err != nil {
		t.Fatal(err)
	}
	name, content, err := deadletter.RedactedFile(v, 1)
	if err != nil {
		t.Fatal(err)
	}
	var plain struct {
		Redacted bool
		Message  map[string]any
	}
	if err := json.Unmarshal(content, &plain); err != nil || !plain.Redacted || plain.Message["id"] != "m-1" {
		t.Errorf("%s: %v", content, err)
	}
	never := func(deadletter.Archived) error { t.Error("a redacted message was imported"); return nil }
	if err := deadletter.ReadArchived(&out, never); !errors.Is(err, deadletter.ErrRedacted) {
		t.Errorf("file: %v", err)
	}
	err = deadletter.ReadArchivedFolder(fstest.MapFS{name: {Data: content}}, never)
	if !errors.Is(err, deadletter.ErrRedacted) {
		t.Errorf("folder: %v", err)
	}
}

func TestAChangedFileIsNoticed(t *testing.T) {
	t.Parallel()
	m := message(`{"a":1}`, nil)
	name, describe, bodyName, err := deadletter.ArchiveFiles(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	folder := fstest.MapFS{name: {Data: describe}, bodyName: {Data: []byte(`{"a":2}`)}}
	err = deadletter.ReadArchivedFolder(folder, func(a deadletter.Archived) error {
		if !a.Changed || string(a.Delivery.Body) != `{"a":2}` {
			t.Errorf("read %+v", a)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDamagedExportsAreRefused(t *testing.T) {
	t.Parallel()
	good := `{"version":1,"properties":{}}`
	deep := `{"version":1,"properties":{},"headers":{"n":` +
		strings.Repeat(`{"array":[`, 200) + strings.Repeat("]}", 200) + `}}`
	for file, want := range map[string]string{
		good + "\n" + `{"version":1`: "message 2: the file ends in the middle of a message",
		`{}`:                         "version 0 is not known",
		`{"version":2}`:              "version 2",
		`{"version":1}`:              `"properties" is missing`,
		`x`:                          "message 1",
		`{"version":1,"properties":{"mesage_id":"x"}}`:                           "mesage_id",
		`{"version":1,"properties":{"priority":300}}`:                            "priority",
		`{"version":1,"properties":{},"headers":{"n":2}}`:                        `write it as {"string": "x"}`,
		`{"version":1,"properties":{},"headers":{"n":{"int8":300}}}`:             "int8",
		`{"version":1,"properties":{},"headers":{"n":{"int":3}}}`:                "no such type",
		`{"version":1,"properties":{},"headers":{"n":{"int32":null}}}`:           "missing",
		`{"version":1,"properties":{},"headers":{"n":{"string":"base64:?"}}}`:    "base64",
		`{"version":1,"properties":{},"bodyFile":"x"}`:                           "only in an export to a folder",
		`{"version":1,"properties":{"type":"` + strings.Repeat("x", 256) + `"}}`: "256 bytes",
		deep: "nested",
	} {
		err := deadletter.ReadArchived(strings.NewReader(file), func(deadletter.Archived) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v; want an error with %q", file, err, want)
		}
	}
	for name, folder := range map[string]fstest.MapFS{
		"not an export":       {"x.txt": {}},
		"not in the folder":   {"1.json": {Data: []byte(`{"version":1,"properties":{},"bodyFile":"../secret"}`)}},
		"file does not exist": {"1.json": {Data: []byte(`{"version":1,"properties":{},"bodyFile":"1.body"}`)}},
	} {
		err := deadletter.ReadArchivedFolder(folder, func(deadletter.Archived) error { return nil })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("stop")
	if err := deadletter.ReadArchived(
		strings.NewReader(good), func(deadletter.Archived) error { return stop },
	); !errors.Is(err, stop) {
		t.Errorf("the error of visit: %v", err)
	}
}

func FuzzReadArchived(f *testing.F) {
	f.Add(
		[]byte(
			`{"version":1,"properties":{},"headers":{"n":{"table":{"x":{"decimal":{"scale":1,"value":2}}}}},"bodyBase64":"eA=="}`,
		),
	)
	f.Add([]byte(`{"version":1,"properties":{"timestamp":9},"headers":{"base64:/w==":{"float32":"NaN"}}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		t.Parallel()
		_ = deadletter.ReadArchived(bytes.NewReader(file), func(a deadletter.Archived) error {
			var out bytes.Buffer
			if err := deadletter.WriteArchived(&out, a.Message); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			return deadletter.ReadArchived(&out, func(b deadletter.Archived) error { same(t, a.Message, b.Message); return nil })
		})
	})
}
