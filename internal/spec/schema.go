package spec

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Schema returns the JSON Schema (2020-12) of topology files. It is made from the
// tables that the decoder reads by, so that it cannot say anything else.
func Schema() []byte { return schema("dlxctl topology", fileKeys()) }

// OverlaySchema returns the JSON Schema of overlays: the same keys, none of which is required but
// the names of queues and exchanges, and null, which removes a key.
func OverlaySchema() []byte {
	keys := overlayKeys(fileKeys())
	for i, k := range keys {
		switch k.name {
		case "version", "name":
			keys[i].shape.null = false
		case "queues", "exchanges": // merged by name
			either := k.shape.items.oneOf // how an entry is named
			entries := overlayKeys(k.shape.items.keys)
			for j, e := range entries {
				if e.name == "name" || slices.Contains(either, e.name) {
					entries[j].required, entries[j].shape.null = either == nil, false
				}
			}
			items := object(entries)
			items.oneOf = either
			keys[i].shape = list(items)
		}
	}
	return schema("dlxctl overlay", keys)
}

// overlayKeys returns the keys of a mapping that an overlay merges: none is required, and each may
// be null. Lists replace those of the files, so that what is in them stays as it is.
func overlayKeys(keys []key) []key {
	out := slices.Clone(keys)
	for i, k := range out {
		out[i].required, out[i].shape = false, overlayShape(k.shape)
	}
	return out
}

// overlayShape returns the shape of a value that an overlay merges.
func overlayShape(s shape) shape {
	s.null = true
	if s.keys != nil {
		s.keys = overlayKeys(s.keys)
	}
	if s.values != nil && len(s.values.types) > 0 {
		values := overlayShape(*s.values)
		s.values = &values
	}
	s.either = slices.Clone(s.either)
	for i, e := range s.either {
		s.either[i] = overlayShape(e)
		s.either[i].null = false // it is that of the whole
	}
	return s
}

// schema returns the JSON Schema of files with these keys.
func schema(title string, keys []key) []byte {
	root := member(object(keys))
	root = append(ordered{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", title},
	}, root...)
	root = append(root, entry{"patternProperties", ordered{{"^x-", true}}})
	var b bytes.Buffer
	if err := text.WriteJSON(&b, root); err != nil {
		panic(err) // the schema is made of texts, numbers and lists
	}
	return b.Bytes()
}

// ordered is a JSON object that keeps its order.
type ordered []entry

// entry is one member of a JSON object.
type entry struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(e.name))
		b.WriteByte(':')
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(e.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// member returns a shape as JSON Schema. Whatever is not text may be written as
// ${VAR}, as a schema sees the file before it is expanded.
func member(s shape) ordered {
	if s.null {
		s.null = false
		return ordered{{"anyOf", []ordered{member(s), {{"type", "null"}}}}}
	}
	if s.either != nil {
		var members []ordered
		for _, e := range s.either {
			members = append(members, member(e))
		}
		return ordered{{"anyOf", members}}
	}
	if len(s.types) == 0 {
		return ordered{}
	}
	switch t := s.types[0]; t {
	case "object":
		return objectMember(s)
	case "array":
		return ordered{{"type", t}, {"items", member(*s.items)}}
	case "integer":
		limits := ordered{{"type", t}, {"minimum", s.least}}
		if s.enum != nil {
			limits = ordered{{"const", 1}}
		}
		return ordered{{"anyOf", []ordered{limits, variable()}}}
	case "number", "boolean":
		return ordered{{"anyOf", []ordered{{{"type", t}}, variable()}}}
	}
	switch {
	case s.enum != nil:
		return ordered{{"anyOf", []ordered{{{"enum", s.enum}}, variable()}}}
	case s.match == namePattern:
		return ordered{{"anyOf", []ordered{{{"type", "string"}, {"pattern", s.match}}, variable()}}}
	case s.match != "":
		return ordered{{"type", "string"}, {"pattern", s.match}}
	}
	return ordered{{"type", "string"}}
}

// variable is a text with an environment variable in it.
func variable() ordered { return ordered{{"type", "string"}, {"pattern", `\$\{`}} }

func objectMember(s shape) ordered {
	if s.values != nil {
		return ordered{{"type", "object"}, {"additionalProperties", member(*s.values)}}
	}
	var properties ordered
	required := []string{}
	for _, k := range s.keys {
		properties = append(properties, entry{k.name, append(ordered{{"description", k.doc}}, member(k.shape)...)})
		if k.required {
			required = append(required, k.name)
		}
	}
	out := ordered{{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}}
	if s.oneOf != nil {
		out = append(out, entry{"anyOf", text.Each(s.oneOf, func(key string) ordered {
			return ordered{{"required", []string{key}}}
		})})
	}
	return out
}
