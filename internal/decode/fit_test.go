package decode_test

import (
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// Base64 of protobuf that no content-encoding declares is undone where a rule or the properties
// name the type, where the content type is protobuf, and where it is clearly protobuf. Other base64
// stays the text that it is.
func TestBase64OfProtobuf(t *testing.T) {
	t.Parallel()
	body := encoded(t, `{"id":"A-1","amount":"1","customer":{"email":"a@example.com"}}`)
	newer := append([]byte("\xf8\x01\x01"), body...)
	numbers := encoded(t, `{"amount":"150"}`) // 08 96 01 of the manual of protobuf, but for the field
	rule := []decode.TypeRule{{Type: "shop.Order"}}
	for name, tc := range map[string]struct {
		rules  []decode.TypeRule
		in     decode.Input
		body   []byte
		format decode.Format
	}{
		"by a rule":                 {rule, decode.Input{}, body, decode.Protobuf},
		"by a rule, numbers alone":  {rule, decode.Input{}, numbers, decode.Protobuf},
		"by a rule, a newer type":   {rule, decode.Input{}, newer, decode.Protobuf},
		"by a rule, text/plain":     {rule, decode.Input{ContentType: "text/plain"}, body, decode.Protobuf},
		"by the property type":      {nil, decode.Input{Type: "shop.Order"}, numbers, decode.Protobuf},
		"the property does not fit": {nil, decode.Input{Type: "shop.Customer"}, numbers, decode.Text},
		"by the content type": {
			nil, decode.Input{ContentType: "application/x-protobuf"}, numbers, decode.RawProtobuf,
		},
		"by the parameter": {
			nil, decode.Input{ContentType: "application/x-protobuf; messageType=shop.Order"}, numbers, decode.Protobuf,
		},
		"clearly protobuf":      {nil, decode.Input{}, body, decode.RawProtobuf},
		"perhaps protobuf":      {nil, decode.Input{}, numbers, decode.Text},
		"no protobuf by a rule": {rule, decode.Input{}, []byte("\x00\x01\x02\x03\xff"), decode.Text},
	} {
		for alphabet, e := range map[string]*base64.Encoding{
			"standard": base64.StdEncoding, "raw": base64.RawStdEncoding, "URL": base64.URLEncoding,
		} {
			t.Run(name+", "+alphabet, func(t *testing.T) {
				t.Parallel()
				d := decoder(t, tc.rules...)
				in := tc.in
				in.Body = []byte(e.EncodeToString(tc.body))
				doc := d.Decode(in)
				if doc.Format != tc.format || (len(doc.Steps) > 0) != (tc.format != decode.Text) {
					t.Fatalf("%s after %v, note %q", doc.Format, doc.Steps, doc.Note)
				}
				if doc.Format != decode.Protobuf || doc.Note != "" {
					return
				}
				again, err := d.Encode(in, doc.Text)
				if err != nil || string(again) != string(in.Body) {
					t.Errorf("written back as %q, %v", again, err)
				}
			})
		}
	}
}

// A message of protobuf whose bytes are those of base64 too is read as it is.
func TestProtobufThatLooksLikeBase64(t *testing.T) {
	t.Parallel()
	body := []byte("1AAAAAAAA1AAAAAAAA") // twice the field 6, a double
	if _, err := base64.RawStdEncoding.DecodeString(string(body)); err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string]decode.Document{
		"rule":         decoder(t, decode.TypeRule{Type: "shop.Order"}).Decode(decode.Input{Body: body}),
		"content type": decoder(t).Decode(decode.Input{ContentType: "application/x-protobuf", Body: body}),
	} {
		if !doc.Tree || len(doc.Steps) > 0 {
			t.Errorf("%s: %s after %v: %s", name, doc.Format, doc.Steps, doc.Text)
		}
	}
}

// Random tokens in base64 stay text.
func TestRandomTokensAreNotProtobuf(t *testing.T) {
	t.Parallel()
	d := decoder(t)
	const rounds = 20_000
	for _, size := range []int{6, 12, 24} {
		taken := 0
		for range rounds {
			token := make([]byte, size)
			if _, err := rand.Read(token); err != nil {
				t.Fatal(err)
			}
			if doc := d.Decode(decode.Input{Body: []byte(base64.StdEncoding.EncodeToString(token))}); doc.Tree {
				taken++
			}
		}
		if taken > rounds/5000 {
			t.Errorf("%d of %d random tokens of %d bytes were taken for protobuf", taken, rounds, size)
		}
	}
}

// All types of the schemas are ranked by the fields that they leave unknown.
func TestFits(t *testing.T) {
	t.Parallel()
	order := encoded(t, `{"id":"A-1","customer":{"email":"a@example.com"},"amount":"1"}`)
	for name, tc := range map[string]struct {
		body []byte
		want []decode.Fit
	}{
		"as it is": {order, []decode.Fit{{Type: "shop.Order", Fields: 4}, {Type: "shop.Customer", Fields: 3, Unknown: 1}}},
		"in base64": {
			[]byte(base64.StdEncoding.EncodeToString(order)),
			[]decode.Fit{
				{Type: "shop.Order", Fields: 4, Steps: []string{"base64"}},
				{Type: "shop.Customer", Fields: 3, Unknown: 1, Steps: []string{"base64"}},
			},
		},
		"numbers in base64": {
			[]byte(base64.StdEncoding.EncodeToString(encoded(t, `{"amount":"150"}`))),
			[]decode.Fit{{Type: "shop.Order", Fields: 1, Steps: []string{"base64"}}},
		},
		"JSON":  {[]byte(`{"id":1}`), nil},
		"empty": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, decoder(t).Fits(decode.Input{Body: tc.body})); diff != "" {
				t.Errorf("fits (-want +got):\n%s", diff)
			}
		})
	}
	if fits := new(decode.Decoder).Fits(decode.Input{Body: order}); len(fits) > 0 {
		t.Errorf("without schemas: %v", fits)
	}
}
