package spec

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// redactionPath is what the path of a value looks like.
const redactionPath = `^(body|headers)(\.[^.\[\]]+(\[\*\])*)+$`

func messagesKeys() []key {
	return append([]key{
		{"protoset", "Files with descriptor sets of protobuf, relative to the folder of this file: buf build -o FILE, or protoc --include_imports --descriptor_set_out=FILE.", false, list(anyText())},
		{"proto", "Files of protobuf source, relative to importPaths.", false, list(anyText())},
		{"importPaths", "Folders in which proto and its imports are looked up, relative to the folder of this file. Default: that folder.", false, list(anyText())},
	}, queueMessagesKeys()...)
}

func queueMessagesKeys() []key {
	return []key{
		{"types", "Protobuf types of messages. The first entry whose conditions all hold applies. Those of a queue come before those of all messages.", false, list(object(messageTypeKeys()))},
		{"redact", "What a person must not see. What a queue masks adds to what all messages mask.", false, object(redactKeys())},
	}
}

func messageTypeKeys() []key {
	return []key{
		{"type", "Full name of the protobuf type, such as shop.Order.", true, anyText()},
		{"key", "Pattern for the routing key of the publisher, as in a binding to a topic exchange. Default: any.", false, anyText()},
		{"contentType", "Content type, without parameters. Default: any.", false, anyText()},
		{"header", "Name of a header. Default: any.", false, anyText()},
		{"value", "Value of the header. Default: any.", false, anyText()},
	}
}

func redactKeys() []key {
	path := matching(redactionPath + `|\$\{`)
	return []key{
		{"paths", "Values to mask, such as body.customer.email, body.items[*].card and headers.authorization. * is any key; case, - and _ do not matter.", false, list(path)},
		{"types", "Kinds of values to mask wherever they are.", false, list(oneOf(topology.RedactionTypes()...))},
		{"bodies", "Whether bodies are shown, or hidden whole. Default: shown.", false, oneOf("shown", "hidden")},
	}
}

// messages reads how the messages of all queues are read and what is masked in them.
func (d *decoder) messages(f fields) {
	v, ok := f.values["messages"]
	if !ok || !d.claim(d.at(v.key), "messages") {
		return
	}
	x := d.fields(v.value, "messages", messagesKeys(), nil)
	folder := func(key string) string { return path.Dir(d.pos(x, key).File) } // an overlay may set the key
	m := &d.spec.Messages
	m.Protosets = inFolder(folder("protoset"), d.texts(x, "protoset"))
	m.Protos = d.texts(x, "proto")
	m.ImportPaths = inFolder(folder("importPaths"), d.texts(x, "importPaths"))
	switch {
	case len(m.Protos) > 0 && len(m.ImportPaths) == 0:
		m.ImportPaths = []string{folder("proto")}
	case len(m.Protos) == 0 && len(m.ImportPaths) > 0:
		d.problem(d.pos(x, "importPaths"), "messages has importPaths and no proto",
			"add proto: [FILE] with a file of protobuf source, or remove importPaths")
	}
	d.schemas(x, "protoset", func(i int, _ string) []string { return m.Protosets[i : i+1] })
	d.schemas(x, "proto", func(_ int, name string) []string {
		return text.Each(m.ImportPaths, func(folder string) string { return path.Join(folder, name) })
	})
	m.Types, m.Redact = d.messageTypes(x), d.redaction(x)
}

// queueMessages reads what a work queue adds.
func (d *decoder) queueMessages(f fields, queue string) topology.QueueMessages {
	v, ok := f.values["messages"]
	if !ok {
		return topology.QueueMessages{}
	}
	x := d.fields(v.value, "messages", queueMessagesKeys(), nil)
	return topology.QueueMessages{Queue: queue, Types: d.messageTypes(x), Redact: d.redaction(x)}
}

// messageTypes reads which messages have which protobuf type.
func (d *decoder) messageTypes(f fields) []topology.MessageType {
	var types []topology.MessageType
	for _, n := range d.list(f, "types") {
		x := d.fields(n, "a type of messages", messageTypeKeys(), nil)
		var t topology.MessageType
		for name, field := range map[string]*string{
			"type": &t.Type, "key": &t.Key, "contentType": &t.ContentType, "header": &t.Header, "value": &t.Value,
		} {
			if s, ok := d.text(x, name); ok && s == "" {
				d.problem(d.pos(x, name), name+" is empty", "give it a value, or remove the key")
			} else {
				*field = s
			}
		}
		if _, ok := x.values["header"]; !ok && t.Value != "" {
			d.problem(d.pos(x, "value"), fmt.Sprintf("value is %q, and no header is named", t.Value),
				"add header: NAME, or remove value")
		}
		types = append(types, t)
	}
	if m := d.spec.Messages; len(types) > 0 && len(m.Protosets)+len(m.Protos) == 0 {
		d.problem(d.pos(f, "types"), "there are types of messages and no schema that declares them",
			"add protoset: [FILE] or proto: [FILE] under messages at the top of the file")
	}
	return types
}

// redaction reads what is masked.
func (d *decoder) redaction(f fields) topology.Redaction {
	v, ok := f.values["redact"]
	if !ok {
		return topology.Redaction{}
	}
	x := d.fields(v.value, "redact", redactKeys(), nil)
	var r topology.Redaction
	valid := regexp.MustCompile(redactionPath)
	for _, n := range d.list(x, "paths") {
		switch s, ok := d.textOf(n, "paths"); {
		case ok && !valid.MatchString(s):
			d.problem(d.at(n), fmt.Sprintf("the path to mask is %q", s),
				"write it like body.customer.email, body.items[*].card or headers.authorization")
		case ok:
			r.Paths = append(r.Paths, s)
		}
	}
	for _, n := range d.list(x, "types") {
		if s, ok := d.textOf(n, "types"); ok && d.among(n, "types", s, topology.RedactionTypes()) {
			r.Types = append(r.Types, s)
		}
	}
	bodies, _ := d.word(x, "bodies", []string{"shown", "hidden"})
	r.HideBodies = bodies == "hidden"
	return r
}

// texts reads a list of names that are not empty.
func (d *decoder) texts(f fields, name string) []string {
	var out []string
	for _, n := range d.list(f, name) {
		switch s, ok := d.textOf(n, name); {
		case ok && s == "":
			d.problem(d.at(n), "a name under "+name+" is empty", "write the name of a file or folder, or remove the entry")
		case ok:
			out = append(out, s)
		}
	}
	return out
}

// schemas notes the files of a list, and in is where each is looked for.
func (d *decoder) schemas(f fields, key string, in func(i int, name string) []string) {
	names, items := d.texts(f, key), d.list(f, key)
	for i, n := range items {
		if len(names) == len(items) { // else one of them is a problem
			d.spec.Schemas = append(d.spec.Schemas, SchemaFile{key, names[i], in(i, names[i]), d.at(n)})
		}
	}
}

// inFolder returns paths that are relative to a folder as relative to the working directory.
func inFolder(folder string, names []string) []string {
	names = slices.Clone(names)
	for i, name := range names {
		if !path.IsAbs(name) {
			names[i] = path.Join(folder, name)
		}
	}
	return names
}
