package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// document is one file as parsed.
type document struct {
	file string
	root *yaml.Node
}

// overlays changes files by overlays: mappings merge key by key, queues and exchanges by their
// names; other values and lists replace, and null removes a key. Whatever an overlay brings keeps
// its place. An overlay adds no queue, exchange or backoff, so that a typo in a name is an error.
type overlays struct {
	*decoder

	trees  []*tree  // of the files
	home   *tree    // of the file with the name, or the first one
	others []Source // the files of other topologies
	// named are the queues and exchanges of the files, by list and name.
	named map[string]map[string][]*listed
	// backoffs are the names of the backoffs of the files.
	backoffs map[string]bool
	sorted   map[string][]string        // the names, by what they are
	foreign  map[string]map[string]bool // those of other topologies, by what they are
	number   int                        // of the overlay that is being merged, from 1
}

// listed is a queue or exchange in a list of a file.
type listed struct {
	list  *yaml.Node // owned
	index int
	tree  *tree // nil until an overlay changes the entry
	in    int   // the number of the last overlay that changed it, to refuse a second time
	line  int
}

// overlay returns the files as the overlays change them.
func (d *decoder) overlay(files []document, over []Source) []document {
	var changes []document
	for _, f := range over {
		d.file = f.Name
		if root := d.parse(f); root != nil && len(root.Content) > 0 {
			d.mark(root, f.Name)
			d.overlays[f.Name] = true
			changes = append(changes, document{f.Name, root})
		}
	}
	if len(files) == 0 || len(changes) == 0 {
		return files
	}
	o := overlays{
		decoder: d, others: over[0].Others, backoffs: map[string]bool{},
		named:  map[string]map[string][]*listed{"queues": {}, "exchanges": {}},
		sorted: map[string][]string{}, foreign: map[string]map[string]bool{},
	}
	for _, f := range files {
		d.file = f.file
		d.mark(f.root, f.file)
		t := d.tree(f.root, "the file")
		o.trees = append(o.trees, t)
		if _, named := t.at["name"]; named && o.home == nil {
			o.home = t
		}
		o.index(t)
	}
	if o.home == nil {
		o.home = o.trees[0]
	}
	for i, change := range changes {
		o.number, d.file = i+1, change.file
		o.apply(change.root)
	}
	o.finish()
	for i := range files {
		files[i].root = o.trees[i].built(d)
	}
	return files
}

// index notes the names of a file.
func (o *overlays) index(t *tree) {
	for _, section := range []string{"queues", "exchanges"} {
		i, ok := t.at[section]
		if !ok || t.pairs[i].value.Kind != yaml.SequenceNode {
			continue
		}
		list := *t.pairs[i].value
		list.Content = slices.Clone(list.Content)
		o.origin[&list] = o.at(t.pairs[i].value).File
		t.pairs[i].value = &list
		for n, item := range list.Content {
			if name := nameOf(item, o.lookup); name != "" {
				o.named[section][name] = append(o.named[section][name], &listed{list: &list, index: n})
			}
		}
	}
	if i, ok := t.at["backoff"]; ok && t.pairs[i].value.Kind == yaml.MappingNode {
		for _, p := range o.pairs(t.pairs[i].value, "backoff") {
			o.backoffs[p.name] = true
		}
	}
}

// matchPrefix is before the pattern of an entry with match, where others have their name.
const matchPrefix = "match: "

// nameOf returns by what an overlay finds a queue or exchange: by its name, or by the pattern of an
// entry with match. Empty: it has neither.
func nameOf(n *yaml.Node, lookup func(string) (string, bool)) string {
	if name := quietText(valueOf(follow(n), "name"), lookup); name != "" {
		return name
	}
	if pattern := quietText(valueOf(follow(n), "match"), lookup); pattern != "" {
		return matchPrefix + pattern
	}
	return ""
}

// quietText returns a text with its variables, for names that are read again. It returns "" for
// other values.
func quietText(n *yaml.Node, lookup func(string) (string, bool)) string {
	if n == nil || follow(n).Kind != yaml.ScalarNode {
		return ""
	}
	if s, err := expand(follow(n).Value, lookup); err == nil {
		return s
	}
	return ""
}

func (o *overlays) apply(root *yaml.Node) {
	for _, p := range o.pairs(root, "the overlay") {
		switch {
		case strings.HasPrefix(p.name, "x-"):
		case p.name == "version":
			x := fields{node: root, values: map[string]field{"version": p.field}}
			if v, ok := o.decoder.number(x, "version", 1); ok && v != 1 {
				o.problem(o.at(p.value), fmt.Sprintf("version is %d", v), "this release reads version 1 only")
			}
		case p.name == "queues" || p.name == "exchanges":
			o.entries(p)
		case p.name == "backoff" && p.value.Kind == yaml.MappingNode:
			o.backoff(p)
		case p.name == "defaults" && p.value.Kind == yaml.MappingNode:
			o.defaults(p)
		case p.value.Kind == yaml.MappingNode:
			o.set(o.trees, p)
		default:
			o.head(p)
		}
	}
}

// head sets a value at the top of the files that have one. A key that only one file may set stays
// where it is, so that two files with it are still an error.
func (o *overlays) head(p pair) {
	if p.name == "backoff" && isNullWord(p.value) {
		for name := range o.backoffs {
			o.goneBackoffs[name] = o.at(p.value)
		}
	}
	if p.name == "removed" || p.name == "accept" || isNullWord(p.value) {
		o.set(o.trees, p)
		return
	}
	holders := having(o.trees, p.name)
	if len(holders) == 0 {
		o.set([]*tree{o.home}, p)
	}
	for _, t := range holders {
		i := t.at[p.name]
		t.set(pair{p.name, field{t.pairs[i].key, p.value}})
	}
}

// backoff merges backoffs by name.
func (o *overlays) backoff(p pair) {
	holders := having(o.trees, "backoff")
	if len(holders) == 0 {
		holders = []*tree{o.home}
	}
	var inner []*tree
	for _, t := range holders {
		inner = append(inner, t.child(o.decoder, p))
	}
	for _, b := range o.pairs(p.value, "backoff") {
		switch {
		case o.backoffs[b.name]:
			o.set(inner, b)
			if isNullWord(b.value) {
				o.goneBackoffs[b.name] = o.at(b.value)
			}
		case o.full():
			return
		default:
			o.unknown("backoff", b.name, b.key)
		}
	}
}

// defaults sets defaults of the common file, and of each file that sets them itself.
func (o *overlays) defaults(p pair) {
	home := o.home.child(o.decoder, p)
	for _, value := range o.pairs(p.value, "defaults") {
		all := []*tree{home}
		for _, t := range having(o.trees, "defaults") {
			if i := t.at["defaults"]; t != o.home && t.pairs[i].value.Kind == yaml.MappingNode {
				if own := t.child(o.decoder, p); len(having([]*tree{own}, value.name)) > 0 {
					all = append(all, own)
				}
			}
		}
		for _, t := range all {
			o.set([]*tree{t}, value)
		}
	}
}

// entries merges queues or exchanges by name, and entries with match by their pattern.
func (o *overlays) entries(p pair) {
	what := strings.TrimSuffix(p.name, "s")
	if isNullWord(p.value) {
		o.problem(o.at(p.value), p.name+" is null", "an overlay removes no "+what+": leave out the file that has it")
		return
	}
	section := fields{values: map[string]field{p.name: p.field}}
	for _, n := range o.list(section, p.name) {
		if o.full() {
			break
		}
		pairs := o.pairs(n, what)
		prefix, i := "", slices.IndexFunc(pairs, func(p pair) bool { return p.name == "name" })
		if i < 0 && what == "queue" {
			prefix, i = matchPrefix, slices.IndexFunc(pairs, func(p pair) bool { return p.name == "match" })
		}
		if i < 0 {
			if n.Kind == yaml.MappingNode {
				o.problem(o.at(n), what+" has no name", "add name: …")
			}
			continue
		}
		name, ok := o.textOf(pairs[i].value, pairs[i].name)
		if !ok {
			continue
		}
		name = prefix + name
		found := o.named[p.name][name]
		if len(found) == 0 {
			o.unknown(what, name, pairs[i].value)
			continue
		}
		for _, e := range found {
			o.change(e, what, name, slices.Delete(slices.Clone(pairs), i, i+1), pairs[i].value)
		}
	}
}

// change merges what an overlay says of one queue or exchange.
func (o *overlays) change(e *listed, what, name string, pairs []pair, at *yaml.Node) {
	if e.in == o.number {
		o.problem(o.at(at), fmt.Sprintf("the overlay has the %s %q twice, first on line %d", what, name, e.line), "keep one")
		return
	}
	e.in, e.line = o.number, at.Line
	if e.tree == nil {
		e.tree = o.tree(e.list.Content[e.index], what)
	}
	for _, p := range pairs {
		o.set([]*tree{e.tree}, p)
	}
}

// unknown refuses a name that no file has, unless another topology of the same command has it.
func (o *overlays) unknown(what, name string, at *yaml.Node) {
	if o.elsewhere(what)[name] {
		return
	}
	if o.sorted[what] == nil {
		o.sorted[what] = slices.Sorted(maps.Keys(o.named[what+"s"]))
		if what == "backoff" {
			o.sorted[what] = slices.Sorted(maps.Keys(o.backoffs))
		}
	}
	o.problem(o.at(at), fmt.Sprintf("no file has the %s %q", what, name), o.didYouMean(name, o.sorted[what],
		fmt.Sprintf("an overlay changes what the files have: write a new %s into a file, and pass it with -f", what)))
}

// elsewhere returns the names that other topologies have.
func (o *overlays) elsewhere(what string) map[string]bool {
	if o.foreign[what] == nil {
		o.foreign[what] = map[string]bool{}
		for _, other := range o.others {
			for _, name := range namesIn(other, what, o.lookup) {
				o.foreign[what][name] = true
			}
		}
	}
	return o.foreign[what]
}

// namesIn returns the names of the queues, exchanges or backoffs of a file.
func namesIn(f Source, what string, lookup func(string) (string, bool)) []string {
	var doc yaml.Node
	if yaml.Unmarshal(f.Data, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	var names []string
	if what == "backoff" {
		if list := valueOf(doc.Content[0], what); list != nil && list.Kind == yaml.MappingNode {
			for i := 0; i < len(list.Content); i += 2 {
				names = append(names, list.Content[i].Value)
			}
		}
		return names
	}
	for _, n := range members(valueOf(doc.Content[0], what+"s")) {
		names = append(names, nameOf(n, lookup))
	}
	return names
}

// set merges a value into mappings that join: into those that have the key, or else into the first.
func (o *overlays) set(trees []*tree, p pair) {
	holders := having(trees, p.name)
	switch {
	case isNullWord(p.value):
		for _, t := range holders {
			t.remove(p.name, o.at(p.value))
		}
		return
	case p.value.Kind == yaml.ScalarNode && p.value.ShortTag() == "!!null":
		o.problem(o.at(p.key), p.name+" has no value", "give it a value, or write null to remove what the files have; a text that begins with # needs quotes")
		return
	case len(holders) == 0:
		holders = trees[:1]
	}
	if p.value.Kind == yaml.MappingNode {
		var inner []*tree
		for _, t := range holders {
			inner = append(inner, t.child(o.decoder, p))
		}
		for _, q := range o.pairs(p.value, p.name) {
			o.set(inner, q)
		}
		return
	}
	holders[0].set(p)
	for _, t := range holders[1:] {
		t.remove(p.name, o.at(p.value))
	}
}

// finish puts the changed queues and exchanges into their lists.
func (o *overlays) finish() {
	for _, entries := range o.named {
		for _, list := range entries {
			for _, e := range list {
				if e.tree != nil {
					e.list.Content[e.index] = e.tree.built(o.decoder)
				}
			}
		}
	}
}

func separate(sources []Source) (files, over []Source) {
	for _, s := range sources {
		if s.Overlay {
			over = append(over, s)
		} else {
			files = append(files, s)
		}
	}
	return files, over
}
