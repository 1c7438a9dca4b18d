// Package decode shows what the body of a message says. It undoes content-encoding and base64,
// and reads JSON, envelopes, protobuf and text. It does no I/O, never changes a message, and
// limits what a hostile body can cost.
package decode

import (
	"fmt"
	"mime"
	"strings"
)

// Format is the form in which a body was understood.
type Format string

// The formats.
const (
	JSON     Format = "json"
	Protobuf Format = "protobuf"
	// RawProtobuf is protobuf that was read without a schema: field numbers in place of names.
	RawProtobuf Format = "protobuf without schema"
	XML         Format = "xml"
	Text        Format = "text"
	Binary      Format = "binary"
)

// Input is what the decoder knows about a message.
type Input struct {
	ContentType     string
	ContentEncoding string
	// Type is the property type of the message.
	Type string
	// Key is the routing key of the publisher.
	Key string
	// Queue is the work queue in which the message failed. Empty if unknown.
	Queue   string
	Headers map[string]any
	Body    []byte
}

// Document is a decoded body.
type Document struct {
	Format Format
	// Steps names what was undone or recognized on the way, in order, as "gzip", "base64",
	// "MassTransit". Empty when the body was read as it is.
	Steps []string
	// Type is the name of the message type, as far as the envelope, the schema or the
	// properties tell. Empty if unknown.
	Type string
	// Value is the body as a tree of map[string]any, []any, string, int64, float64, bool and
	// nil. It is nil, with Tree false, when the body has no tree: text and binary.
	//
	// Of an envelope it is what the envelope holds, and of XML the content of the root
	// element. Inside then says where Value is in the body, such as "message". Envelope is
	// the rest of the envelope.
	Value    any
	Tree     bool
	Inside   string
	Envelope map[string]any
	// Text is the body for a person to read: indented for a tree, hexadecimal for binary.
	// It is valid UTF-8 without control characters other than line feed and tab.
	Text string
	// Note says what was not decoded, and why. Empty if all was.
	Note string
}

// Decoder decodes bodies. The zero value knows no schemas. It may be used by several goroutines.
type Decoder struct {
	schemas *Schemas
	rules   []TypeRule
}

// Decode reads a body. It never fails: what it cannot decode it shows as text or hexadecimal,
// and says why.
func (d *Decoder) Decode(in Input) (doc Document) {
	// Any publisher may have sent the body, and one that makes a library panic must not hide
	// the other messages.
	defer func() {
		if cause := recover(); cause != nil {
			doc = Document{Format: Binary, Text: hexadecimal(in.Body)}
			doc.note("the body could not be decoded: %v", cause)
		}
	}()
	return d.read(in).Document
}

// reading is a document, and how to get back from it to the body.
type reading struct {
	Document
	layers []layer // what was undone, the outermost first
	body   []byte  // what was below them
	// begin and end are the part of body that Value stands for, in an envelope of JSON.
	begin, end int
	// message is set if Value was read by a schema.
	message *message
	// whole reports that body is the JSON or the message that Value stands for.
	whole bool
}

// note adds what was not decoded.
func (d *Document) note(format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...), false)
	if d.Note != "" {
		text = d.Note + "; " + text
	}
	d.Note = text
}

// step adds what was undone or recognized.
func (d *Document) step(name string) { d.Steps = append(d.Steps, name) }

// read decodes a body, and keeps what is needed to encode it again.
func (d *Decoder) read(in Input) *reading {
	if d == nil {
		d = &Decoder{}
	}
	r := &reading{body: in.Body}
	if len(in.Body) > MaxBytes {
		r.Format, r.Text = Binary, hexadecimal(in.Body)
		r.note("the body has %d bytes, more than %d MiB, and is not decoded", len(in.Body), MaxBytes>>20)
	} else {
		media, params := mediaType(in)
		r.unwrap(in.ContentEncoding)
		d.unwrapUndeclared(r, in, media, params)
		if d.format(r, in, media, params); r.Format == JSON {
			d.envelope(r, in)
		}
	}
	r.properties(in)
	r.Type = clean(r.Type, false)
	return r
}

// mediaType returns the content type in small letters without parameters, and the parameters.
func mediaType(in Input) (string, map[string]string) {
	value := in.ContentType
	if value == "" {
		value, _ = in.Headers["NServiceBus.ContentType"].(string)
	}
	media, params, err := mime.ParseMediaType(value)
	if err != nil {
		media, _, _ = strings.Cut(value, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media, params
}

// format finds the format of the body and fills in the document. A format that the content type
// declares or a rule names comes first, and its error goes into the note.
func (d *Decoder) format(r *reading, in Input, media string, params map[string]string) {
	switch {
	case len(r.body) == 0:
		r.Format = Text
	case r.json(media):
	case d.schema(r, in, media, params):
	case isProtobuf(media) && r.wire(true):
	case r.xml(media):
	case r.text(media):
	case r.wire(false):
	default:
		r.binary(media)
	}
}

// isJSON reports a content type of JSON.
func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// isXML reports a content type of XML.
func isXML(media string) bool {
	return media == "application/xml" || media == "text/xml" || strings.HasSuffix(media, "+xml")
}

// isProtobuf reports a content type of protobuf.
func isProtobuf(media string) bool {
	switch media {
	case "application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf",
		"application/x-google-protobuf", "application/proto":
		return true
	}
	return strings.HasSuffix(media, "+proto") || strings.HasSuffix(media, "+protobuf")
}
