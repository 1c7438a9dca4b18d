package decode

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// envelope opens the envelopes that are JSON: MassTransit, the errors of EasyNetQ, and CloudEvents
// in structured mode.
// They are recognized by their keys, whatever the content type says: a rule that masks
// body.email must mean the same for each message.
func (d *Decoder) envelope(r *reading, in Input) {
	v, ok := r.Value.(map[string]any)
	switch {
	case !ok:
	case isMassTransit(v):
		r.step("MassTransit")
		r.Type = massTransitType(v)
		r.content(v, "message")
	case isEasyNetQ(v):
		d.easyNetQ(r, v)
	case isCloudEvent(v):
		r.step("CloudEvents")
		r.Type, _ = v["type"].(string)
		if _, ok := v["data"]; ok {
			r.content(v, "data")
		} else if text, ok := v["data_base64"].(string); ok {
			d.binaryData(r, v, in, text)
		}
	}
}

// content makes a member of the envelope the value of the document.
func (r *reading) content(v map[string]any, name string) {
	r.Value, r.Inside, r.Envelope = v[name], name, without(v, name)
	r.whole = false
	if begin, end, ok := span(r.body[r.begin:], name); ok {
		r.begin, r.end = r.begin+begin, r.begin+end
		r.Text = indent(r.body[r.begin:r.end])
		r.whole = true
		return
	}
	r.Text = Render(r.Value)
}

// binaryData decodes the data_base64 of a CloudEvent. It opens no further envelope.
func (d *Decoder) binaryData(r *reading, v map[string]any, in Input, encoded string) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		r.note("data_base64 is not base64")
		return
	}
	in.ContentType, _ = v["datacontenttype"].(string)
	in.Type = r.Type
	inner := &reading{body: data}
	inner.Steps, inner.Type, inner.Note = append(r.Steps, "base64"), r.Type, r.Note
	media, params := mediaType(in)
	d.format(inner, in, media, params)
	inner.Inside, inner.Envelope, inner.whole = "data_base64", without(v, "data_base64"), false
	r.Document, r.whole, r.message = inner.Document, false, nil
}

// without returns a copy of an object without a member.
func without(v map[string]any, name string) map[string]any {
	out := maps.Clone(v)
	delete(out, name)
	return out
}

// isMassTransit reports the envelope of MassTransit: the message and the list of its types.
func isMassTransit(v map[string]any) bool {
	_, types := v["messageType"].([]any)
	_, message := v["message"]
	return types && message
}

// massTransitType returns the first type: the others are its interfaces and base types.
func massTransitType(v map[string]any) string {
	types, _ := v["messageType"].([]any)
	if len(types) == 0 {
		return ""
	}
	name, _ := types[0].(string)
	return strings.TrimPrefix(name, "urn:message:")
}

// isEasyNetQ reports the envelope in which EasyNetQ puts a message whose consumer failed
// (EasyNetQ.SystemMessages.Error).
func isEasyNetQ(v map[string]any) bool {
	for _, name := range []string{"RoutingKey", "Exchange", "Queue", "Exception", "Message"} {
		if _, ok := v[name].(string); !ok {
			return false
		}
	}
	_, properties := v["BasicProperties"].(map[string]any)
	return properties
}

// easyNetQ decodes the message in an error of EasyNetQ. It opens no further envelope.
func (d *Decoder) easyNetQ(r *reading, v map[string]any) {
	r.step("EasyNetQ")
	message, _ := v["Message"].(string)
	properties, _ := v["BasicProperties"].(map[string]any)
	in := Input{Body: []byte(message)}
	in.ContentType, _ = properties["ContentType"].(string)
	in.ContentEncoding, _ = properties["ContentEncoding"].(string)
	in.Type, _ = properties["Type"].(string)
	in.Key, _ = v["RoutingKey"].(string)
	in.Queue, _ = v["Queue"].(string)
	r.Type = in.Type
	inner := &reading{}
	inner.Steps, inner.Note = slices.Clone(r.Steps), r.Note
	if body, ok := EasyNetQMessage(message); ok {
		if in.Body = body; string(body) != message {
			inner.step("base64")
		}
	}
	inner.body = in.Body
	media, params := mediaType(in)
	inner.unwrap(in.ContentEncoding)
	d.unwrapUndeclared(inner, in, media, params)
	d.format(inner, in, media, params)
	inner.Type = cmp.Or(inner.Type, r.Type)
	inner.Inside, inner.Envelope = "Message", without(v, "Message")
	r.Document, r.whole, r.message = inner.Document, false, nil
}

// EasyNetQMessage returns the body that the Message of an error of EasyNetQ stands for: a text, or
// base64 if EasyNetQ is configured with Base64ErrorMessageSerializer. It returns false if EasyNetQ
// has read bytes as a text that are none, which cannot be undone.
func EasyNetQMessage(message string) ([]byte, bool) {
	if body, err := base64.StdEncoding.Strict().DecodeString(message); err == nil && !json.Valid([]byte(message)) {
		return body, true
	}
	return []byte(message), !strings.ContainsRune(message, utf8.RuneError)
}

// isCloudEvent reports a CloudEvent in structured mode: it has the attributes that are required.
func isCloudEvent(v map[string]any) bool {
	for _, name := range []string{"specversion", "type", "source", "id"} {
		if _, ok := v[name].(string); !ok {
			return false
		}
	}
	return true
}

// properties takes the type from headers and properties, where the body does not tell it.
func (r *reading) properties(in Input) {
	if name, ok := header(in.Headers, "NServiceBus.EnclosedMessageTypes"); ok {
		r.step("NServiceBus")
		name, _, _ = strings.Cut(name, ";") // the others are its interfaces and base types
		name, _, _ = strings.Cut(name, ",") // the assembly follows
		r.prefer(strings.TrimSpace(name))
	}
	for _, prefix := range []string{"cloudEvents:", "cloudEvents_", "ce-", "ce_"} {
		if _, ok := header(in.Headers, prefix+"specversion"); ok {
			r.step("CloudEvents")
			name, _ := header(in.Headers, prefix+"type")
			r.prefer(name)
			break
		}
	}
	// Spring AMQP, Rebus, Wolverine and Celery name the type in a header.
	for _, key := range []string{"__TypeId__", "rbs2-msg-type", "message-type", "task"} {
		name, _ := header(in.Headers, key)
		r.prefer(name)
	}
	r.prefer(in.Type)
}

// prefer sets the type unless something that knows better has set it.
func (r *reading) prefer(name string) {
	if r.Type == "" {
		r.Type = name
	}
}

// header returns a header that is text.
func header(headers map[string]any, name string) (string, bool) {
	s, ok := headers[name].(string)
	return s, ok
}
