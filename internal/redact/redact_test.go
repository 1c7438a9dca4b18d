package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/decode"
	"github.com/dlxctl/dlxctl/internal/redact"
)

func redactor(t rapid.TB, r redact.Rules) *redact.Redactor {
	t.Helper()
	out, err := redact.New(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Paths mask what they name, in the tree and in the text, and leave the rest as it is.
func TestPaths(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		paths      []string
		body, want string
	}{
		"key": {[]string{"body.email"}, `{"id":7,"email":"abcdef"}`, `{"id":7,"email":"[masked]"}`},
		"nested": {
			[]string{"body.customer.email"},
			`{"customer":{"email":"x","name":"y"}}`,
			`{"customer":{"email":"[masked]","name":"y"}}`,
		},
		"whole object": {
			[]string{"body.customer"},
			`{"customer":{"email":"x"},"id":1}`,
			`{"customer":"[masked]","id":1}`,
		},
		"elements": {
			[]string{"body.items[*].card"},
			`{"items":[{"card":1,"n":1},{"card":2}]}`,
			`{"items":[{"card":"[masked]","n":1},{"card":"[masked]"}]}`,
		},
		"elements, unwritten": {
			[]string{"body.items.card"},
			`{"items":[{"card":1,"n":1}]}`,
			`{"items":[{"card":"[masked]","n":1}]}`,
		},
		"lone element": {
			[]string{"body.items[*].card"},
			`{"items":{"card":1,"n":1}}`,
			`{"items":{"card":"[masked]","n":1}}`,
		},
		"any key": {
			[]string{"body.*.email"},
			`{"a":{"email":1,"x":2},"b":{"email":3},"c":"text"}`,
			`{"a":{"email":"[masked]","x":2},"b":{"email":"[masked]"},"c":"text"}`,
		},
		"any key, list": {
			[]string{"body.*.email"},
			`[{"email":1},{"email":2,"x":3}]`,
			`[{"email":"[masked]"},{"email":"[masked]","x":3}]`,
		},
		"other spelling": {
			[]string{"body.customer_email"},
			`{"CustomerEmail":1,"customer-email":2}`,
			`{"CustomerEmail":"[masked]","customer-email":"[masked]"}`,
		},
		"key with dots": {
			[]string{"body.a.b"},
			`{"a.b":1,"a":{"b":2}}`,
			`{"a.b":"[masked]","a":{"b":"[masked]"}}`,
		},
		"twice": {
			[]string{"body.email"},
			`{"email":"first one","email":"second one"}`,
			`{"email":"[masked]","email":"[masked]"}`,
		},
		"repeated elsewhere": {
			[]string{"body.card"},
			`{"card":"4111-1111","note":"card 4111-1111 failed","4111-1111":4}`,
			`{"card":"[masked]","note":"card [masked] failed","[masked]":4}`,
		},
		"number elsewhere": {
			[]string{"body.card"},
			`{"card":41111111,"copy":41111111,"note":"41111111!"}`,
			`{"card":"[masked]","copy":"[masked]","note":"[masked]!"}`,
		},
		"text in place of an object": {
			[]string{"body.customer.email"},
			`{"customer":"Ann, a@b.c","id":"x"}`,
			`{"customer":"[masked]","id":"x"}`,
		},
		"json in text": {
			[]string{"body.payload.email"},
			`{"payload":"{\"email\":\"x\",\"n\":1}"}`,
			"{\"payload\":\"{\\n  \\\"email\\\": \\\"[masked]\\\",\\n  \\\"n\\\": 1\\n}\"}",
		},
		"big numbers": {
			[]string{"body.x"},
			`{"x":1,"big":18446744073709551615,"y":1.0}`,
			`{"x":"[masked]","big":18446744073709551615,"y":1.0}`,
		},
		"nothing there": {[]string{"body.x"}, `{"b":1,"a":2}`, `{"b":1,"a":2}`},
		"envelope": {
			[]string{"body.email"},
			`{"messageType":[],"message":{"email":"x"}}`,
			`{"email":"[masked]"}`,
		},
		"envelope, whole path": {
			[]string{"body.message.email"},
			`{"messageType":[],"message":{"email":"x"}}`,
			`{"email":"[masked]"}`,
		},
		"envelope, all": {[]string{"body.message"}, `{"messageType":[],"message":{"email":"x"}}`, `"[masked]"`},
		"data in base64": {
			[]string{"body.data.email"},
			`{"specversion":"1.0","type":"t","source":"s","id":"1","data_base64":"eyJlbWFpbCI6IngifQ=="}`,
			`{"email":"[masked]"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d decode.Decoder
			doc := redactor(t, redact.Rules{Paths: tc.paths}).Begin(nil).Document(d.Decode(decode.Input{Body: []byte(tc.body)}))
			var compact strings.Builder
			if err := json.NewEncoder(&compact).Encode(json.RawMessage(doc.Text)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.TrimSpace(compact.String())); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			want := d.Decode(decode.Input{ContentType: "application/json", Body: []byte(tc.want)})
			if diff := cmp.Diff(want.Value, doc.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
}

// Kinds of values are found wherever they are.
func TestTypes(t *testing.T) {
	t.Parallel()
	all := []string{"email", "iban", "bearer"}
	for _, tc := range []struct{ text, want string }{
		{"ann.o'neil+x@mail.example.com failed", "[masked] failed"},
		{"mailto:jörg@müller.example.", "mailto:[masked]."},
		{`"ann b"@example.com`, "[masked]"},
		{"user=ann%40example.com&x=1", "user=[masked]&x=1"},
		{"ann@localhost and a @ b.c", "ann@localhost and a @ b.c"},
		{"IBAN DE89 3704 0044 0532 0130 00 of Ann", "IBAN [masked] of Ann"},
		{"de89370400440532013000x", "[masked]x"},
		{"DE88370400440532013000", "DE88370400440532013000"}, // the checksum is wrong
		{"GB82-WEST-1234-5698-7654-32, FR1420041010050500013M02606", "[masked], [masked]"},
		{"XX82WEST12345698765432", "XX82WEST12345698765432"}, // no such country
		{"Authorization: Bearer abc.DEF-123=", "Authorization: [masked]"},
		{"the bearer of this", "the [masked] this"}, // rather too much than too little
		{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln", "[masked]"},
		{base64.StdEncoding.EncodeToString([]byte("ann@example.com")), "[masked]"},
		{hex.EncodeToString([]byte("ann@example.com")), "[masked]"},
		{`{"a":"ann\u0040example.com","b":1}`, "{\n  \"a\": \"[masked]\",\n  \"b\": 1\n}"},
		{"order A-1 of 2026-11-22T10:00:00Z", "order A-1 of 2026-11-22T10:00:00Z"},
	} {
		if got := redactor(t, redact.Rules{Types: all}).Begin(nil).Text(tc.text); got != tc.want {
			t.Errorf("Text(%q) = %q, want %q", tc.text, got, tc.want)
		}
	}
}

// Headers are masked by path and by kind, in tables of any type.
func TestHeaders(t *testing.T) {
	t.Parallel()
	type table map[string]any
	r := redactor(t, redact.Rules{
		Paths: []string{
			"headers.authorization",
			"headers.NServiceBus.ExceptionInfo.Message",
			"headers.user.name",
		}, Types: []string{"email"},
	})
	in := map[string]any{
		"Authorization": "Basic QW5uOnNlY3JldA==", "NServiceBus.ExceptionInfo.Message": []byte("no such user"), "n": int32(4),
		"user": table{"name": "Ann Example", "id": int64(7)}, "x-death": []any{
			table{"routing-keys": []any{"ann@example.com"}},
		},
		"note": "Ann Example", "raw": []byte("\xffann@example.com"), "other": []byte{1, 2},
	}
	want := map[string]any{
		"Authorization": "[masked]", "NServiceBus.ExceptionInfo.Message": "[masked]", "n": int32(4),
		"user": map[string]any{"name": "[masked]", "id": int64(7)}, "x-death": []any{
			map[string]any{"routing-keys": []any{"[masked]"}},
		},
		"note": "[masked]", "raw": "\xff[masked]", "other": []byte{1, 2},
	}
	if diff := cmp.Diff(want, r.Begin(nil).Headers(in)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if in["Authorization"] != "Basic QW5uOnNlY3JldA==" {
		t.Error("the headers that were passed in have changed")
	}
	pass := r.Begin(in)
	pass.Headers(in)
	if got := pass.Text("Ann Example is unknown"); got != "[masked] is unknown" {
		t.Errorf("an error with a masked value is %q", got)
	}
}

// Where the rules cannot be applied, the body is hidden whole.
func TestHidden(t *testing.T) {
	t.Parallel()
	const secret = "secret@example.com"
	raw := append([]byte{8, 1, 18, byte(len(secret))}, secret...)
	for name, tc := range map[string]struct {
		rules redact.Rules
		in    decode.Input
		note  string
	}{
		"all bodies": {
			redact.Rules{HideBodies: true},
			decode.Input{Body: []byte(`{"a":"` + secret + `"}`)},
			"all bodies are",
		},
		"text": {
			redact.Rules{Paths: []string{"body.a"}},
			decode.Input{Body: []byte("a: " + secret)},
			"it could not be decoded",
		},
		"broken json": {
			redact.Rules{Paths: []string{"body.a"}},
			decode.Input{ContentType: "application/json", Body: []byte(`{"a":"` + secret)},
			"it could not be decoded",
		},
		"broken xml": {
			redact.Rules{Paths: []string{"body.a"}},
			decode.Input{ContentType: "text/xml", Body: []byte("<a>" + secret + "</" + secret + ">")},
			"it could not be decoded",
		},
		"unknown encoding": {
			redact.Rules{Paths: []string{"body.a"}},
			decode.Input{ContentEncoding: "br", Body: []byte("\x00" + secret)},
			"it could not be decoded",
		},
		"protobuf without schema": {redact.Rules{Paths: []string{"body.a"}}, decode.Input{Body: raw}, "has no names"},
		"binary with kinds": {
			redact.Rules{Types: []string{"email"}},
			decode.Input{Body: []byte("\x00\x01\x02" + secret)},
			"cannot be found in a binary body",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d decode.Decoder
			doc := redactor(t, tc.rules).Begin(nil).Document(d.Decode(tc.in))
			if !strings.Contains(doc.Note, tc.note) || doc.Tree || doc.Value != nil || doc.Text != redact.Mask ||
				strings.Contains(fmt.Sprintf("%+v", doc), secret) {
				t.Errorf("the document is %+v; its note should say %q", doc, tc.note)
			}
		})
	}
	var d decode.Decoder
	doc := redactor(t, redact.Rules{Paths: []string{"body.2"}}).Begin(nil).Document(d.Decode(decode.Input{Body: raw}))
	if doc.Text != "{\n  \"1\": 1,\n  \"2\": \"[masked]\"\n}" {
		t.Errorf("a path of field numbers gives\n%s", doc.Text)
	}
}

// Rules that cannot be read are refused, with what to write.
func TestNew(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"",
		"body",
		"headers",
		"email",
		"body.",
		"body..a",
		"body.items[0].card",
		"body.items[*]card",
		"header.a",
		"body[*].a",
	} {
		_, err := redact.New(redact.Rules{Paths: []string{path}})
		if err == nil || !strings.Contains(err.Error(), "write it like body.customer.email") {
			t.Errorf("the path %q gives the error %v", path, err)
		}
	}
	_, err := redact.New(redact.Rules{Types: []string{"phone"}})
	if err == nil || !strings.Contains(err.Error(), "write email, iban or bearer") {
		t.Errorf("an unknown kind gives the error %v", err)
	}
	var none *redact.Redactor
	doc := decode.Document{Text: "a@b.de"}
	if got := none.Begin(nil).Document(doc); !cmp.Equal(got, doc) || none.Begin(nil).Text("a@b.de") != "a@b.de" {
		t.Error("no redactor masks something")
	}
}

// A masked value occurs nowhere in what is left: not in the tree, the text, the type, the note,
// the headers or an error, whatever the format of the body and wherever else it is repeated.
// Where the body could not be decoded, a value that a path names is unknown: the body is hidden.
func TestMaskedValuesAreNowhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		byPath := rapid.Bool().Draw(t, "by path")
		secret := rapid.StringMatching(`[a-z]{3,9}@[a-z]{2,8}\.(com|example)`).Draw(t, "secret")
		if byPath {
			secret = rapid.StringMatching(`[a-zA-Z0-9 "'<>&\\äé{}\[\]-]{4,20}[a-z]{3}`).Draw(t, "value")
			secret = "x" + secret
		}
		rules := redact.Rules{Types: []string{"email", "iban", "bearer"}}
		if byPath {
			rules.Paths = []string{"body.customer.email"}
		}
		tree := map[string]any{
			"customer": map[string]any{"email": secret, "id": 7},
			"list": []any{
				"before " + secret + " after",
				map[string]any{"k" + secret: 1},
				base64.StdEncoding.EncodeToString([]byte(secret)),
			},
			"other": rapid.String().Draw(t, "other"),
		}
		in := input(t, tree)
		in.Type = "type " + secret
		in.Headers = map[string]any{"error": "no " + secret, "deep": []any{map[string]any{"x": []byte(secret)}}}
		r := redactor(t, rules)
		pass := r.Begin(in.Headers)
		var d decode.Decoder
		doc := pass.Document(d.Decode(in))
		shown := fmt.Sprintf("%+v %+v %s", doc, pass.Headers(in.Headers), pass.Text("could not reach "+secret))
		if byPath && strings.HasPrefix(doc.Note, "the body is hidden") {
			shown = doc.Text + doc.Note // what the value is cannot be known
		}
		quoted, _ := json.Marshal(secret)
		for _, form := range []string{
			secret, string(quoted[1 : len(quoted)-1]), hex.EncodeToString([]byte(secret)),
			base64.StdEncoding.EncodeToString([]byte(secret)),
		} {
			if strings.Contains(shown, form) {
				t.Fatalf("%q is shown as %q in\n%s", secret, form, shown)
			}
		}
	})
}

// An error that repeats a masked value as its client writes JSON does not show it: with what is not
// ASCII escaped, slashes, or all that could be HTML.
func TestAMaskedValueInTheJSONOfAnError(t *testing.T) {
	t.Parallel()
	const secret = `Ann "M" Müller/é <😀>`
	body := fmt.Appendf(nil, `{"customer": {"email": %q}}`, secret)
	for writer, form := range map[string]string{
		"Jackson":          `Ann \"M\" Müller/é <😀>`,
		"encoding/json":    `Ann \"M\" Müller/é \u003c😀\u003e`,
		"json.dumps":       `Ann \"M\" M\u00fcller/\u00e9 <\ud83d\ude00>`,
		"json_encode":      `Ann \"M\" M\u00fcller\/\u00e9 <\ud83d\ude00>`,
		"System.Text.Json": `Ann \u0022M\u0022 M\u00FCller/\u00E9 \u003C\uD83D\uDE00\u003E`,
	} {
		t.Run(writer, func(t *testing.T) {
			t.Parallel()
			pass := redactor(t, redact.Rules{Paths: []string{"body.customer.email"}}).Begin(nil)
			var d decode.Decoder
			pass.Document(d.Decode(decode.Input{Body: body}))
			if got := pass.Text(`refused {"email": "` + form + `", ...`); got != `refused {"email": "`+redact.Mask+`", ...` {
				t.Error(got)
			}
		})
	}
}

// input returns a message with a tree in any format.
func input(t *rapid.T, tree map[string]any) decode.Input {
	t.Helper()
	body, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	switch rapid.IntRange(0, 7).Draw(t, "format") {
	case 1:
		return decode.Input{Body: []byte(base64.StdEncoding.EncodeToString(body))}
	case 2:
		return decode.Input{
			Body: fmt.Appendf(nil, `{"messageType":["urn:message:%s"],"message":%s,"host":%s}`, "A", body, body),
		}
	case 3:
		return decode.Input{Body: fmt.Appendf(nil, `{"specversion":"1.0","type":"t","source":"s","id":"1","data":%s}`, body)}
	case 4:
		return decode.Input{Body: body[:len(body)-1], ContentType: "application/json"}
	case 5:
		return decode.Input{Body: append([]byte{0, 1, 2}, body...)}
	case 6:
		return decode.Input{
			Body:        append([]byte{10, byte(len(body)%100 + 28)}, body...),
			ContentType: "application/x-protobuf",
		}
	case 7: // JSON in a text of JSON
		customer, err := json.Marshal(tree["customer"])
		if err != nil {
			t.Fatal(err)
		}
		tree["customer"] = string(customer)
		if body, err = json.Marshal(tree); err != nil {
			t.Fatal(err)
		}
	}
	return decode.Input{Body: body}
}

// XML with a masked value is shown as a tree: what lies between the elements is not kept.
func TestXML(t *testing.T) {
	t.Parallel()
	var d decode.Decoder
	in := decode.Input{
		Body: []byte(`<Order><!-- a&#64;b.de --><Customer mail="a@b.de"><Name>Ann Example</Name></Customer></Order>`),
	}
	for path, want := range map[string]string{
		"body.customer.name":       "{\n  \"Customer\": {\n    \"@mail\": \"[masked]\",\n    \"Name\": \"[masked]\"\n  }\n}",
		"body.order.customer.name": "{\n  \"Customer\": {\n    \"@mail\": \"[masked]\",\n    \"Name\": \"[masked]\"\n  }\n}",
		"body.order":               `"[masked]"`,
	} {
		doc := redactor(t, redact.Rules{Paths: []string{path}, Types: []string{"email"}}).Begin(nil).Document(d.Decode(in))
		if doc.Text != want {
			t.Errorf("with %s the text is\n%s\nwant\n%s", path, doc.Text, want)
		}
	}
}
