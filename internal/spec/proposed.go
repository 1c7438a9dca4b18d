package spec

import (
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
)

// successorKeys are the keys of an external entry that change when its queue gets a successor:
// those that import proposes in comments.
func successorKeys() []string {
	return []string{
		"name", "replaces", "external", "type", "deliveryLimit", "arguments", "deadLetterBy", "backoff", "dead",
	}
}

func isExternal(entry *yaml.Node) bool {
	v := valueOf(entry, "external")
	return v != nil && v.Value == "true"
}

// adopted returns the text of a file in which an external entry, already renamed, is managed:
// without external, with dead-lettering by arguments, and with the lines that import proposes for
// its successor. Without such lines it has the backoff, unless that is empty. Other comments stay.
// renamed is the text before, and i the index of the entry. It reports false if the text cannot be
// edited so.
func adopted(renamed string, i int, legacy, backoff string) (edited string, ok bool) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(renamed), &doc) != nil || len(doc.Content) == 0 {
		return "", false
	}
	entries := members(valueOf(doc.Content[0], "queues"))
	lines := strings.SplitAfter(renamed, "\n")
	if i >= len(entries) || !isExternal(entries[i]) || entries[i].Line > len(lines) {
		return "", false
	}
	entry := entries[i]
	if entry.Style&yaml.FlowStyle != 0 {
		return adoptedFlow(lines, entry, backoff)
	}
	first, last := entry.Line-1, min(lastLine(entry), len(lines))
	indent := strings.Repeat(" ", entry.Column-1)
	var out []string
	proposed := false
	had := func(key string) bool { return valueOf(entry, key) != nil && key != "deadLetterBy" }
	for n := first; n < last; n++ {
		line := lines[n]
		key, rest, isKey := strings.Cut(strings.TrimSpace(line), ":")
		comment, isComment := strings.CutPrefix(line, indent+"# ")
		switch {
		case isKey && strings.HasPrefix(line, indent) && (key == "external" || key == "deadLetterBy"):
			if _, note, noted := strings.Cut(rest, "#"); noted {
				out = append(out, indent+"#"+note+"\n")
			}
		case isComment && strings.TrimSpace(comment) == "replaces: "+text.YAML(legacy):
			proposed = true // that line exists already
		case isComment && proposed && isProposal(comment):
			if key, _, _ := strings.Cut(comment, ":"); !had(key) {
				out = append(out, indent+comment)
			}
		default:
			out = append(out, line)
			proposed = false
		}
	}
	joined := strings.Join(slices.Concat(lines[:first], out), "")
	if !hasProposal(lines[first:last], indent, legacy) {
		joined = endsLine(joined) + indent + "deadLetterBy: " + byArguments + "\n"
		if backoff != "" && !had("backoff") {
			joined += indent + "backoff: " + text.YAML(backoff) + "\n"
		}
	}
	return joined + strings.Join(lines[last:], ""), true
}

// isProposal reports whether a comment sets a key of a successor, or continues one that does.
func isProposal(comment string) bool {
	key, _, isKey := strings.Cut(comment, ":")
	return isKey && slices.Contains(successorKeys(), key) || strings.HasPrefix(comment, " ")
}

// hasProposal reports whether lines of an entry have the proposal of import, as comments.
func hasProposal(lines []string, indent, legacy string) bool {
	return slices.Contains(lines, indent+"# replaces: "+text.YAML(legacy)+"\n")
}

// adoptedFlow is adopted for an entry in braces that says nothing of dead-lettering.
func adoptedFlow(lines []string, entry *yaml.Node, backoff string) (string, bool) {
	i := slices.IndexFunc(entry.Content, func(n *yaml.Node) bool { return n.Value == "external" })
	key, value := entry.Content[i], entry.Content[i+1]
	if valueOf(entry, "deadLetterBy") != nil || key.Line != value.Line || key.Line > len(lines) {
		return "", false
	}
	added := "deadLetterBy: " + byArguments
	if backoff != "" && valueOf(entry, "backoff") == nil {
		added += ", backoff: " + text.YAML(backoff)
	}
	line := []rune(lines[key.Line-1])
	end := value.Column - 1 + len([]rune(value.Value))
	if end > len(line) {
		return "", false
	}
	lines[key.Line-1] = string(line[:key.Column-1]) + added + string(line[end:])
	return strings.Join(lines, ""), true
}

// Proposed returns the external queues of files whose names match, and for which comments of import
// propose a successor, in their order.
func Proposed(sources []Source, match *regexp.Regexp) []string {
	var out []string
	sources, _ = separate(sources)
	for _, f := range sources {
		var doc yaml.Node
		if yaml.Unmarshal(f.Data, &doc) != nil || len(doc.Content) == 0 {
			continue
		}
		lines := strings.SplitAfter(string(f.Data), "\n")
		for _, entry := range members(valueOf(doc.Content[0], "queues")) {
			name := valueOf(entry, "name")
			if name == nil || !isExternal(entry) || entry.Line > len(lines) || !match.MatchString(name.Value) {
				continue
			}
			of := lines[entry.Line-1 : min(lastLine(entry), len(lines))]
			if hasProposal(of, strings.Repeat(" ", entry.Column-1), name.Value) {
				out = append(out, name.Value)
			}
		}
	}
	return out
}

// backoffOf returns the backoff that a successor names in these files: none if their defaults have
// one, else the first.
func backoffOf(sources []Source) string {
	if len(defaultsOf(sources, "backoff")) > 0 {
		return ""
	}
	for _, top := range mappingsOf(sources) {
		if list := valueOf(top, "backoff"); list != nil && len(list.Content) > 0 {
			return list.Content[0].Value
		}
	}
	return ""
}

// defaultsOf returns the values that a key has in the defaults of these files.
func defaultsOf(sources []Source, key string) []string {
	var out []string
	for _, top := range mappingsOf(sources) {
		if v := valueOf(valueOf(top, "defaults"), key); v != nil {
			out = append(out, v.Value)
		}
	}
	return out
}

// mappingsOf returns the top level of each of these files that is not an overlay.
func mappingsOf(sources []Source) []*yaml.Node {
	var out []*yaml.Node
	sources, _ = separate(sources)
	for _, f := range sources {
		var doc yaml.Node
		if yaml.Unmarshal(f.Data, &doc) == nil && len(doc.Content) > 0 {
			out = append(out, doc.Content[0])
		}
	}
	return out
}
