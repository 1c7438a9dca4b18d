package decode_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// An edit changes what was edited, and nothing else: spaces, order, digits and encodings stay.
func TestEncode(t *testing.T) {
	t.Parallel()
	std := base64.StdEncoding.EncodeToString
	for name, tc := range map[string]struct {
		in       decode.Input
		old, new string
		want     string // the body without its content-encoding
	}{
		"compact": {
			decode.Input{Body: []byte(`{"b":1.0,"a":"\u00e9<","b":[ ]}`)},
			"1.0",
			"2.50",
			`{"b":2.50,"a":"\u00e9<","b":[]}`,
		},
		"as python": {decode.Input{Body: []byte(`{"a": 1, "b": "x, y: z\", "}`)}, "1", "2", `{"a": 2, "b": "x, y: z\", "}`},
		"indented":  {decode.Input{Body: []byte("{\n    \"a\": 1\n}\n")}, "1", "2", "{\n    \"a\": 2\n}\n"},
		"tabs":      {decode.Input{Body: []byte("{\n\t\"a\": 1\n}")}, "1", "2", "{\n\t\"a\": 2\n}"},
		"mark":      {decode.Input{Body: []byte("\xef\xbb\xbf{\"a\":1}")}, "1", "2", "\xef\xbb\xbf{\"a\":2}"},
		"gzip": {
			decode.Input{ContentEncoding: "gzip", Body: packed(t, "gzip", []byte(order))},
			"A-1",
			"B-1",
			strings.Replace(order, "A-1", "B-1", 1),
		},
		"chain": {
			decode.Input{ContentEncoding: "deflate, zstd", Body: packed(t, "zstd", packed(t, "flate", []byte(order)))},
			"A-1", "B-1", strings.Replace(order, "A-1", "B-1", 1),
		},
		"base64": {
			decode.Input{Body: []byte(std([]byte(order)))},
			"A-1",
			"B-1",
			std([]byte(strings.Replace(order, "A-1", "B-1", 1))),
		},
		"envelope": {
			decode.Input{Body: []byte(`{ "messageType":["urn:message:A:B"],  "message": {"id": 7, "x": 1}, "host":{} }`)},
			"7", "8", `{ "messageType":["urn:message:A:B"],  "message": {"id": 8, "x": 1}, "host":{} }`,
		},
		"protobuf": {
			decode.Input{Type: "shop.Order", Body: encoded(t, fullOrder)},
			"a@example.com", "b@example.com",
			string(encoded(t, strings.Replace(fullOrder, "a@example.com", "b@example.com", 1))),
		},
		"protobuf with a number of JSON": {
			decode.Input{Type: "shop.Order", Body: encoded(t, `{"id":"A-1","more":{"wei":100000000000000000000}}`)},
			"A-1", "B-1", string(encoded(t, `{"id":"B-1","more":{"wei":100000000000000000000}}`)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decoder(t)
			text := d.Decode(tc.in).Text
			body, err := d.Encode(tc.in, strings.Replace(text, tc.old, tc.new, 1))
			if err != nil {
				t.Fatal(err)
			}
			if tc.in.ContentEncoding == "" && string(body) != tc.want {
				t.Errorf("body\n%q, want\n%q", body, tc.want)
			}
			after := tc.in
			after.Body = body
			want := tc.in
			want.ContentEncoding, want.Body = "", []byte(tc.want)
			if d.Decode(after).Text != d.Decode(want).Text {
				t.Errorf("it is read as\n%s, want\n%s", d.Decode(after).Text, d.Decode(want).Text)
			}
			same, err := d.Encode(tc.in, text)
			if tc.in.ContentEncoding == "" && tc.old != "1.0" && (err != nil || string(same) != string(tc.in.Body)) {
				t.Errorf("without an edit the body is %q (%v), want %q", same, err, tc.in.Body)
			}
		})
	}
}

// What cannot be written back is refused, and the error says why.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	order := encoded(t, `{"id":"A-1"}`)
	for name, tc := range map[string]struct {
		in     decode.Input
		edited string
		unsafe bool
		want   string
	}{
		"text":          {decode.Input{Body: []byte("x")}, "y", true, "its format is text"},
		"raw protobuf":  {decode.Input{Body: append(order, 16, 1)}, "", true, "its format is protobuf without schema"},
		"invalid utf-8": {decode.Input{Body: []byte("{\"a\":\"\xff\"}")}, "{}", true, "not UTF-8"},
		"hidden marks":  {decode.Input{Body: []byte("{\"a\":\"\u202e\"}")}, "{}", true, "not shown as they are"},
		"not decoded":   {decode.Input{ContentEncoding: "br", Body: []byte("{}")}, "{}", true, "not all of it was decoded"},
		"base64 lines":  {decode.Input{Body: []byte("eyJhIjox\nfQ==")}, "{}", true, "line breaks"},
		"unknown fields": {
			decode.Input{Type: "shop.Order", Body: append([]byte("\xf8\x01\x01"), order...)},
			"{}",
			true,
			"not all of it was decoded",
		},
		"other encoder": {
			decode.Input{Type: "shop.Order", Body: append([]byte("\x10\x00"), order...)},
			"{}",
			true,
			"its publisher encodes differently",
		},
		"CloudEvents base64": {
			decode.Input{
				Body: []byte(`{"specversion":"1.0","type":"t","source":"s","id":"1","data_base64":"e30="}`),
			},
			"{}", true,
			"the text is only the data_base64",
		},
		"message twice": {
			decode.Input{
				Body: []byte(`{"messageType":[],"message":{"a":1},"message":{"a":2}}`),
			}, "{}", true, "the text is only the message",
		},
		"bad json":   {decode.Input{Body: []byte("{}")}, "{\n \"a\": x}", false, "(line 2, column 7)"},
		"two values": {decode.Input{Body: []byte("{}")}, "{} {}", false, "text follows the first value"},
		"bad message": {
			decode.Input{Type: "shop.Order", Body: order},
			`{"idd":1}`,
			false,
			"the text is not a message of type shop.Order",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decoder(t).Encode(tc.in, tc.edited)
			if err == nil || errors.Is(err, decode.ErrUnsafe) != tc.unsafe || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q (unsafe %v)", err, tc.want, tc.unsafe)
			}
		})
	}
}
