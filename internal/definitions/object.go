package definitions

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// record is an object of a file, before its virtual host and the type of a queue are resolved.
type record struct {
	object topology.Object
	// vhost is what the file says. stated says that it says anything.
	vhost  string
	stated bool
	line   int
	// at is its offset, for messages.
	at int
	// typed says that the type of a queue is known.
	typed bool
	// policy is the name of the policy in effect on a queue or exchange, where a list has it.
	policy   string
	oddities []Oddity
}

// builder makes a record of an element. It collects the problems of its fields.
type builder struct {
	*decoder
	element
	kind     string
	list     bool // a list of objects that exist, not definitions to import
	problems []error
	missing  []string
}

// fail adds a problem at a field, or at the object where the field is missing.
func (b *builder) fail(name, format string, args ...any) {
	at := b.at
	if f, ok := b.fields[name]; ok {
		at = f.at
	}
	b.problems = append(b.problems, b.problem(at, format, args...))
}

// object names the object in messages.
func (b *builder) object() string {
	if name, ok := b.fields["name"].value.(string); ok {
		return b.kind + " " + quoteShort(name)
	}
	return "a " + b.kind
}

// text returns a field that must be there and must be text. Some outputs name it differently.
func (b *builder) text(names ...string) string {
	for _, name := range names {
		f, ok := b.fields[name]
		if !ok {
			continue
		}
		s, ok := f.value.(string)
		if !ok {
			b.fail(name, "%s of %s is %s; it must be text in quotes", name, b.object(), describe(f.value))
		}
		return s
	}
	b.fail(names[0], "%s has no %s; %s", b.object(), names[0], b.repair())
	return ""
}

// repair says what to do about a missing field.
func (b *builder) repair() string {
	if b.list {
		return "give it in full: " + listFix[b.kind]
	}
	return "no line of RabbitMQ imports it; correct the file, or export the definitions again"
}

// optional returns a text field, or otherwise a value that stands for it.
func (b *builder) optional(name, otherwise string) string {
	if f, ok := b.fields[name]; !ok || f.value == nil {
		return otherwise
	}
	return b.text(name)
}

// flag returns a boolean field. A missing one is noted where an import needs it: 3.10 and 4.0
// store "undefined" in its place, which counts as false.
func (b *builder) flag(name string, otherwise, needed bool) bool {
	f, ok := b.fields[name]
	if !ok {
		switch {
		case needed && b.list:
			b.fail(name, "%s has no %s; %s", b.object(), name, b.repair())
		case needed:
			b.missing = append(b.missing, name)
		}
		return otherwise
	}
	switch v := f.value.(type) {
	case bool:
		return v
	case string:
		if v == "undefined" || v == "true" || v == "false" || v == "" {
			return v == "true"
		}
	case nil:
		return otherwise
	}
	b.fail(name, "%s of %s is %s; it must be true or false", name, b.object(), describe(f.value))
	return otherwise
}

// arguments returns an arguments object. Empty ones are written as {}, [] or null. rabbitmqctl
// writes lists of [name, type, value]; see [erlangTable].
func (b *builder) arguments(name string, binding bool) topology.Arguments {
	f, ok := b.fields[name]
	if !ok {
		if b.list {
			b.fail(name, "%s has no %s, which say where its messages go; %s", b.object(), name, b.repair())
		}
		return nil
	}
	value := f.value
	if s, ok := value.(string); ok && b.list { // the definition of a policy, from rabbitmqctl
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if d.Decode(&value) != nil {
			value = s
		}
	}
	if rows, ok := value.([]any); ok && len(rows) > 0 {
		table, err := erlangTable(rows)
		if err != nil {
			b.fail(name, "%s of %s: %v", name, b.object(), err)
			return nil
		}
		value = table
	}
	if rows, ok := value.([]any); value == nil || ok && len(rows) == 0 {
		return nil
	}
	table, ok := value.(map[string]any)
	if !ok {
		b.fail(name, "%s of %s is %s; it must be an object, in { }", name, b.object(), describe(value))
		return nil
	}
	canonical := topology.Canonical
	if binding {
		canonical = topology.CanonicalBinding
	}
	args, err := canonical(table)
	if err != nil {
		b.fail(name, "%s of %s: %v; correct it", name, b.object(), err)
		return nil
	}
	return args
}

// priority returns the priority of a policy. RabbitMQ accepts any number, and dlxctl rounds up.
func (b *builder) priority() int64 {
	f, ok := b.fields["priority"]
	if !ok {
		return 0
	}
	n, ok := f.value.(json.Number)
	if !ok {
		b.fail("priority", "priority of %s is %s; it must be a number", b.object(), describe(f.value))
		return 0
	}
	whole, err := topology.Priority(n)
	if err != nil {
		b.fail("priority", "priority of %s is %s; it must be a whole number", b.object(), n)
	}
	return whole
}

func (b *builder) record(o topology.Object) record {
	r := record{object: o, at: b.at, line: b.lineAt(b.at)}
	if _, ok := b.fields["vhost"]; ok {
		r.vhost, r.stated = b.text("vhost"), true
	}
	for _, name := range b.missing {
		r.oddities = append(r.oddities, Oddity{Kind: FieldMissing, Object: o.ID(), Field: name})
	}
	return r
}

func (b *builder) exchange() record {
	r := b.record(topology.Exchange{
		Name: b.text("name"), Type: b.text("type"),
		Durable: b.flag("durable", true, true), AutoDelete: b.flag("auto_delete", false, !b.list),
		Internal: b.flag("internal", false, false), Arguments: b.arguments("arguments", false),
	})
	r.policy = b.optional("policy", "")
	return r
}

func (b *builder) queue() record {
	q := topology.Queue{
		Name: b.text("name"), Durable: b.flag("durable", true, true), AutoDelete: b.flag("auto_delete", false, !b.list),
		Exclusive: b.flag("exclusive", false, false), Arguments: b.arguments("arguments", false),
	}
	says := queueType(b.optional("type", ""))
	if b.list && says != "" {
		q.Arguments = q.Arguments.With(topology.ArgQueueType, says)
	}
	r := b.record(q)
	r.typed = q.Type() != ""
	r.policy = b.optional("policy", "")
	if !b.list && says != "" && !r.typed {
		r.oddities = append(r.oddities, Oddity{Kind: TypeWithoutArgument, Object: q.ID(), Field: "type", Value: says})
	}
	return r
}

// queueType returns the type by the name that clients use. Older brokers print the name of the
// Erlang module.
func queueType(s string) string {
	if inner, ok := strings.CutPrefix(s, "rabbit_"); ok {
		return strings.TrimSuffix(inner, "_queue")
	}
	return s
}

func (b *builder) binding() record {
	to := b.kindOfDestination()
	key := ""
	if b.has("routing_key") {
		key = b.text("routing_key")
	} else {
		b.missing = append(b.missing, "routing_key")
	}
	return b.record(topology.Binding{
		Source: b.text("source", "source_name"), Destination: b.text("destination", "destination_name"),
		DestinationType: to, Key: key, Arguments: b.arguments("arguments", true),
	})
}

func (b *builder) kindOfDestination() string {
	for _, name := range []string{"destination_type", "destination_kind"} {
		if !b.has(name) {
			continue
		}
		to := b.text(name)
		if to != topology.ToQueue && to != topology.ToExchange {
			b.fail(name, "%s of a binding is %s; it must be queue or exchange", name, describe(b.fields[name].value))
		}
		return to
	}
	b.missing = append(b.missing, "destination_type")
	return topology.ToQueue
}

func (b *builder) policy() record {
	return b.record(topology.Policy{
		Name: b.text("name"), Pattern: b.text("pattern"), ApplyTo: b.optional("apply-to", "all"),
		Priority: b.priority(), Definition: b.arguments("definition", false),
	})
}

// erlangTable reads arguments as rabbitmqctl prints them as JSON: a list of [name, type, value].
// It fails on a list of values among them, of which rabbitmqctl prints one value for each type.
func erlangTable(rows []any) (map[string]any, error) {
	out := map[string]any{}
	for _, row := range rows {
		triple, ok := row.([]any)
		if !ok || len(triple) != 3 {
			return nil, fmt.Errorf("%s is not [name, type, value] as rabbitmqctl prints it; use GET /api/definitions", describe(row))
		}
		name, isName := triple[0].(string)
		kind, isKind := triple[1].(string)
		if !isName || !isKind {
			return nil, fmt.Errorf("%s is not the name of an argument; use GET /api/definitions", describe(triple[0]))
		}
		v, err := erlangValue(kind, triple[2])
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", quoteShort(name), err)
		}
		out[name] = v
	}
	return out, nil
}

// erlangValue reads one value of a table.
func erlangValue(kind string, v any) (any, error) {
	if kind == "array" {
		return nil, fmt.Errorf("it is a list, which rabbitmqctl does not print in full; use GET /api/definitions")
	}
	if kind != "table" {
		return v, nil
	}
	rows, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a table as rabbitmqctl prints it; use GET /api/definitions", describe(v))
	}
	return erlangTable(rows)
}
