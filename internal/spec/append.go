package spec

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// HasList reports whether a file has a list under a top-level key, such as queues.
func HasList(f Source, key string) bool {
	var doc yaml.Node
	if yaml.Unmarshal(f.Data, &doc) != nil || len(doc.Content) == 0 {
		return false
	}
	list := valueOf(doc.Content[0], key)
	return list != nil && list.Kind == yaml.SequenceNode
}

// Append returns a file with one more entry, written on one line, at the end of the list under a
// top-level key. A file without that key gets the list at its end. Comments and layout stay. It
// reports false if the text cannot be edited so that nothing but this entry changes.
func Append(f Source, key, entry string) (edited []byte, ok bool) {
	var doc yaml.Node
	if yaml.Unmarshal(f.Data, &doc) != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, false
	}
	var tries []string
	switch list := valueOf(doc.Content[0], key); {
	case list == nil && doc.Content[0].Style&yaml.FlowStyle == 0:
		tries = []string{endsLine(string(f.Data)) + key + ":\n  - " + entry + "\n"}
	case list == nil || list.Kind != yaml.SequenceNode:
		return nil, false
	case list.Style&yaml.FlowStyle != 0:
		tries = inFlow(string(f.Data), list, entry)
	default:
		tries = []string{inBlock(string(f.Data), list, entry)}
	}
	for _, text := range tries {
		if appended(&doc, []byte(text), key, entry) {
			return []byte(text), true
		}
	}
	return nil, false
}

// endsLine returns a text whose last line is complete.
func endsLine(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// inBlock adds an entry behind the last one of a list with a dash before each, and behind all
// lines that are indented deeper than these dashes.
func inBlock(text string, list *yaml.Node, entry string) string {
	lines := strings.SplitAfter(endsLine(text), "\n")
	end := min(lastLine(list), len(lines)) // the first line behind the entry, from zero
	for i := end; i < len(lines); i++ {
		line := lines[i]
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if strings.TrimSpace(line) == "" {
			continue // it belongs to the entry only if a deeper line follows
		}
		if indent < list.Column {
			break
		}
		end = i + 1
	}
	added := strings.Repeat(" ", list.Column-1) + "- " + entry + "\n"
	return strings.Join(slices.Insert(lines, end, added), "")
}

// lastLine returns the last line on which a node or one of its parts begins.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, part := range n.Content {
		last = max(last, lastLine(part))
	}
	return last
}

// inFlow returns the texts with an entry before each closing bracket behind the beginning of a
// list: which one closes it, only a parser can tell.
func inFlow(text string, list *yaml.Node, entry string) []string {
	lines := strings.SplitAfter(text, "\n")
	if list.Line > len(lines) {
		return nil
	}
	start := len(strings.Join(lines[:list.Line-1], ""))
	var out []string
	for i := start; i < len(text); i++ {
		if text[i] != ']' {
			continue
		}
		before := strings.TrimRight(text[:i], " ")
		for _, glue := range []string{", ", "", " "} {
			out = append(out, before+glue+entry+text[i:])
		}
	}
	return out
}

// appended reports whether edited differs from the file before in nothing but entry at the end of
// the list under key.
func appended(before *yaml.Node, edited []byte, key, entry string) bool {
	var after, added yaml.Node
	if yaml.Unmarshal(edited, &after) != nil || len(after.Content) == 0 || yaml.Unmarshal([]byte(entry), &added) != nil ||
		len(added.Content) == 0 {
		return false
	}
	root := after.Content[0]
	list := valueOf(root, key)
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 ||
		!same(list.Content[len(list.Content)-1], added.Content[0]) {
		return false
	}
	list.Content = list.Content[:len(list.Content)-1]
	if valueOf(before.Content[0], key) == nil { // the list is new
		root.Content = root.Content[:len(root.Content)-2]
	}
	return same(before, &after)
}
