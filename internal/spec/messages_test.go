package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/topology"
)

const messagesFile = `version: 1
name: shop
messages:
  protoset: [orders.binpb, /etc/shop/mail.binpb]
  proto: [shop/order.proto]
  importPaths: [protos, ../common]
  types:
    - {key: "order.*", type: shop.Order}
    - {header: x-type, value: "7", contentType: application/x-shop, type: shop.Other}
  redact:
    paths: [body.customer.email, "body.items[*].card", headers.authorization]
    types: [email, iban]
    bodies: ${BODIES:-shown}
queues:
  - {name: billing, backoff: none}
  - name: mail
    backoff: none
    messages:
      types: [{type: shop.Mail}]
      redact: {types: [bearer], bodies: hidden}
`

// Schemas, types and rules come out as plain data; files are found from the folder of the
// topology file.
func TestMessages(t *testing.T) {
	t.Parallel()
	got, _, err := Load([]Source{{Name: "deploy/shop/topology.yaml", Data: []byte(messagesFile)}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	want := topology.Messages{
		Protosets:   []string{"deploy/shop/orders.binpb", "/etc/shop/mail.binpb"},
		Protos:      []string{"shop/order.proto"},
		ImportPaths: []string{"deploy/shop/protos", "deploy/common"},
		Types: []topology.MessageType{
			{Key: "order.*", Type: "shop.Order"},
			{Header: "x-type", Value: "7", ContentType: "application/x-shop", Type: "shop.Other"},
		},
		Redact: topology.Redaction{
			Paths: []string{
				"body.customer.email",
				"body.items[*].card",
				"headers.authorization",
			}, Types: []string{"email", "iban"},
		},
		Queues: []topology.QueueMessages{{
			Queue: "mail", Types: []topology.MessageType{{Type: "shop.Mail"}},
			Redact: topology.Redaction{Types: []string{"bearer"}, HideBodies: true},
		}},
	}
	if d := cmp.Diff(want, got.Messages); d != "" {
		t.Errorf("messages (-want +got):\n%s", d)
	}
}

// The folder of the file is the import path where none is given, and that of stdin is the
// working directory.
func TestMessagesDefaultImportPath(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a/b.yaml": "a", "b.yaml": ".", "stdin": "."} {
		file := []byte("version: 1\nname: shop\nmessages: {proto: [o.proto]}\n")
		got, _, err := Load([]Source{{Name: name, Data: file}}, environment())
		if d := cmp.Diff([]string{want}, got.Messages.ImportPaths); err != nil || d != "" {
			t.Errorf("import paths for %s (-want +got):\n%s%v", name, d, err)
		}
	}
}

// Nothing under messages changes an object on the broker, so that no plan can come of it.
func TestMessagesChangeNoObject(t *testing.T) {
	t.Parallel()
	plain := "version: 1\nname: shop\nqueues: [{name: billing, backoff: none}, {name: mail, backoff: none}]\n"
	with, _, err := Load([]Source{{Name: "f", Data: []byte(messagesFile)}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	without, _, err := Load([]Source{{Name: "f", Data: []byte(plain)}}, environment())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(without.Topology, with.Topology); d != "" {
		t.Errorf("objects without messages (-) and with (+):\n%s", d)
	}
}

// Each problem has its place, its value and a fix.
func TestMessagesProblems(t *testing.T) {
	t.Parallel()
	head := "version: 1\nname: shop\n"
	for file, want := range map[string][]string{
		"messages: {types: [{type: a.B}]}": {
			"3:19: there are types of messages and no schema that declares them; add protoset: [FILE] or proto: " +
				"[FILE] under messages at the top of the file",
		},
		"queues: [{name: q, backoff: none, messages: {types: [{type: a.B}]}}]": {
			"3:53: there are types of messages and no schema that declares them; add protoset: [FILE] or proto: " +
				"[FILE] under messages at the top of the file",
		},
		"messages: {proto: [a], types: [{key: a, value: x}]}": {
			"3:32: a type of messages has no type; add type: …",
			`3:48: value is "x", and no header is named; add header: NAME, or remove value`,
		},
		`messages: {proto: [a, ""], types: [{type: "", key: 7}]}`: {
			"3:23: a name under proto is empty; write the name of a file or folder, or remove the entry",
			"3:43: type is empty; give it a value, or remove the key",
			`3:52: key is the number 7, not text; put it in quotes: "7"`,
		},
		"messages: {importPaths: [a]}": {
			"3:25: messages has importPaths and no proto; add proto: [FILE] with a file of protobuf source, or " +
				"remove importPaths",
		},
		"messages: {redact: {paths: [email, body, \"body.items[0].card\"], types: [mail], bodies: hide}}": {
			`3:29: the path to mask is "email"; write it like body.customer.email, body.items[*].card or headers.authorization`,
			`3:36: the path to mask is "body"; write it like body.customer.email, body.items[*].card or headers.authorization`,
			`3:42: the path to mask is "body.items[0].card"; write it like body.customer.email, body.items[*].card ` +
				`or headers.authorization`,
			`3:73: types is "mail"; did you mean "email"?`,
			`3:88: bodies is "hide"; did you mean "hidden"?`,
		},
		"messages: {protosets: [a]}": {
			`3:12: messages has no key "protosets"; did you mean "protoset"?`,
		},
		"queues: [{name: q, backoff: none, messages: {protoset: [a]}}]": {
			`3:46: messages has no key "protoset"; its keys are types, redact`,
		},
	} {
		_, _, err := Decode([]Source{{Name: "f", Data: []byte(head + file + "\n")}}, environment())
		if d := cmp.Diff(want, problems(t, err)); d != "" {
			t.Errorf("problems of %s (-want +got):\n%s", file, d)
		}
	}
	_, _, err := Decode([]Source{
		{Name: "f", Data: []byte(head + "messages: {}\n")}, {Name: "g", Data: []byte("version: 1\nmessages: {}\n")},
	}, environment())
	if d := cmp.Diff([]string{"2:1: messages is already set at f:3; the files of one topology set it " +
		"once"}, problems(t, err)); d != "" {
		t.Errorf("problems of two files (-want +got):\n%s", d)
	}
}
