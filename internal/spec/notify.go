package spec

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/internal/notice"
	"github.com/dlxctl/dlxctl/topology"
)

func notifyKeys() []key {
	return []key{
		{"to", "Address of the target: https://, slack+https://, smtp:// or smtps://. Write its secrets as ${VAR}, which only process and desk digest need.", true, anyText()},
		{"severity", "Severities of the notices that it gets: one, or a list. Default: all.", false, oneOrList(oneOf(topology.Severities()...))},
		{"owner", "Owners of the queues whose notices it gets: one, or a list. Default: all.", false, oneOrList(anyText())},
		{"template", "Text of a notice, as a template of Go's text/template over its keys. Default: the text of dlxctl.", false, anyText()},
	}
}

// oneOrList is a value, or a list of such values.
func oneOrList(of shape) shape { return shape{either: []shape{of, list(of)}} }

// Expand replaces ${VAR} and ${VAR:-default} in a text by the environment, as in a topology file.
// Its errors name variables, and hold no value.
func Expand(s string, lookup func(string) (string, bool)) (string, error) { return expand(s, lookup) }

// notify reads where notices of the topology go.
func (d *decoder) notify(f fields) {
	for _, n := range d.list(f, "notify") {
		x := d.fields(n, "a target of notify", notifyKeys(), nil)
		t := topology.NotifyTarget{Place: placed(d.at(n), Pos{})}
		t.To = d.address(x)
		t.Severities = d.oneOrMore(x, "severity")
		for i, word := range t.Severities {
			d.among(d.nodesOf(x, "severity")[i], "severity", word, topology.Severities())
		}
		t.Owners = d.oneOrMore(x, "owner")
		t.Template = d.template(x)
		d.spec.Notify = append(d.spec.Notify, t)
	}
}

// nodesOf returns the values under a key that has one or a list.
func (d *decoder) nodesOf(f fields, name string) []*yaml.Node {
	v, ok := f.values[name]
	switch {
	case !ok:
		return nil
	case v.value.Kind == yaml.SequenceNode:
		return d.list(f, name)
	default:
		return []*yaml.Node{v.value}
	}
}

// oneOrMore returns the texts under a key that has one or a list.
func (d *decoder) oneOrMore(f fields, name string) []string {
	var out []string
	nodes := d.nodesOf(f, name)
	for _, n := range nodes {
		word, ok := d.textOf(n, name)
		if !ok {
			return nil
		}
		out = append(out, word)
	}
	if _, given := f.values[name]; given && len(nodes) == 0 {
		d.problem(d.pos(f, name), name+" is empty", "name one at least, or remove the key for all")
	}
	return out
}

// address returns where a target is, as the file has it: no command but those that send needs its
// secrets, and no message quotes it. It is checked as far as its variables are set.
func (d *decoder) address(f fields) string {
	v, ok := f.values["to"]
	if !ok {
		return ""
	}
	n := v.value
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		d.problem(d.at(n), "to is not text", "write an address such as https://HOST/PATH")
		return ""
	}
	if _, err := expand(n.Value, func(string) (string, bool) { return "x", true }); err != nil {
		d.problem(d.at(n), "to is not readable: "+err.Error(), "")
		return ""
	}
	address, err := expand(n.Value, d.lookup)
	if err != nil {
		return n.Value // a variable is not set: it is read where notices are sent
	}
	if _, err := notice.ParseAddress(address); err != nil {
		d.problem(d.at(n), "to is not the address of a target: "+err.Error(), "")
		return ""
	}
	return n.Value
}

// template returns the text of a notice, in which no variables are expanded.
func (d *decoder) template(f fields) string {
	v, ok := f.values["template"]
	if !ok {
		return ""
	}
	n := v.value
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || strings.TrimSpace(n.Value) == "" {
		d.problem(d.at(n), "template is "+kindOf(n)+", not a template", "write text such as \"{{.Queue}}: {{.Error}}\"")
		return ""
	}
	if _, err := notice.ParseTemplate(n.Value); err != nil {
		d.problem(d.at(n), "template cannot be used: "+strings.TrimPrefix(err.Error(), "template: "),
			"write text such as \"{{.Queue}}: {{.Error}}\", with the keys of a notice")
	}
	return n.Value
}
