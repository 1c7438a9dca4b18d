package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/topology"
)

// scalar returns n with the environment expanded, and its type worked out again
// if it is not quoted: with N=5, ${N} is a number and "${N}" a text. What is
// expanded is one value; it cannot bring keys or lists. It reports false after
// a problem.
func (d *decoder) scalar(n *yaml.Node) (*yaml.Node, bool) {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${") {
		return n, true
	}
	value, err := expand(n.Value, d.lookup)
	if err != nil {
		d.problem(d.at(n), fmt.Sprintf("%q: %v", n.Value, err), "")
		return n, false
	}
	out := *n
	out.Value = value
	d.origin[&out] = d.at(n).File
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 {
		out.Tag = ""
		if value == "" {
			out.Tag = "!!str" // an empty variable is an empty text, not a missing value
		}
	}
	return &out, true
}

// expand replaces ${VAR} and ${VAR:-default}; $${ stands for ${.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		if !found {
			b.WriteString(s)
			return b.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(literal + "${")
			s = rest
			continue
		}
		b.WriteString(before)
		inner, rest, closed := strings.Cut(rest, "}")
		name, fallback, hasFallback := strings.Cut(inner, ":-")
		if !closed || !isVariable(name) {
			return "", fmt.Errorf("${ must be followed by a variable's name and }, as in ${VAR} or ${VAR:-default}; for a literal ${ write $${")
		}
		switch v, set := lookup(name); {
		case set && (v != "" || !hasFallback):
			b.WriteString(v)
		case hasFallback:
			b.WriteString(fallback)
		default:
			return "", fmt.Errorf("the environment variable %s is not set; set it, or write ${%s:-default}", name, name)
		}
		s = rest
	}
}

func isVariable(name string) bool {
	for i, r := range name {
		begins := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !begins && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// number returns the integer under a key, which must be at least least.
func (d *decoder) number(f fields, name string, least int64) (int64, bool) {
	v, ok := f.values[name]
	if !ok {
		return 0, false
	}
	n, ok := d.scalar(v.value)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
		d.problem(d.at(n), name+" is "+kindOf(n)+", not a whole number", "write a number without quotes")
		return 0, false
	}
	if i < least {
		d.problem(d.at(n), fmt.Sprintf("%s is %d", name, i), fmt.Sprintf("write %d or more", least))
		return 0, false
	}
	return i, true
}

// truth returns the truth value under a key, false if it is not there.
func (d *decoder) truth(f fields, name string) bool {
	v, ok := f.values[name]
	if !ok {
		return false
	}
	n, ok := d.scalar(v.value)
	if !ok {
		return false
	}
	var b bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
		d.problem(d.at(n), name+" is "+kindOf(n)+", not true or false", "write true or false, without quotes")
		return false
	}
	return b
}

// factor returns the number under a key, 2 if it is not there.
func (d *decoder) factor(f fields, name string) (float64, bool) {
	v, ok := f.values[name]
	if !ok {
		return 2, true
	}
	n, ok := d.scalar(v.value)
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" || math.IsNaN(x) ||
		math.IsInf(x, 0) {
		d.problem(d.at(n), name+" is "+kindOf(n)+", not a number", "write a number, such as 2 or 1.5")
		return 0, false
	}
	if x < 1 {
		d.problem(d.at(n), fmt.Sprintf("%s is %s", name, n.Value), "write 1 or more: delays cannot shrink")
		return 0, false
	}
	return x, true
}

// delay returns the delay under a key.
func (d *decoder) delay(f fields, name string) (time.Duration, bool) {
	v, ok := f.values[name]
	if !ok {
		return 0, false
	}
	return d.delayOf(v.value, name)
}

// delayUpTo returns the delay under a key, which may be longer than a TTL.
func (d *decoder) delayUpTo(f fields, name string, limit time.Duration) (time.Duration, bool) {
	v, ok := f.values[name]
	if !ok {
		return 0, false
	}
	return d.limitedDelay(v.value, name, limit)
}

func (d *decoder) delayOf(n *yaml.Node, name string) (time.Duration, bool) {
	return d.limitedDelay(n, name, topology.MaxDelay)
}

func (d *decoder) limitedDelay(n *yaml.Node, name string, limit time.Duration) (time.Duration, bool) {
	n, ok := d.scalar(n)
	if !ok {
		return 0, false
	}
	if n.Kind != yaml.ScalarNode {
		d.problem(d.at(n), name+" is "+kindOf(n)+", not a delay", "write a number and a unit, such as 10s or 1m30s")
		return 0, false
	}
	delay, err := topology.ParseDelayUpTo(n.Value, limit)
	if err != nil {
		d.problem(d.at(n), fmt.Sprintf("%s is %q", name, n.Value), err.Error())
		return 0, false
	}
	return delay, true
}

// arguments returns the table under a key in canonical form, with the nodes of
// its values.
func (d *decoder) arguments(f fields, name string) (topology.Arguments, map[string]field) {
	v, ok := f.values[name]
	if !ok {
		return nil, nil
	}
	args := topology.Arguments{}
	nodes := map[string]field{}
	for _, p := range d.pairs(v.value, name) {
		nodes[p.name] = p.field
		if value, ok := d.any(p.value, p.name); ok {
			args[p.name] = value
		}
	}
	return args, nodes
}

// any returns a node as a canonical value.
func (d *decoder) any(n *yaml.Node, name string) (any, bool) {
	n, ok := d.scalar(n)
	if !ok {
		return nil, false
	}
	var v any
	switch n.Kind {
	case yaml.SequenceNode:
		items := make([]any, len(n.Content))
		for i, c := range n.Content {
			if items[i], ok = d.any(c, name); !ok {
				return nil, false
			}
		}
		return items, true
	case yaml.MappingNode:
		inner := topology.Arguments{}
		for _, p := range d.pairs(n, name) {
			if inner[p.name], ok = d.any(p.value, p.name); !ok {
				return nil, false
			}
		}
		return inner, true
	case yaml.ScalarNode, yaml.AliasNode, yaml.DocumentNode:
	}
	switch n.ShortTag() {
	case "!!null":
		d.problem(d.at(n), name+" has no value", "give it a value, or remove it")
		return nil, false
	case "!!timestamp":
		return n.Value, true
	}
	if err := n.Decode(&v); err != nil {
		d.problem(d.at(n), fmt.Sprintf("%s is %q, which is not text, a number or a boolean", name, n.Value),
			"put it in quotes")
		return nil, false
	}
	c, err := topology.CanonicalValue(v)
	if err != nil {
		d.problem(d.at(n), fmt.Sprintf("%s is %q: %v", name, n.Value, err), "write text, a number, or true or false")
		return nil, false
	}
	return c, true
}
