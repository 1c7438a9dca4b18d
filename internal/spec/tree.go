package spec

import "gopkg.in/yaml.v3"

// tree is a mapping that overlays change. The mapping that it was made of stays as it is: aliases
// may share it.
type tree struct {
	node  *yaml.Node
	pairs []pair         // those without a value are removed
	at    map[string]int // by name: the index of its pair
	gone  map[string]Pos // by name: where an overlay removed it
	inner map[string]*tree
}

func (d *decoder) tree(n *yaml.Node, what string) *tree {
	n = follow(n)
	t := &tree{node: n, at: map[string]int{}, gone: map[string]Pos{}, inner: map[string]*tree{}}
	if n.Kind == yaml.MappingNode {
		for _, p := range d.pairs(n, what) {
			t.set(p)
		}
	}
	return t
}

// set sets a pair, in the place of what has its name.
func (t *tree) set(p pair) {
	delete(t.inner, p.name)
	if i, ok := t.at[p.name]; ok {
		t.pairs[i] = p
		return
	}
	t.at[p.name] = len(t.pairs)
	t.pairs = append(t.pairs, p)
}

// remove removes the pair with a name, by a value at a place.
func (t *tree) remove(name string, by Pos) {
	t.gone[name] = by
	t.pairs[t.at[name]] = pair{}
	delete(t.at, name)
	delete(t.inner, name)
}

// child returns the tree of the mapping under the key of p. What is not a mapping is replaced by an
// empty one, at the place of p.
func (t *tree) child(d *decoder, p pair) *tree {
	if inner, ok := t.inner[p.name]; ok {
		return inner
	}
	i, ok := t.at[p.name]
	if !ok || t.pairs[i].value.Kind != yaml.MappingNode {
		empty := *p.value
		empty.Content = nil
		d.origin[&empty] = d.at(p.value).File
		t.set(pair{p.name, field{p.key, &empty}})
		i = t.at[p.name]
	}
	inner := d.tree(t.pairs[i].value, p.name)
	t.inner[p.name] = inner
	return inner
}

// built returns the mapping.
func (t *tree) built(d *decoder) *yaml.Node {
	out := *t.node
	out.Content = nil
	d.origin[&out] = d.at(t.node).File
	d.gone[&out] = t.gone
	for _, p := range t.pairs {
		if p.value == nil {
			continue
		}
		value := p.value
		if inner, ok := t.inner[p.name]; ok {
			value = inner.built(d)
		}
		out.Content = append(out.Content, p.key, value)
	}
	return &out
}

func having(trees []*tree, name string) []*tree {
	var out []*tree
	for _, t := range trees {
		if _, ok := t.at[name]; ok {
			out = append(out, t)
		}
	}
	return out
}
