package decode

import (
	"errors"
	"fmt"
	"strings"
)

// TypeRule says which protobuf type a message has. Each condition that is not empty must hold.
type TypeRule struct {
	// Queue is the work queue in which the message failed.
	Queue string
	// Key is a pattern for the routing key, as in a binding to a topic exchange.
	Key string
	// ContentType is a media type without parameters.
	ContentType string
	// Header and Value are a header and its value. An empty Value is any.
	Header, Value string
	// Type is the full name of the message type, such as shop.Order.
	Type string
}

// New returns a decoder that knows schemas, which may be nil. Rules choose the message type:
// the first one that fits applies. The error names a rule whose type no schema declares.
func New(s *Schemas, rules []TypeRule) (*Decoder, error) {
	for _, r := range rules {
		if s == nil {
			return nil, fmt.Errorf("the message type %q needs a schema; name a descriptor set with --protoset or a file with --proto", r.Type)
		}
		if s.message(r.Type) == nil {
			return nil, s.unknown(r.Type)
		}
	}
	return &Decoder{schemas: s, rules: rules}, nil
}

// unknown returns the error for a message type that no schema declares.
func (s *Schemas) unknown(name string) error {
	const most = 10
	names := s.Types()
	if len(names) == 0 {
		return errors.New("the schemas declare no message type; name other files with --protoset or --proto")
	}
	fix := "did you mean one of"
	if len(names) > most {
		names = append(names[:most], "…")
		fix = "the schemas declare"
	}
	return fmt.Errorf("no schema declares the message type %q; %s %s", name, fix, strings.Join(names, ", "))
}

// typeOf returns the message type that the rules, the content type or the property type name,
// and whether a rule names it. It is empty if none does.
func (d *Decoder) typeOf(in Input, media string, params map[string]string) (name string, certain bool) {
	for _, r := range d.rules {
		if r.fits(in, media) {
			return r.Type, true
		}
	}
	for _, name := range []string{params["messagetype"], params["proto"], params["type"], in.Type} {
		if name = strings.TrimPrefix(name, "."); name != "" && d.schemas.message(name) != nil {
			return name, false
		}
	}
	return "", false
}

// fits reports whether all conditions of the rule hold.
func (r TypeRule) fits(in Input, media string) bool {
	if r.Queue != "" && r.Queue != in.Queue || r.ContentType != "" && !strings.EqualFold(r.ContentType, media) ||
		r.Key != "" && !matchKey(strings.Split(r.Key, "."), strings.Split(in.Key, ".")) {
		return false
	}
	if r.Header == "" {
		return true
	}
	value, ok := in.Headers[r.Header]
	return ok && (r.Value == "" || fmt.Sprint(value) == r.Value)
}

// matchKey reports whether a routing key fits a pattern of a topic exchange, word by word: *
// is one word, # any number of them. Its cost is the product of the lengths.
func matchKey(pattern, key []string) bool {
	fits := make([]bool, len(key)+1) // fits[i]: the pattern so far fits the first i words
	fits[0] = true
	for _, word := range pattern {
		next := make([]bool, len(key)+1)
		for i := range next {
			switch {
			case word == "#":
				next[i] = fits[i] || i > 0 && next[i-1]
			case i > 0:
				next[i] = fits[i-1] && (word == "*" || word == key[i-1])
			}
		}
		fits = next
	}
	return fits[len(key)]
}
