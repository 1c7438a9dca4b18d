package deadletter

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"github.com/dlxctl/dlxctl/internal/redact"
)

// guard changes a checked expression so that it cannot fail on what a message does not have,
// and refuses what a filter does not need.
type guard struct {
	uses map[string]bool
	// values are the names of functions that are not called.
	values []*ast.IdentifierNode
	err    error
}

// check returns what is refused, once all parts are seen.
func (g *guard) check() error {
	for _, n := range g.values {
		g.refuse(n, fmt.Sprintf("%s is a function; write %[1]s(...)", n.Value))
	}
	return g.err
}

// Visit implements [ast.Visitor]. It sees the parts of an expression before the whole.
func (g *guard) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		g.uses[n.Value] = true
		if n.Value == "$env" {
			g.refuse(n, "$env is not known here")
		}
		if slices.Contains(functionNames(), n.Value) {
			g.values = append(g.values, n)
		}
	case *ast.MemberNode:
		if n.Method {
			g.refuse(n, "values have no methods; a filter knows the functions "+fmt.Sprint(functionNames()))
		}
		ast.Patch(node, call("#at", n.Node, n.Property))
	case *ast.BinaryNode:
		g.binary(node, n)
	case *ast.UnaryNode:
		switch n.Operator {
		case "!", "not":
			n.Node = call("#true", n.Node)
		case "-":
			ast.Patch(node, call("#negative", n.Node))
		}
	case *ast.ConditionalNode:
		n.Cond = call("#true", n.Cond)
	case *ast.CallNode:
		if f, ok := n.Callee.(*ast.IdentifierNode); ok && !strings.HasPrefix(f.Value, "#") {
			g.values = slices.DeleteFunc(g.values, func(n *ast.IdentifierNode) bool { return n == f })
			n.Arguments = append([]ast.Node{&ast.IdentifierNode{Value: "#state"}}, n.Arguments...)
		}
	case *ast.BuiltinNode:
		g.predicate(n)
	case *ast.SliceNode:
		g.refuse(n, "parts of a text or a list are not known here; use contains, startsWith, endsWith or matches")
	}
}

// predicate makes a function over a list take what is not a list as an empty one, and what its
// condition returns as false unless it is true.
func (g *guard) predicate(n *ast.BuiltinNode) {
	if !slices.Contains(predicates(), n.Name) {
		g.refuse(n, "unknown name "+n.Name) // the parser knows it even where it is disabled
		return
	}
	n.Arguments[0] = call("#list", n.Arguments[0])
	for _, argument := range n.Arguments[1:] {
		if p, ok := argument.(*ast.PredicateNode); ok && n.Name != "map" {
			p.Node = call("#true", p.Node)
		}
	}
	if n.Name == "count" && len(n.Arguments) == 1 {
		n.Arguments = append(n.Arguments, &ast.PredicateNode{Node: call("#true", &ast.PointerNode{})})
	}
}

func (g *guard) binary(node *ast.Node, n *ast.BinaryNode) {
	switch n.Operator {
	case "and", "&&", "or", "||":
		n.Left, n.Right = call("#true", n.Left), call("#true", n.Right)
	case "??":
	case "==", "!=":
		if isNil(n.Left) || isNil(n.Right) {
			return // the expression asks whether a value is missing
		}
		if isMask(n.Left) || isMask(n.Right) {
			return // it asks whether a value is masked
		}
		ast.Patch(node, call("#"+n.Operator, n.Left, n.Right))
	case "matches":
		pattern, ok := n.Right.(*ast.StringNode)
		if !ok {
			g.refuse(n, `matches needs a regular expression in quotes, as in error matches "(?i)timeout"`)
			return
		}
		re, err := regexp.Compile(pattern.Value)
		if err != nil {
			g.refuse(n, err.Error())
			return
		}
		ast.Patch(node, call("#matches", n.Left, &ast.ConstantNode{Value: re}))
	case "<", "<=", ">", ">=", "contains", "startsWith", "endsWith", "in", "+", "-", "*", "/", "%":
		ast.Patch(node, call("#"+n.Operator, n.Left, n.Right))
	default:
		g.refuse(n, fmt.Sprintf("the operator %q is not known here", n.Operator))
	}
}

func isNil(n ast.Node) bool {
	_, ok := n.(*ast.NilNode)
	return ok
}

func isMask(n ast.Node) bool {
	text, ok := n.(*ast.StringNode)
	return ok && text.Value == redact.Mask
}

// call returns a call of a function of [operators].
func call(name string, args ...ast.Node) *ast.CallNode {
	state := []ast.Node{&ast.IdentifierNode{Value: "#state"}}
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: append(state, args...)}
}

// refuse notes the first part of an expression that is not allowed.
func (g *guard) refuse(n ast.Node, why string) {
	if g.err == nil {
		g.err = &file.Error{Location: n.Location(), Column: n.Location().From, Message: why}
	}
}
