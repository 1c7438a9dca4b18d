package decode_test

import (
	"crypto/rand"
	"encoding/hex"
	"io/fs"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// sources are files of protobuf source, by path.
func sources() map[string]string {
	return map[string]string{
		"protos/shop/order.proto": `syntax = "proto3";
package shop;
import "shop/common.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
message Order {
  string id = 1;
  int64 amount = 2;
  Customer customer = 3;
  repeated string tags = 4;
  uint64 big = 5;
  double price = 6;
  float weight = 7;
  bytes blob = 8;
  State state = 9;
  map<string, int32> counts = 10;
  google.protobuf.Timestamp placed = 11;
  repeated int32 numbers = 12;
  google.protobuf.Any extra = 13;
  bool express = 14;
  google.protobuf.Struct more = 15;
}
enum State { UNKNOWN = 0; PAID = 1; }
`,
		"protos/shop/common.proto": `syntax = "proto3";
package shop;
message Customer { string email = 1; string customer_name = 2; Customer friend = 3; }
`,
	}
}

func readFrom(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		data, ok := files[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(data), nil
	}
}

func schemas(t *testing.T) *decode.Schemas {
	t.Helper()
	s, err := decode.NewSchemas(decode.SchemaFiles{
		Protos: []string{"shop/order.proto"}, ImportPaths: []string{"elsewhere", "protos"}, Read: readFrom(sources()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// orderType returns the descriptor of shop.Order, compiled apart from the code under test.
func orderType(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	files := map[string]string{}
	for name, text := range sources() {
		files[strings.TrimPrefix(name, "protos/")] = text
	}
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(files),
	})}
	compiled, err := c.Compile(t.Context(), "shop/order.proto")
	if err != nil {
		t.Fatal(err)
	}
	return compiled[0].Messages().ByName("Order")
}

// encoded returns a shop.Order in protobuf.
func encoded(t *testing.T, text string) []byte {
	t.Helper()
	m := dynamicpb.NewMessage(orderType(t))
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const fullOrder = `{"id":"A-1","amount":9007199254740993,"customer":{"email":"a@example.com","customerName":"Ann"},
"tags":["x","y"],"big":"18446744073709551615","price":1.5,"weight":0.1,"blob":"AAH/",
"state":"PAID","counts":{"a":1,"b":2},"placed":"2026-11-22T10:00:00Z","numbers":[1,-2],"express":true}`

func decoder(t *testing.T, rules ...decode.TypeRule) *decode.Decoder {
	t.Helper()
	d, err := decode.New(schemas(t), rules)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// With a schema, protobuf has names, numbers are numbers, and big ones keep their digits in the
// text.
func TestDecodeProtobuf(t *testing.T) {
	t.Parallel()
	d := decoder(t, decode.TypeRule{Key: "order.*", Type: "shop.Order"})
	want := decode.Document{
		Format: decode.Protobuf, Type: "shop.Order", Tree: true,
		Value: map[string]any{
			"id": "A-1", "amount": int64(9007199254740993), "customer": map[string]any{
				"email":        "a@example.com",
				"customerName": "Ann",
			},
			"tags": []any{"x", "y"}, "big": "18446744073709551615", "price": 1.5, "weight": 0.1, "blob": "AAH/", "state": "PAID",
			"counts": map[string]any{"a": int64(1), "b": int64(2)}, "placed": "2026-11-22T10:00:00Z",
			"numbers": []any{int64(1), int64(-2)}, "express": true,
		},
		Text: `{
  "id": "A-1",
  "amount": 9007199254740993,
  "customer": {
    "email": "a@example.com",
    "customerName": "Ann"
  },
  "tags": [
    "x",
    "y"
  ],
  "big": 18446744073709551615,
  "price": 1.5,
  "weight": 0.1,
  "blob": "AAH/",
  "state": "PAID",
  "counts": {
    "a": 1,
    "b": 2
  },
  "placed": "2026-11-22T10:00:00Z",
  "numbers": [
    1,
    -2
  ],
  "express": true
}`,
	}
	if diff := cmp.Diff(want, d.Decode(decode.Input{Key: "order.placed", Body: encoded(t, fullOrder)})); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

// Rules choose the type; the property type and the content type are hints.
func TestTypeRules(t *testing.T) {
	t.Parallel()
	body := encoded(t, `{"id":"A-1","amount":"1"}`)
	for name, tc := range map[string]struct {
		rules  []decode.TypeRule
		in     decode.Input
		format decode.Format
		note   string
	}{
		"all": {[]decode.TypeRule{{Type: "shop.Order"}}, decode.Input{}, decode.Protobuf, ""},
		"key": {
			[]decode.TypeRule{{Key: "#.placed", Type: "shop.Order"}},
			decode.Input{Key: "a.b.placed"},
			decode.Protobuf,
			"",
		},
		"no word for #": {
			[]decode.TypeRule{{Key: "order.#", Type: "shop.Order"}},
			decode.Input{Key: "order"},
			decode.Protobuf,
			"",
		},
		"other key": {
			[]decode.TypeRule{{Key: "order.*", Type: "shop.Order"}},
			decode.Input{Key: "order.a.b"},
			decode.RawProtobuf,
			"",
		},
		"header": {
			[]decode.TypeRule{{Header: "x-type", Value: "7", Type: "shop.Order"}},
			decode.Input{Headers: map[string]any{"x-type": int32(7)}},
			decode.Protobuf,
			"",
		},
		"other header": {
			[]decode.TypeRule{{Header: "x-type", Value: "7", Type: "shop.Order"}},
			decode.Input{Headers: map[string]any{"x-type": "8"}},
			decode.RawProtobuf,
			"",
		},
		"content type": {
			[]decode.TypeRule{{ContentType: "application/x-order", Type: "shop.Order"}},
			decode.Input{ContentType: "application/X-Order; v=1"},
			decode.Protobuf,
			"",
		},
		"queue": {
			[]decode.TypeRule{{Queue: "billing", Type: "shop.Order"}},
			decode.Input{Queue: "billing"},
			decode.Protobuf,
			"",
		},
		"other queue": {
			[]decode.TypeRule{{Queue: "billing", Type: "shop.Order"}},
			decode.Input{Queue: "mail"},
			decode.RawProtobuf,
			"",
		},
		"property": {nil, decode.Input{Type: "shop.Order"}, decode.Protobuf, ""},
		"parameter": {
			nil,
			decode.Input{ContentType: "application/x-protobuf; messageType=shop.Order"},
			decode.Protobuf,
			"",
		},
		"first rule wins": {
			[]decode.TypeRule{{Type: "shop.Order"}, {Type: "shop.Customer"}},
			decode.Input{},
			decode.Protobuf,
			"",
		},
		"does not fit": {
			[]decode.TypeRule{{Type: "shop.Customer"}},
			decode.Input{Body: []byte("\x78\x01\x80\x01\x01")},
			decode.RawProtobuf,
			"it has none of the fields",
		},
		"json in spite of it": {
			[]decode.TypeRule{{Type: "shop.Order"}},
			decode.Input{Body: []byte(`{"id":1}`)},
			decode.JSON,
			"",
		},
		"unknown fields": {
			[]decode.TypeRule{{Type: "shop.Order"}},
			decode.Input{Body: append([]byte("\xf8\x01\x01"), body...)},
			decode.Protobuf,
			"does not declare these fields, and they are not shown: 31",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.in.Body == nil {
				tc.in.Body = body
			}
			doc := decoder(t, tc.rules...).Decode(tc.in)
			if doc.Format != tc.format || !strings.Contains(doc.Note, tc.note) || tc.note == "" && doc.Note != "" {
				t.Errorf("format %q with note %q, want %q with %q", doc.Format, doc.Note, tc.format, tc.note)
			}
		})
	}
}

// Schemas come from descriptor sets too, with their imports or without those that every compiler
// brings along, and what is wrong with them is said.
func TestNewSchemas(t *testing.T) {
	t.Parallel()
	order := orderType(t).ParentFile()
	var set descriptorpb.FileDescriptorSet
	for i := range order.Imports().Len() {
		if f := order.Imports().Get(i); f.Package() == "shop" {
			set.File = append(set.File, protodesc.ToFileDescriptorProto(f.FileDescriptor))
		}
	}
	lone, err := proto.Marshal(&descriptorpb.FileDescriptorSet{
		File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(order)},
	})
	if err != nil {
		t.Fatal(err)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(order))
	whole, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	files := sources()
	files["shop.binpb"], files["lone.binpb"], files["text"] = string(whole), string(lone), "not a set"
	files["protos/shop/broken.proto"] = "syntax = \"proto3\"\nmessage"
	for name, tc := range map[string]struct {
		files decode.SchemaFiles
		types string
		err   string
	}{
		"set": {decode.SchemaFiles{Protosets: []string{"shop.binpb"}}, "shop.Customer shop.Order", ""},
		"set twice": {
			decode.SchemaFiles{Protosets: []string{"shop.binpb", "shop.binpb"}},
			"shop.Customer shop.Order",
			"",
		},
		"set and source": {
			decode.SchemaFiles{
				Protosets:   []string{"shop.binpb"},
				Protos:      []string{"shop/order.proto"},
				ImportPaths: []string{"protos"},
			},
			"shop.Customer shop.Order",
			"",
		},
		"source with its folder": {
			decode.SchemaFiles{
				Protos:      []string{"protos/shop/order.proto"},
				ImportPaths: []string{"./protos"},
			}, "shop.Customer shop.Order", "",
		},
		"without imports": {decode.SchemaFiles{Protosets: []string{"lone.binpb"}}, "", "--include_imports"},
		"no set": {
			decode.SchemaFiles{Protosets: []string{"text"}},
			"",
			"text is not a descriptor set; write it with",
		},
		"no file": {decode.SchemaFiles{Protosets: []string{"none"}}, "", "descriptor set none: "},
		"no source": {
			decode.SchemaFiles{Protos: []string{"none.proto"}},
			"",
			"not found in .; add its folder as an import path",
		},
		"broken source": {
			decode.SchemaFiles{Protos: []string{"shop/broken.proto"}, ImportPaths: []string{"protos"}},
			"",
			"shop/broken.proto:2:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.files.Read = readFrom(files)
			s, err := decode.NewSchemas(tc.files)
			switch {
			case err != nil && (tc.err == "" || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q", err, tc.err)
			case err == nil && (tc.err != "" || strings.Join(s.Types(), " ") != tc.types):
				t.Errorf("types %v and no error, want %q and %q", s.Types(), tc.types, tc.err)
			}
		})
	}
	_, err = decode.New(nil, []decode.TypeRule{{Type: "a.B"}})
	if err == nil || !strings.Contains(err.Error(), "--protoset") {
		t.Errorf("a rule without schemas: %v", err)
	}
	if _, err := decode.New(schemas(t), []decode.TypeRule{{Type: "shop.Ordr"}}); err == nil ||
		!strings.Contains(err.Error(), `declares the message type "shop.Ordr"; did you mean one of shop.Customer, `+
			`shop.Order`) {
		t.Errorf("a rule with an unknown type: %v", err)
	}
}

// Without a schema, protobuf is shown by field number, in both readings.
func TestDecodeRawProtobuf(t *testing.T) {
	t.Parallel()
	inner := protowire.AppendTag(nil, 5, protowire.BytesType)
	inner = protowire.AppendString(inner, strings.Repeat("x", 40)) // its tag and its length are printable too
	body := encoded(t, `{"id":"A-1","amount":"42","customer":{"email":"a@example.com"},"price":1.5,`+
		`"weight":0.5,"blob":"AAH/"}`)
	body = protowire.AppendTag(body, 20, protowire.BytesType)
	body = protowire.AppendBytes(body, inner)
	body = protowire.AppendTag(body, 2, protowire.VarintType)
	body = protowire.AppendVarint(body, 1<<64-1)
	want := decode.Document{
		Format: decode.RawProtobuf, Tree: true,
		Value: map[string]any{
			"1": "A-1", "2": []any{int64(42), int64(-1)}, "3": map[string]any{"1": "a@example.com"}, "6": 1.5, "7": 0.5,
			"8": "0x0001ff", "20": "*(" + strings.Repeat("x", 40),
		},
		Text: `1: "A-1"
2: 42
3: {
  1: "a@example.com"
}
6: 1.5 or 4609434218613702656
7: 0.5 or 1056964608
8: 0x0001ff
20: "*(xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" or {
  5: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
}
2: -1 or 18446744073709551615`,
	}
	var d decode.Decoder
	if diff := cmp.Diff(want, d.Decode(decode.Input{Body: body}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

// Random bytes are rarely taken for protobuf, and never when a byte is left over.
func TestRandomBytesAreNotProtobuf(t *testing.T) {
	t.Parallel()
	var d decode.Decoder
	const rounds = 20_000
	taken := 0
	for range rounds {
		body := make([]byte, 24)
		if _, err := rand.Read(body); err != nil {
			t.Fatal(err)
		}
		if d.Decode(decode.Input{Body: body}).Format == decode.RawProtobuf {
			taken++
		}
	}
	if taken > rounds/200 {
		t.Errorf("%d of %d random bodies were taken for protobuf", taken, rounds)
	}
	t.Logf("%d of %d random bodies of 24 bytes were taken for protobuf", taken, rounds)
	body, _ := hex.DecodeString("0a05")
	got := d.Decode(decode.Input{ContentType: "application/x-protobuf", Body: body})
	if got.Format != decode.Binary || got.Note == "" {
		t.Errorf("a truncated body is %q with note %q", got.Format, got.Note)
	}
}

// A packed list of a byte a value is counted before it is built, and endless nesting is refused.
func TestDecodeProtobufBombs(t *testing.T) {
	t.Parallel()
	packed := protowire.AppendTag(nil, 12, protowire.BytesType)
	packed = protowire.AppendBytes(packed, make([]byte, 8<<20))
	deep := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "a@example.com")
	for range 1000 {
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), deep)
	}
	for name, tc := range map[string]struct {
		body []byte
		note string
	}{
		"many": {packed, "more than 500000 values"},
		"deep": {deep, "more than 64 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := decoder(t, decode.TypeRule{Type: "shop.Order"}).Decode(decode.Input{Body: tc.body})
			if !strings.Contains(doc.Note, tc.note) || len(doc.Text) > decode.MaxBytes+1<<20 {
				t.Errorf("note %q and %d bytes of text, want %q", doc.Note, len(doc.Text), tc.note)
			}
		})
	}
}
