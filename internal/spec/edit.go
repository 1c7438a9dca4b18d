package spec

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Replace returns a file in which the queue legacy is called successor and
// replaces it, edited in place: comments and layout stay as they are. A queue that
// is external, as import writes them, becomes one that dlxctl manages, with
// dead-lettering by arguments: by the lines that import proposes in comments, or
// else with a backoff, unless that is empty. It also returns the lines that
// changed. It reports false if the file has no such queue, or writes its name in a
// way that cannot be edited: by an alias or a variable.
func Replace(f Source, legacy, successor, backoff string) (edited []byte, changed string, ok bool) {
	var doc yaml.Node
	if yaml.Unmarshal(f.Data, &doc) != nil || len(doc.Content) == 0 {
		return nil, "", false
	}
	for i, entry := range members(valueOf(doc.Content[0], "queues")) {
		name := valueOf(entry, "name")
		if name == nil || name.Kind != yaml.ScalarNode || name.Value != legacy || valueOf(entry, "replaces") != nil {
			continue
		}
		keys := []string{"name", "replaces"}
		edited, changed, ok := replaceName(f, entry, name, legacy, successor)
		if ok && isExternal(entry) {
			keys = successorKeys()
			edited, ok = adopted(edited, i, legacy, backoff)
		}
		if !ok || !replaced(&doc, []byte(edited), i, legacy, successor, keys) {
			return nil, "", false
		}
		return []byte(edited), changed, true
	}
	return nil, "", false
}

// replaced reports whether edited differs from the file before in nothing but
// the entry i of queues, and there in these keys alone.
func replaced(before *yaml.Node, edited []byte, i int, legacy, successor string, keys []string) bool {
	var after yaml.Node
	if yaml.Unmarshal(edited, &after) != nil || len(after.Content) == 0 {
		return false
	}
	entries := members(valueOf(after.Content[0], "queues"))
	if i >= len(entries) {
		return false
	}
	name, replaces := valueOf(entries[i], "name"), valueOf(entries[i], "replaces")
	if name == nil || replaces == nil || name.Value != successor || replaces.Value != legacy || isExternal(entries[i]) {
		return false
	}
	without := func(entry *yaml.Node) *yaml.Node {
		rest := *entry
		rest.Content = nil
		for n := 0; n+1 < len(entry.Content); n += 2 {
			if !slices.Contains(keys, entry.Content[n].Value) {
				rest.Content = append(rest.Content, entry.Content[n], entry.Content[n+1])
			}
		}
		return &rest
	}
	old := members(valueOf(before.Content[0], "queues"))
	entry, was := *entries[i], *old[i]
	*entries[i], *old[i] = *without(entries[i]), *without(old[i])
	equal := same(before, &after)
	*entries[i], *old[i] = entry, was
	return equal
}

// same reports whether two nodes hold the same values, whatever their layout.
func same(a, b *yaml.Node) bool {
	if a.Kind == yaml.AliasNode && b.Kind == yaml.AliasNode {
		return a.Value == b.Value
	}
	return a.Kind == b.Kind && a.Value == b.Value && a.ShortTag() == b.ShortTag() &&
		slices.EqualFunc(a.Content, b.Content, same)
}

// valueOf returns the value of a key of a mapping, nil if there is none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func members(list *yaml.Node) []*yaml.Node {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}

func replaceName(f Source, entry, name *yaml.Node, legacy, successor string) (edited, changed string, ok bool) {
	lines := strings.SplitAfter(string(f.Data), "\n")
	if name.Line > len(lines) { // the parser knows other line breaks too
		return "", "", false
	}
	line := []rune(lines[name.Line-1])
	if name.Column > len(line) {
		return "", "", false
	}
	rest := string(line[name.Column-1:])
	old := ""
	for _, written := range []string{legacy, `"` + legacy + `"`, "'" + legacy + "'"} {
		if strings.HasPrefix(rest, written) {
			old = written
		}
	}
	if old == "" {
		return "", "", false
	}
	before, after := string(line[:name.Column-1]), strings.TrimPrefix(rest, old)
	if entry.Style&yaml.FlowStyle != 0 {
		lines[name.Line-1] = before + text.YAML(successor) + ", replaces: " + text.YAML(legacy) + after
	} else {
		indent := strings.Repeat(" ", entry.Column-1)
		if !strings.HasSuffix(after, "\n") {
			after += "\n"
		}
		lines[name.Line-1] = before + text.YAML(successor) + after + indent + "replaces: " + text.YAML(legacy) + "\n"
	}
	return strings.Join(lines, ""), strings.TrimRight(lines[name.Line-1], "\n"), true
}

// Entry writes an entry of queues, on one line: a queue that replaces legacy and
// has these bindings. It has what the defaults of the files lack for a successor.
func Entry(sources []Source, name, legacy string, bindings []topology.Binding) (string, error) {
	type source struct {
		Exchange  string         `yaml:"exchange"`
		Match     string         `yaml:"match,omitempty"`
		Headers   map[string]any `yaml:"headers,omitempty,flow"`
		Key       string         `yaml:"key,omitempty"`
		Keys      []string       `yaml:"keys,omitempty,flow"`
		Arguments map[string]any `yaml:"arguments,omitempty,flow"`
	}
	entry := struct {
		Name     string   `yaml:"name"`
		Replaces string   `yaml:"replaces"`
		By       string   `yaml:"deadLetterBy,omitempty"`
		Backoff  string   `yaml:"backoff,omitempty"`
		Bindings []source `yaml:"bindings,omitempty,flow"`
	}{Name: name, Replaces: legacy, Backoff: backoffOf(sources)}
	if slices.Contains(defaultsOf(sources, "deadLetterBy"), unmanaged) {
		entry.By = byArguments // as a successor must have
	}
	keys := map[string]int{} // by exchange: the index of its entry
	for _, b := range bindings {
		args := b.Arguments.Without(topology.ArgManagedBy)
		match, _ := args[topology.ArgMatch].(string)
		headers := args.WithoutX()
		exact := len(headers) > 0 && len(headers) == len(args)-1 && b.Key == "" // match and headers say it all
		if exact && (match == "all" || match == "any") {
			entry.Bindings = append(entry.Bindings, source{Exchange: b.Source, Match: match, Headers: headers})
			continue
		}
		if len(args) > 0 { // of an exchange of any type
			entry.Bindings = append(entry.Bindings, source{Exchange: b.Source, Key: b.Key, Arguments: args})
			continue
		}
		i, known := keys[b.Source]
		if !known {
			i = len(entry.Bindings)
			keys[b.Source] = i
			entry.Bindings = append(entry.Bindings, source{Exchange: b.Source})
		}
		if b.Key != "" {
			entry.Bindings[i].Keys = append(entry.Bindings[i].Keys, b.Key)
		}
	}
	var doc yaml.Node
	if err := doc.Encode(entry); err != nil {
		return "", err
	}
	doc.Style = yaml.FlowStyle
	out, err := yaml.Marshal(&doc)
	return strings.TrimSpace(string(out)), err
}
