package importer

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// member is a key of a mapping with its value.
type member struct {
	key   string
	value *yaml.Node
}

// textNode returns a text as a value of a topology file, in which ${ begins a variable. A text that
// a plain scalar cannot have stays on one line, with escapes.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.ReplaceAll(s, "${", "$${")}
	if text.YAMLMisread(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// keyNode returns the key of a mapping. The decoder does not expand variables there.
func keyNode(s string) *yaml.Node {
	n := textNode(s)
	n.Value = s
	return n
}

func trueNode() *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"} }

// mapNode returns a mapping on one line.
func mapNode(members ...member) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, m := range members {
		n.Content = append(n.Content, keyNode(m.key), m.value)
	}
	return n
}

// listNode returns a list on one line.
func listNode(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: items}
}

func textsNode(list []string) *yaml.Node {
	return listNode(text.Each(list, textNode)...)
}

// argumentsNode returns arguments, in the order of their names.
func argumentsNode(args topology.Arguments) *yaml.Node {
	members := text.Each(args.Names(), func(name string) member { return member{name, valueNode(args[name])} })
	return mapNode(members...)
}

// valueNode returns one value that writableValue accepts.
func valueNode(v any) *yaml.Node {
	switch v := v.(type) {
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case int64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v, 10)}
	case float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(v, 'g', -1, 64)}
	case []any:
		return listNode(text.Each(v, valueNode)...)
	case topology.Arguments:
		return argumentsNode(v)
	default:
		s, _ := v.(string)
		return textNode(s)
	}
}

// maxNesting is how deep a value may be, which leaves room for the levels above it.
const maxNesting = 20

// writableValue reports whether a topology file can have a value as an argument. A number that is
// whole is an integer there, and a missing value is a mistake.
func writableValue(v any, depth int) bool {
	switch v := v.(type) {
	case string:
		return writableName(v)
	case bool, int64:
		return true
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0) && (v != math.Trunc(v) || math.Abs(v) >= 1<<63)
	case []any:
		return depth < maxNesting && !slices.ContainsFunc(v, func(e any) bool { return !writableValue(e, depth+1) })
	case topology.Arguments:
		for name, e := range v {
			if depth >= maxNesting || !writableName(name) || !writableValue(e, depth+1) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// writableName reports whether YAML can have a text.
func writableName(s string) bool { return utf8.ValidString(s) }

// unwritableName says why a file cannot declare an object of that name. Empty: it can.
func unwritableName(name string) string {
	switch {
	case !writableName(name):
		return "has a name that is not UTF-8"
	case name == "." || name == "..":
		return "has a name that no URL of the management API can hold"
	case strings.ContainsAny(name, "\r\n"):
		return "has a line break in its name, which RabbitMQ removes"
	case len(name) > topology.MaxNameBytes:
		return "has a name of more than 255 bytes"
	default:
		return ""
	}
}

// writableBinding reports whether a file can have a binding just as it is.
func writableBinding(b topology.Binding) bool {
	_, marked := b.Arguments[topology.ArgManagedBy]
	return !marked && writableName(b.Key) && len(b.Key) <= topology.MaxNameBytes && writableValue(b.Arguments, 0)
}

// inline returns a node as text on one line.
func inline(n *yaml.Node) (string, error) {
	out, err := yaml.Marshal(n)
	return strings.TrimSuffix(string(out), "\n"), err
}

// line returns a key with its value on one line.
func line(key string, value *yaml.Node) (string, error) {
	n := mapNode(member{key, value})
	n.Style = 0
	return inline(n)
}

// quoted returns a name for prose.
func quoted(name string) string { return text.Name(name) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
