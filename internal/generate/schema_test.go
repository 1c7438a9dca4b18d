package generate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// field is what a schema in testdata says of an attribute.
type field struct {
	Type      string   `json:"type"` // string, bool, integer, object, strings (an object of strings) or json
	Required  bool     `json:"required"`
	Enum      []string `json:"enum"`
	Conflicts string   `json:"conflicts"`
	Block     schema   `json:"block"` // of a nested block, which has no type
}

type schema map[string]field

// schemas are the schemas of a format, by kind of resource.
func schemas(name string) (map[string]schema, error) {
	data, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		return nil, err
	}
	var file struct {
		Resources map[string]schema `json:"resources"`
	}
	return file.Resources, json.Unmarshal(data, &file)
}

// problems returns what is wrong with the attributes of a resource.
func (s schema) problems(got map[string]any) []string {
	var out []string
	for name, f := range s {
		v, given := got[name]
		switch _, conflict := got[f.Conflicts]; {
		case f.Required && !given:
			out = append(out, "no "+name)
		case given && conflict:
			out = append(out, name+" and "+f.Conflicts)
		case given && f.Block != nil:
			block, _ := v.(map[string]any)
			out = append(out, f.Block.problems(block)...)
		case given && !f.accepts(v):
			out = append(out, fmt.Sprintf("%s is %#v, and not %s %v", name, v, f.Type, f.Enum))
		}
	}
	for name := range got {
		if _, known := s[name]; !known {
			out = append(out, "unknown "+name)
		}
	}
	slices.Sort(out)
	return out
}

func (f field) accepts(v any) bool {
	switch v := v.(type) {
	case string:
		return (f.Type == "string" || f.Type == "json" && json.Valid([]byte(v))) &&
			(f.Enum == nil || slices.Contains(f.Enum, v))
	case bool:
		return f.Type == "bool"
	case int, int64:
		return f.Type == "integer"
	case float64:
		return f.Type == "integer" && v == float64(int64(v))
	case map[string]any:
		text := func(v any) bool { _, ok := v.(string); return ok }
		for _, e := range v {
			if f.Type == "strings" && !text(e) {
				return false
			}
		}
		return f.Type == "strings" || f.Type == "object"
	}
	return false
}

// args returns what the provider and the operator make of the JSON of arguments: numbers pass
// through floats of 64 bits.
func args(v any) (topology.Arguments, error) {
	m, _ := v.(map[string]any)
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var floats map[string]any
	if err := json.Unmarshal(data, &floats); err != nil {
		return nil, err
	}
	return topology.Canonical(floats)
}

// decoded are the resources of an output, as objects of a broker.
type decoded struct {
	topology.Topology
	labels []string // KIND LABEL, of each resource
}

// add adds the object that a resource of this kind declares. The kind is the last word of it.
func (d *decoded) add(kind string, get func(name string) any, arguments topology.Arguments) {
	text := func(name string) string { s, _ := get(name).(string); return s }
	flag := func(name string) bool { b, _ := get(name).(bool); return b }
	switch strings.ToLower(kind[strings.LastIndex(kind, "_")+1:]) {
	case "exchange":
		d.Exchanges = append(d.Exchanges, topology.Exchange{
			Name: text("name"), Type: text("type"), Durable: flag("durable"), AutoDelete: flag("autodelete"),
			Arguments: arguments,
		})
	case "queue":
		d.Queues = append(d.Queues, topology.Queue{
			Name: text("name"), Durable: flag("durable"), AutoDelete: flag("autodelete"), Arguments: arguments,
		})
	case "binding":
		d.Bindings = append(d.Bindings, topology.Binding{
			Source: text("source"), Destination: text("destination"), DestinationType: text("destinationtype"),
			Key: text("routingkey"), Arguments: arguments,
		})
	case "policy":
		priority, _ := topology.CanonicalValue(get("priority"))
		n, _ := priority.(int64)
		d.Policies = append(d.Policies, topology.Policy{
			Name: text("name"), Pattern: text("pattern"), ApplyTo: text("applyto"), Priority: n, Definition: arguments,
		})
	}
}
