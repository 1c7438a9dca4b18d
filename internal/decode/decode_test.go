package decode_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"

	"github.com/dlxctl/dlxctl/internal/decode"
)

func packed(t *testing.T, name string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch name {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "zlib":
		w = zlib.NewWriter(&out)
	case "flate":
		w, err = flate.NewWriter(&out, 9)
	case "zstd":
		w, err = zstd.NewWriter(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const order = `{"id":"A-1","amount":42,"price":1.5,"big":9007199254740993,"tags":["x",null,true]}`

const orderText = `{
  "id": "A-1",
  "amount": 42,
  "price": 1.5,
  "big": 9007199254740993,
  "tags": [
    "x",
    null,
    true
  ]
}`

func orderTree() map[string]any {
	return map[string]any{
		"id": "A-1", "amount": int64(42), "price": 1.5, "big": int64(9007199254740993),
		"tags": []any{"x", nil, true},
	}
}

// Each encoding is undone, declared or not, and the document says so.
func TestDecodeEncodings(t *testing.T) {
	t.Parallel()
	std := base64.StdEncoding.EncodeToString
	for name, tc := range map[string]struct {
		in    decode.Input
		steps []string
	}{
		"plain":           {decode.Input{Body: []byte(order)}, nil},
		"byte order mark": {decode.Input{Body: []byte("\xef\xbb\xbf" + order)}, nil},
		"gzip":            {decode.Input{ContentEncoding: "gzip", Body: packed(t, "gzip", []byte(order))}, []string{"gzip"}},
		"deflate": {
			decode.Input{ContentEncoding: "deflate", Body: packed(t, "zlib", []byte(order))},
			[]string{"deflate"},
		},
		"raw deflate": {
			decode.Input{ContentEncoding: "Deflate", Body: packed(t, "flate", []byte(order))},
			[]string{"deflate"},
		},
		"zstd": {decode.Input{ContentEncoding: "zstd", Body: packed(t, "zstd", []byte(order))}, []string{"zstd"}},
		"chain": {
			decode.Input{ContentEncoding: "gzip, zstd", Body: packed(t, "zstd", packed(t, "gzip", []byte(order)))},
			[]string{"zstd", "gzip"},
		},
		"undeclared gzip": {decode.Input{Body: packed(t, "gzip", []byte(order))}, []string{"gzip"}},
		"undeclared zstd": {decode.Input{Body: packed(t, "zstd", []byte(order))}, []string{"zstd"}},
		"base64":          {decode.Input{Body: []byte(std([]byte(order)))}, []string{"base64"}},
		"base64 of gzip":  {decode.Input{Body: []byte(std(packed(t, "gzip", []byte(order))))}, []string{"base64", "gzip"}},
		"base64 with url": {
			decode.Input{Body: []byte(base64.RawURLEncoding.EncodeToString([]byte(order)))},
			[]string{"base64"},
		},
		"declared base64":  {decode.Input{ContentEncoding: "base64", Body: []byte(std([]byte(order)))}, []string{"base64"}},
		"character set":    {decode.Input{ContentEncoding: "utf-8", Body: []byte(order)}, nil},
		"json by its type": {decode.Input{ContentType: "application/vnd.shop+json; charset=utf-8", Body: []byte(order)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d decode.Decoder
			want := decode.Document{Format: decode.JSON, Steps: tc.steps, Value: orderTree(), Tree: true, Text: orderText}
			if diff := cmp.Diff(want, d.Decode(tc.in), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

// What is not JSON is shown in its own format.
func TestDecodeFormats(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   decode.Input
		want decode.Document
	}{
		"empty": {decode.Input{ContentType: "application/json"}, decode.Document{Format: decode.Text}},
		"text": {
			decode.Input{Body: []byte("order A-1 failed\r\nagain")},
			decode.Document{Format: decode.Text, Text: "order A-1 failed\nagain"},
		},
		"number": {decode.Input{Body: []byte("42")}, decode.Document{Format: decode.Text, Text: "42"}},
		"declared number": {
			decode.Input{ContentType: "application/json", Body: []byte("42")},
			decode.Document{Format: decode.JSON, Value: int64(42), Tree: true, Text: "42"},
		},
		"number too large": {
			decode.Input{Body: []byte(`[18446744073709551615,-9223372036854775809,1e20,1.0,1e400]`)},
			decode.Document{
				Format: decode.JSON, Tree: true,
				Value: []any{"18446744073709551615", "-9223372036854775809", 1e20, int64(1), "1e400"},
				Text:  "[\n  18446744073709551615,\n  -9223372036854775809,\n  1e20,\n  1.0,\n  1e400\n]",
			},
		},
		"a word that is base64 too": {
			decode.Input{Body: []byte("deadbeefdeadbeef")},
			decode.Document{Format: decode.Text, Text: "deadbeefdeadbeef"},
		},
		"terminal escapes": {
			decode.Input{ContentType: "text/plain", Body: []byte("a\x1b[31mred\u202e\x00\xff")},
			decode.Document{Format: decode.Text, Text: `a\x1b[31mred\u202e\x00\xff`},
		},
		"escapes in json": {
			decode.Input{Body: []byte("{\"a\":\"\u009b\u202e\"}")},
			decode.Document{
				Format: decode.JSON,
				Value:  map[string]any{"a": "\u009b\u202e"},
				Tree:   true,
				Text:   "{\n  \"a\": \"\\u009b\\u202e\"\n}",
			},
		},
		"broken json": {
			decode.Input{ContentType: "application/json", Body: []byte(`{"a":`)},
			decode.Document{Format: decode.Text, Text: `{"a":`, Note: "the body was not read as JSON: it ends too early"},
		},
		"not gzip": {
			decode.Input{ContentEncoding: "gzip", Body: []byte(`{"a":1}`)},
			decode.Document{
				Format: decode.JSON,
				Value:  map[string]any{"a": int64(1)},
				Tree:   true,
				Text:   "{\n  \"a\": 1\n}",
				Note:   `content-encoding "gzip" was not undone: the body is not gzip`,
			},
		},
		"brotli": {
			decode.Input{ContentEncoding: "br", Body: []byte("\x0b\x02\x80\xff")},
			decode.Document{
				Format: decode.Binary,
				Text:   "00000000  0b 02 80 ff                                       |....|",
				Note:   `content-encoding "br" was not undone: dlxctl does not know the encoding`,
			},
		},
		"java": {
			decode.Input{Body: []byte("\xac\xed\x00\x05\x73\x72")},
			decode.Document{
				Format: decode.Binary,
				Text:   "00000000  ac ed 00 05 73 72                                 |....sr|",
				Note:   "Java serialization is not decoded",
			},
		},
		"xml": {
			decode.Input{
				ContentType: "text/xml",
				Body:        []byte(`<?xml version="1.0"?><Order id="7"><Item>a</Item><Item>b &amp; c</Item><Note/></Order>`),
			},
			decode.Document{
				Format: decode.XML, Type: "Order", Inside: "Order", Tree: true,
				Value: map[string]any{"@id": "7", "Item": []any{"a", "b & c"}, "Note": ""},
				Text:  "<?xml version=\"1.0\"?>\n<Order id=\"7\">\n  <Item>a</Item>\n  <Item>b &amp; c</Item>\n  <Note/>\n</Order>",
			},
		},
		"html is not xml": {decode.Input{Body: []byte("<p>broken")}, decode.Document{Format: decode.Text, Text: "<p>broken"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d *decode.Decoder // nil knows no schemas either
			if diff := cmp.Diff(tc.want, d.Decode(tc.in), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

// Envelopes are opened: the value is what they hold.
func TestDecodeEnvelopes(t *testing.T) {
	t.Parallel()
	content := map[string]any{"id": int64(7)}
	const text = "{\n  \"id\": 7\n}"
	for name, tc := range map[string]struct {
		in   decode.Input
		want decode.Document
	}{
		"MassTransit": {
			decode.Input{
				ContentType: "application/vnd.masstransit+json",
				Body: []byte(`{"messageId":"m","messageType":["urn:message:Shop:OrderPlaced","urn:message:Shop:Event"],` +
					`"message":{"id":7}}`),
			},
			decode.Document{
				Format: decode.JSON, Steps: []string{
					"MassTransit",
				}, Type: "Shop:OrderPlaced", Value: content, Tree: true, Text: text,
				Inside: "message", Envelope: map[string]any{
					"messageId":   "m",
					"messageType": []any{"urn:message:Shop:OrderPlaced", "urn:message:Shop:Event"},
				},
			},
		},
		"CloudEvents, structured": {
			decode.Input{Body: []byte(`{"specversion":"1.0","type":"order.placed","source":"/shop","id":"1","data":{"id":7}}`)},
			decode.Document{
				Format: decode.JSON, Steps: []string{"CloudEvents"}, Type: "order.placed", Value: content, Tree: true, Text: text,
				Inside: "data", Envelope: map[string]any{
					"specversion": "1.0",
					"type":        "order.placed",
					"source":      "/shop",
					"id":          "1",
				},
			},
		},
		"CloudEvents, base64": {
			decode.Input{
				Body: []byte(`{"specversion":"1.0","type":"order.placed","source":"/shop","id":"1",` +
					`"datacontenttype":"text/xml","data_base64":"PGE+PGI+MTwvYj48L2E+"}`),
			},
			decode.Document{
				Format: decode.XML, Steps: []string{
					"CloudEvents",
					"base64",
				}, Type: "order.placed", Value: map[string]any{"b": "1"}, Tree: true,
				Text: "<a>\n  <b>1</b>\n</a>", Inside: "data_base64",
				Envelope: map[string]any{
					"specversion":     "1.0",
					"type":            "order.placed",
					"source":          "/shop",
					"id":              "1",
					"datacontenttype": "text/xml",
				},
			},
		},
		"CloudEvents, binary": {
			decode.Input{
				ContentType: "application/json", Body: []byte(`{"id":7}`),
				Headers: map[string]any{"cloudEvents:specversion": "1.0", "cloudEvents:type": "order.placed"},
			},
			decode.Document{
				Format: decode.JSON,
				Steps:  []string{"CloudEvents"},
				Type:   "order.placed",
				Value:  content,
				Tree:   true,
				Text:   text,
			},
		},
		"NServiceBus": {
			decode.Input{Body: []byte(`{"id":7}`), Headers: map[string]any{
				"NServiceBus.ContentType":          "application/json",
				"NServiceBus.EnclosedMessageTypes": "Shop.OrderPlaced, Shop, Version=1.0.0.0;Shop.IEvent, Shop",
			}},
			decode.Document{
				Format: decode.JSON,
				Steps:  []string{"NServiceBus"},
				Type:   "Shop.OrderPlaced",
				Value:  content,
				Tree:   true,
				Text:   text,
			},
		},
		"Spring": {
			decode.Input{Body: []byte(`{"id":7}`), Type: "ignored", Headers: map[string]any{"__TypeId__": "shop.Order"}},
			decode.Document{Format: decode.JSON, Type: "shop.Order", Value: content, Tree: true, Text: text},
		},
		"property": {
			decode.Input{Body: []byte(`{"id":7}`), Type: "order\x1b"},
			decode.Document{Format: decode.JSON, Type: `order\x1b`, Value: content, Tree: true, Text: text},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d decode.Decoder
			if diff := cmp.Diff(tc.want, d.Decode(tc.in), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

// A hostile body gets a note, and never costs much.
func TestDecodeBombs(t *testing.T) {
	t.Parallel()
	zeros := bytes.Repeat([]byte{'0'}, 64<<20)
	for name, tc := range map[string]struct {
		in   decode.Input
		note string
	}{
		"gzip":    {decode.Input{ContentEncoding: "gzip", Body: packed(t, "gzip", zeros)}, "decompression stopped"},
		"deflate": {decode.Input{ContentEncoding: "deflate", Body: packed(t, "zlib", zeros)}, "decompression stopped"},
		"zstd":    {decode.Input{ContentEncoding: "zstd", Body: packed(t, "zstd", zeros)}, "decompression stopped"},
		"gzip in gzip": {
			decode.Input{ContentEncoding: "gzip, gzip", Body: packed(t, "gzip", packed(t, "gzip", zeros))},
			"decompression stopped",
		},
		"undeclared": {decode.Input{Body: packed(t, "gzip", zeros)}, "decompression stopped"},
		"many encodings": {
			decode.Input{ContentEncoding: strings.Repeat("gzip,", 9), Body: []byte("x")},
			"more than 8 encodings",
		},
		"deep json": {
			decode.Input{Body: []byte(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))},
			"more than 64 levels",
		},
		"many values": {decode.Input{Body: []byte("[" + strings.Repeat("[],", 1<<20) + "[]]")}, "more than 500000 values"},
		"deep xml": {
			decode.Input{Body: []byte(strings.Repeat("<a>", 1000) + strings.Repeat("</a>", 1000))},
			"more than 64 levels",
		},
		"many elements": {
			decode.Input{Body: []byte("<a>" + strings.Repeat("<b/>", 1<<20) + "</a>")},
			"more than 500000 values",
		},
		"billion laughs": {
			decode.Input{
				ContentType: "text/xml",
				Body:        []byte(`<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>`),
			},
			"not read as XML",
		},
		"too large": {decode.Input{Body: make([]byte, 17<<20)}, "more than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d decode.Decoder
			doc := d.Decode(tc.in)
			if !strings.Contains(doc.Note, tc.note) || doc.Tree || len(doc.Text) > decode.MaxBytes {
				t.Errorf("note %q, tree %v, %d bytes of text; the note should say %q", doc.Note, doc.Tree, len(doc.Text), tc.note)
			}
		})
	}
}
