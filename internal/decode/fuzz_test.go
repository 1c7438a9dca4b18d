package decode

import (
	"io/fs"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzDecode feeds the decoder anything. It must not panic, must keep to its limits and must
// give a text that is safe to print; and what can be encoded again is the same body.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "x", `{"a":[1,2.5,"b"]}`, "<a b='c'><d/></a>", "\x08\x01\x12\x03abc", "eyJhIjoxfQ==",
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x4b\x04\x00\x43\xbe\xb7\xe8\x01\x00\x00\x00", "\x28\xb5\x2f\xfd\x04\x00",
		`{"messageType":["urn:message:A"],"message":{"a":1}}`,
		`{"specversion":"1.0","type":"t","source":"s","id":"i","data_base64":"CAE="}`,
	} {
		for _, contentType := range []string{"", "application/json", "text/xml", "application/x-protobuf"} {
			f.Add([]byte(seed), contentType, "")
		}
		f.Add([]byte(seed), "", "gzip, zstd, deflate, base64")
	}
	schemas, err := NewSchemas(SchemaFiles{Protos: []string{"a.proto"}, Read: func(name string) ([]byte, error) {
		if name != "a.proto" {
			return nil, fs.ErrNotExist
		}
		return []byte(`syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";
message A { string s = 1; A a = 2; repeated int32 n = 3; map<string, A> m = 4; google.protobuf.Any x = 5; google.protobuf.Struct t = 6; double d = 7; }`), nil
	}})
	if err != nil {
		f.Fatal(err)
	}
	plain, typed := &Decoder{}, &Decoder{schemas: schemas, rules: []TypeRule{{Key: "a", Type: "A"}}}
	f.Fuzz(func(t *testing.T, body []byte, contentType, encoding string) {
		in := Input{ContentType: contentType, ContentEncoding: encoding, Body: body, Key: "a"}
		for _, d := range []*Decoder{plain, typed} {
			doc := d.read(in).Document
			for _, s := range append(doc.Steps, doc.Text, doc.Note, doc.Type) {
				checkClean(t, s)
			}
			if doc.Tree != (doc.Format == JSON || doc.Format == Protobuf || doc.Format == RawProtobuf || doc.Format == XML) {
				t.Errorf("format %q with tree %v", doc.Format, doc.Tree)
			}
			if deep(doc.Value) > MaxDepth+8 {
				t.Errorf("a tree %d levels deep", deep(doc.Value))
			}
			again, err := d.Encode(in, doc.Text)
			if err != nil {
				continue
			}
			in := in
			in.Body = again
			if text := d.read(in).Text; text != doc.Text {
				t.Errorf("encoded again it is read as\n%s\nnot as\n%s", text, doc.Text)
			}
		}
	})
}

// checkClean reports characters that could control a terminal.
func checkClean(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%q is not UTF-8", s)
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
		t.Errorf("%q has a control character at %d", s, i)
	}
}

func deep(v any) int {
	most := 0
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			most = max(most, deep(inner))
		}
	case []any:
		for _, inner := range v {
			most = max(most, deep(inner))
		}
	default:
		return 0
	}
	return most + 1
}
