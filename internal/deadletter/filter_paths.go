package deadletter

import (
	"slices"
	"strconv"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"github.com/dlxctl/dlxctl/internal/redact"
)

// Paths are the places in the body and the headers that a filter names and that no message had so
// far. The zero value has none.
type Paths struct{ absent []place }

// place is a place such as body.customer.country.
type place struct {
	text string
	keys []string // from body or headers on
}

// Paths returns the places that the expression names, a place before what is in it.
func (f *Filter) Paths() Paths {
	tree, err := parser.Parse(f.source)
	if err != nil { // it was compiled
		return Paths{}
	}
	var found pathFinder
	ast.Walk(&tree.Node, &found)
	return Paths{found.paths}
}

// See notes what a message has.
func (p *Paths) See(v View) {
	if len(p.absent) == 0 {
		return
	}
	values := map[string]any{"body": v.body(), "headers": v.Headers}
	hidden := v.Masked && !v.Body.Tree && v.Body.Text == redact.Mask
	p.absent = slices.DeleteFunc(p.absent, func(at place) bool {
		if hidden && at.keys[0] == "body" {
			return true // what it has is not known
		}
		var value any = values
		for _, key := range at.keys {
			table, _ := value.(map[string]any)
			inside, ok := table[key]
			if !ok {
				return false
			}
			value = inside
		}
		return true
	})
}

// Absent returns the places that no message has had, without what would be in them.
func (p *Paths) Absent() (out []string) {
	var before []place
	for _, at := range p.absent {
		inside := func(b place) bool { return len(b.keys) < len(at.keys) && slices.Equal(b.keys, at.keys[:len(b.keys)]) }
		if !slices.ContainsFunc(before, inside) && !slices.Contains(out, at.text) {
			out = append(out, at.text)
		}
		before = append(before, at)
	}
	return out
}

// pathFinder finds places in an expression.
type pathFinder struct{ paths []place }

// Visit implements [ast.Visitor]. It sees a place before what is in it.
func (f *pathFinder) Visit(node *ast.Node) {
	if at, ok := pathOf(*node); ok && len(at.keys) > 1 {
		f.paths = append(f.paths, at)
	}
}

// pathOf returns the place that a part of an expression names.
func pathOf(node ast.Node) (place, bool) {
	switch n := node.(type) {
	case *ast.ChainNode:
		return pathOf(n.Node)
	case *ast.IdentifierNode:
		return place{n.Value, []string{n.Value}}, n.Value == "body" || n.Value == "headers"
	case *ast.MemberNode:
		in, ok := pathOf(n.Node)
		key, named := n.Property.(*ast.StringNode)
		if !ok || !named {
			return place{}, false
		}
		text := in.text + "." + key.Value
		if in.text == "headers" {
			text = in.text + "[" + strconv.Quote(key.Value) + "]"
		}
		return place{text, append(slices.Clone(in.keys), key.Value)}, true
	default:
		return place{}, false
	}
}
