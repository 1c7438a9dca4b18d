package decode

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// xml reads the body as XML, if the content type says so or it begins like XML.
func (r *reading) xml(media string) bool {
	body := bytes.TrimPrefix(r.body, []byte(bom))
	declared := isXML(media)
	if !declared && !begins(body, "<") {
		return false
	}
	root, value, err := parseXML(body)
	if err != nil {
		if declared || errors.Is(err, errDeep) || errors.Is(err, errMany) {
			r.note("the body was not read as XML: %v", err)
		}
		return false
	}
	r.Format, r.Value, r.Tree, r.Inside = XML, value, true, root
	r.Text = indentXML(body)
	if r.Type == "" {
		r.Type = root
	}
	return true
}

// element is an element of XML that is being read.
type element struct {
	name string
	text strings.Builder
	// members are attributes, as @name, and child elements. An element that is there several
	// times is a list.
	members map[string]any
}

// parseXML returns the name of the root element and its content as a tree.
func parseXML(b []byte) (string, any, error) {
	dec := xml.NewDecoder(bytes.NewReader(b))
	dec.CharsetReader = charset
	left := newBudget()
	var open []*element
	root, value, found := "", any(nil), false
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) && found && len(open) == 0 {
			return root, value, nil
		}
		if err != nil {
			return "", nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			switch {
			case found && len(open) == 0:
				return "", nil, errors.New("it has a second root element")
			case len(open) == MaxDepth:
				return "", nil, errDeep
			case !left.spend(1 + len(t.Attr)):
				return "", nil, errMany
			}
			open, found = append(open, newElement(t)), true
		case xml.EndElement:
			last := open[len(open)-1]
			if open = open[:len(open)-1]; len(open) == 0 {
				root, value = last.name, last.value()
				continue
			}
			open[len(open)-1].add(last.name, last.value())
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text.Write(t)
			}
		}
	}
}

func newElement(t xml.StartElement) *element {
	e := &element{name: t.Name.Local, members: map[string]any{}}
	for _, a := range t.Attr {
		if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
			e.members["@"+a.Name.Local] = a.Value
		}
	}
	return e
}

func (e *element) add(name string, value any) {
	switch before := e.members[name].(type) {
	case nil:
		e.members[name] = value
	case []any:
		e.members[name] = append(before, value)
	default:
		e.members[name] = []any{before, value}
	}
}

// value returns the text of an element that has nothing else, and otherwise its members.
func (e *element) value() any {
	text := strings.TrimSpace(e.text.String())
	if len(e.members) == 0 {
		return text
	}
	if text != "" {
		e.members["#text"] = text
	}
	return e.members
}

// charset reads the character sets that XML of older programs comes in.
func charset(label string, in io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "us-ascii", "ascii":
		return in, nil
	case "iso-8859-1", "latin1":
		b, err := io.ReadAll(in)
		runes := make([]rune, len(b))
		for i, c := range b {
			runes[i] = rune(c)
		}
		return strings.NewReader(string(runes)), err
	}
	return nil, fmt.Errorf("dlxctl does not read the character set %q", label)
}

// indentXML shows XML with a line for each element, if it is written without line breaks.
func indentXML(b []byte) string {
	if bytes.Contains(bytes.TrimSpace(b), []byte("\n")) {
		return clean(string(b), false)
	}
	var out strings.Builder
	dec := xml.NewDecoder(bytes.NewReader(b))
	dec.CharsetReader = charset
	depth, leaf := 0, false
	for begin := int64(0); ; begin = dec.InputOffset() {
		token, err := dec.RawToken()
		if err != nil {
			return clean(strings.TrimSpace(out.String()), false)
		}
		raw := b[begin:dec.InputOffset()]
		switch token.(type) {
		case xml.StartElement:
			newLine(&out, depth)
			depth, leaf = depth+1, true
		case xml.EndElement:
			if depth--; !leaf && len(raw) > 0 {
				newLine(&out, depth)
			}
			leaf = false
		case xml.CharData:
		default:
			newLine(&out, depth)
		}
		out.Write(raw)
	}
}

func newLine(out *strings.Builder, depth int) {
	out.WriteByte('\n')
	for range min(max(depth, 0), MaxDepth) {
		out.WriteString("  ")
	}
}
