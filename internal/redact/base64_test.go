package redact_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
)

const orderProto = `syntax = "proto3"; package shop;
message Order { string id = 1; Customer customer = 2; bytes copy = 3; }
message Customer { string email = 1; string country = 2; }`

// A body of base64 is not masked whole because one value in it is: with a schema and without one,
// the rest is shown. Where a rule cannot find what it names, the body is hidden whole as before.
func TestBase64OfProtobufIsMaskedByValue(t *testing.T) {
	t.Parallel()
	const secret = "ann@example.com"
	text := func(b []byte, n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
	}
	customer := text(text(nil, 1, secret), 2, "Austria")
	body := text(text(text(nil, 1, "A-1 for all"), 2, string(customer)), 3, "\x00\xff "+secret+" \xff")
	in := decode.Input{Body: []byte(base64.StdEncoding.EncodeToString(body))}
	schemas, err := decode.NewSchemas(decode.SchemaFiles{
		Protos: []string{"o.proto"}, Read: func(name string) ([]byte, error) {
			if name != "o.proto" {
				return nil, fs.ErrNotExist
			}
			return []byte(orderProto), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	byRule, err := decode.New(schemas, []decode.TypeRule{{Type: "shop.Order"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		d      *decode.Decoder
		rules  redact.Rules
		hidden bool
	}{
		"a rule for the type, a kind":   {byRule, redact.Rules{Types: []string{"email"}}, false},
		"a rule for the type, a path":   {byRule, redact.Rules{Paths: []string{"body.customer.email"}}, false},
		"without schema, a kind":        {nil, redact.Rules{Types: []string{"email"}}, false},
		"without schema, a named path":  {nil, redact.Rules{Paths: []string{"body.customer.email"}}, true},
		"without schema, a number path": {nil, redact.Rules{Paths: []string{"body.2.1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := map[string]any{"copy": string(in.Body), "error": "no " + secret}
			pass := redactor(t, tc.rules).Begin(headers)
			doc := pass.Document(tc.d.Decode(in))
			shown := fmt.Sprintf("%+v", doc)
			if !tc.hidden {
				shown += fmt.Sprint(pass.Headers(headers))
			}
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), string(in.Body)} {
				if strings.Contains(shown, form) {
					t.Errorf("%q is shown in\n%s", form, shown)
				}
			}
			if tc.hidden != (doc.Text == redact.Mask) || !tc.hidden && !strings.Contains(doc.Text, "Austria") {
				t.Errorf("the body is %s, note %q", doc.Text, doc.Note)
			}
		})
	}
}

// What is left of an envelope is masked too if the message in it has no tree.
func TestTheEnvelopeOfATextIsMasked(t *testing.T) {
	t.Parallel()
	var d decode.Decoder
	doc := d.Decode(decode.Input{Body: []byte(`{"specversion":"1.0","type":"t","source":"s","id":"1",` +
		`"subject":"ann@example.com","datacontenttype":"text/plain","data_base64":"aGVsbG8gd29ybGQ="}`)})
	doc = redactor(t, redact.Rules{Types: []string{"email"}}).Begin(nil).Document(doc)
	if doc.Text != "hello world" || strings.Contains(fmt.Sprintf("%+v", doc), "ann@") {
		t.Errorf("%+v", doc)
	}
}
