package spec

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
)

// fields is a mapping with known keys.
type fields struct {
	file   string
	node   *yaml.Node
	what   string // how messages call it: "queue", "backoff \"standard\""
	values map[string]field
	// slips are known keys that another key was probably meant to be.
	slips map[string]bool
}

// field is one key with its value.
type field struct {
	key   *yaml.Node
	value *yaml.Node // an alias is followed already
}

// pair is a key of a mapping with its value.
type pair struct {
	name string
	field
}

// fields reads a mapping and reports keys that are not in the table. With skip,
// keys for which skip(key, "x-") holds are left alone.
func (d *decoder) fields(n *yaml.Node, what string, keys []key, skip func(string, string) bool) fields {
	f := fields{file: d.file, node: n, what: what, values: map[string]field{}}
	for _, p := range d.pairs(n, what) {
		if d.full() {
			break
		}
		if skip != nil && skip(p.name, "x-") {
			continue
		}
		if !known(keys, p.name) {
			names := text.Each(keys, func(k key) string { return k.name })
			fix := "its keys are " + strings.Join(names, ", ")
			if near := d.slip(p.name, names); near != "" {
				fix = fmt.Sprintf("did you mean %q?", near)
				if f.slips == nil {
					f.slips = map[string]bool{}
				}
				f.slips[near] = true
			}
			d.problem(d.at(p.key), fmt.Sprintf("%s has no key %q", what, p.name), fix)
			continue
		}
		if d.isEmpty(p) {
			continue
		}
		f.values[p.name] = p.field
	}
	for _, k := range keys {
		if _, ok := f.values[k.name]; !ok && k.required && !f.slips[k.name] && !d.mentions(n, k.name) {
			d.problem(d.at(n), fmt.Sprintf("%s has no %s", what, k.name), howToAdd(k))
		}
	}
	return f
}

// slip returns the key of names that name was probably meant to be, or "".
func (d *decoder) slip(name string, names []string) string {
	if word := meant(name); slices.Contains(names, word) {
		return word
	}
	return d.nearest(name, names)
}

// howToAdd says how to give a key that is missing.
func howToAdd(k key) string {
	if k.name == "version" {
		return "add the line: version: 1"
	}
	return "add " + k.name + ": …"
}

func known(keys []key, name string) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return k.name == name })
}

// mentions reports whether the mapping names the key, whatever its value.
func (d *decoder) mentions(n *yaml.Node, name string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

// isEmpty reports a key without a value: usually a # that began a comment.
func (d *decoder) isEmpty(p pair) bool {
	if p.value.Kind != yaml.ScalarNode || p.value.ShortTag() != "!!null" {
		return false
	}
	fix := "give it a value, or remove the key"
	if p.name == "key" || p.name == "keys" {
		fix = `# begins a comment in YAML: a routing key that begins with # needs quotes: "#"`
	}
	d.problem(d.at(p.key), p.name+" has no value", fix)
	return true
}

// pairs returns the pairs of a mapping, with what merge keys (<<) bring behind
// its own. It reports duplicate keys, and a value that is not a mapping.
func (d *decoder) pairs(n *yaml.Node, what string) []pair {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		d.problem(d.at(n), what+" is "+kindOf(n)+", not a mapping", "write key: value pairs, or {key: value}")
		return nil
	}
	var out []pair
	var merged []*yaml.Node
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := follow(n.Content[i]), follow(n.Content[i+1])
		switch line, twice := first[k.Value]; {
		case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
			merged = append(merged, v)
		case k.Kind != yaml.ScalarNode:
			d.problem(d.at(k), "a key is "+kindOf(k)+", not text", "write the key as text")
		case twice:
			d.problem(d.at(k), fmt.Sprintf("%s has the key %q twice, first on line %d", what, k.Value, line), "keep one")
		default:
			first[k.Value] = k.Line
			out = append(out, pair{k.Value, field{k, v}})
		}
	}
	for _, m := range merged {
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		for _, src := range sources {
			for _, p := range d.pairs(src, "what << merges") {
				if _, own := first[p.name]; !own {
					first[p.name] = p.key.Line
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// follow returns what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// kindOf says what a node is, for messages.
func kindOf(n *yaml.Node) string {
	switch n = follow(n); n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode, yaml.DocumentNode, yaml.AliasNode:
	}
	switch n.ShortTag() {
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return fmt.Sprintf("the number %s", n.Value)
	case "!!bool":
		return fmt.Sprintf("the boolean %s", n.Value)
	default:
		return fmt.Sprintf("the text %q", n.Value)
	}
}

// text returns the text under a key, or "" and false if it is not there or wrong.
func (d *decoder) text(f fields, name string) (string, bool) {
	v, ok := f.values[name]
	if !ok {
		return "", false
	}
	return d.textOf(v.value, name)
}

// textOf returns a node as text. It refuses a number or a boolean: 010 and yes are rarely what
// the author meant.
func (d *decoder) textOf(n *yaml.Node, name string) (string, bool) {
	n, ok := d.scalar(n)
	switch {
	case !ok:
		return "", false
	case n.Kind != yaml.ScalarNode:
		d.problem(d.at(n), name+" is "+kindOf(n)+", not text", "write text")
		return "", false
	case n.ShortTag() == "!!int" || n.ShortTag() == "!!float" || n.ShortTag() == "!!bool" || n.ShortTag() == "!!null":
		d.problem(d.at(n), name+" is "+kindOf(n)+", not text", fmt.Sprintf("put it in quotes: %q", n.Value))
		return "", false
	}
	return n.Value, true
}

// word returns the text under a key, which must be one of words.
func (d *decoder) word(f fields, name string, words []string) (string, bool) {
	s, ok := d.text(f, name)
	if !ok {
		return "", false
	}
	return s, d.among(f.values[name].value, name, s, words)
}

// among reports s, the value of a key, unless it is one of words.
func (d *decoder) among(n *yaml.Node, name, s string, words []string) bool {
	if slices.Contains(words, s) {
		return true
	}
	d.problem(d.at(n), fmt.Sprintf("%s is %q", name, s), d.didYouMean(s, words, "write "+text.Or(words)))
	return false
}

// list returns the items under a key, or nil.
func (d *decoder) list(f fields, name string) []*yaml.Node {
	v, ok := f.values[name]
	if !ok {
		return nil
	}
	if v.value.Kind != yaml.SequenceNode {
		d.problem(d.at(v.value), name+" is "+kindOf(v.value)+", not a list",
			"write a list: [a, b], or one line with - per entry")
		return nil
	}
	return text.Each(v.value.Content, follow)
}

// pos returns the place of the value under a key, or of the whole mapping.
func (d *decoder) pos(f fields, name string) Pos {
	if v, ok := f.values[name]; ok {
		return d.at(v.value)
	}
	return d.at(f.node)
}
