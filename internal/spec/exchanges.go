package spec

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/dlxctl/dlxctl/topology"
)

// exchanges reads the exchanges of one file.
func (d *decoder) exchanges(f fields) {
	for _, n := range d.list(f, "exchanges") {
		if d.full() || !d.room(n, "exchanges", len(d.spec.Exchanges)) {
			break
		}
		x := d.fields(n, "exchange", exchangeKeys(), nil)
		name, ok := d.text(x, "name")
		if !ok {
			continue
		}
		e := Exchange{Name: name, Internal: d.truth(x, "internal"), External: d.truth(x, "external"), Pos: d.pos(x, "name")}
		d.objectName(e.Pos, "exchange", name, e.External)
		if first, ok := d.exchange(name); ok {
			d.problem(e.Pos, fmt.Sprintf("exchange %q is already defined at %s:%d", name, first.Pos.File, first.Pos.Line),
				"keep one of them")
			continue
		}
		e.Type, _ = d.text(x, "type")
		if _, given := x.values["type"]; given && e.Type == "" {
			d.problem(d.pos(x, "type"), "type is empty", "write topic, direct, fanout, headers or the type of a plugin")
		}
		if near := d.nearType(e.Type); near != "" {
			d.warn(d.pos(x, "type"), topology.WarnOddExchangeType, name,
				fmt.Sprintf("exchange %q has the type %q, which needs a plugin on the broker", name, e.Type),
				fmt.Sprintf("did you mean %q?", near))
		}
		if e.Type == "" && !e.External {
			e.Type = topology.Topic
		}
		var nodes map[string]field
		e.Arguments, nodes = d.arguments(x, "arguments")
		d.reserved(nodes, topology.ArgManagedBy)
		e.Bindings = d.bindingList(x)
		e.Overlay = d.overlaid(field{n, n})
		if v, ok := x.values["type"]; ok {
			e.TypeBy = d.overlaid(v)
		}
		d.places.exchanges[name] = len(d.spec.Exchanges)
		d.spec.Exchanges = append(d.spec.Exchanges, e)
	}
}

// nearType returns the built-in exchange type that an unknown one was probably meant
// to be, or "". The types of plugins begin with x- by custom, and may be anything.
func (d *decoder) nearType(typ string) string {
	known := topology.ExchangeTypes()
	if typ == "" || slices.Contains(known, typ) || strings.HasPrefix(typ, "x-") {
		return ""
	}
	return d.nearest(typ, known)
}

func (d *decoder) exchange(name string) (Exchange, bool) {
	i, ok := d.places.exchanges[name]
	if !ok {
		return Exchange{}, false
	}
	return d.spec.Exchanges[i], true
}

// objectName checks the name of a queue or an exchange. Its length is checked
// with the generated names.
func (d *decoder) objectName(pos Pos, what, name string, external bool) {
	switch {
	case name == "":
		d.problem(pos, what+" name is empty", "give it a name")
	case strings.ContainsAny(name, "\r\n"):
		d.problem(pos, fmt.Sprintf("%s name %q has a line break, which RabbitMQ removes", what, name), "write it on one line")
	case name == "." || name == "..":
		d.problem(pos, fmt.Sprintf("%s name is %q, which no URL of the management API can hold", what, name),
			"choose another name")
	case strings.HasPrefix(name, "amq.") && !external:
		fix := "names that begin with amq. are reserved for the broker: choose another"
		if what == "exchange" {
			fix += ", or add external: true to use the broker's own"
		}
		d.problem(pos, fmt.Sprintf("%s name is %q", what, name), fix)
	}
}

// reserved refuses arguments that have a meaning of their own here.
func (d *decoder) reserved(nodes map[string]field, names ...string) {
	for _, name := range names {
		if v, ok := nodes[name]; ok {
			d.problem(d.at(v.key), fmt.Sprintf("arguments must not contain %s", name), instead(name))
		}
	}
}

// instead says what to write in place of an argument.
func instead(name string) string {
	switch name {
	case topology.ArgQueueType:
		return "write type: on the queue or in defaults"
	case topology.ArgDeliveryLimit:
		return "write deliveryLimit: on the queue"
	case topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey:
		return "the queue's backoff sets where it dead-letters to"
	default:
		return "dlxctl sets it"
	}
}

// bindingList reads the bindings of a queue or an exchange. What depends on the
// exchange at the other end waits for references.
func (d *decoder) bindingList(f fields) []Binding {
	var out []Binding
	if d.bindingKeys == nil { // there may be thousands of bindings
		d.bindingKeys = bindingKeys()
	}
	for _, n := range d.list(f, "bindings") {
		b := d.fields(n, "binding", d.bindingKeys, nil)
		exchange, ok := d.text(b, "exchange")
		if !ok {
			continue
		}
		binding := Binding{Exchange: exchange, Pos: d.at(n)}
		if !d.routingKeys(&binding, b) || !d.bindingHeaders(&binding, b) || !d.bindingArguments(&binding, b) {
			continue
		}
		out = append(out, binding)
	}
	return out
}

// routingKeys reads key and keys. Keys stays nil if neither is there.
func (d *decoder) routingKeys(binding *Binding, b fields) bool {
	one, hasKey := b.values["key"]
	_, hasKeys := b.values["keys"]
	if hasKey && hasKeys {
		d.problem(d.at(one.key), "binding has both key and keys", "keep one of them")
		return false
	}
	// A key without a value was reported when the mapping was read.
	// So was one with a slip in its name.
	if !hasKey && !hasKeys &&
		(d.mentions(b.node, "key") || d.mentions(b.node, "keys") || b.slips["key"] || b.slips["keys"]) {
		return false
	}
	nodes := d.list(b, "keys")
	if hasKey {
		nodes = []*yaml.Node{one.value}
	}
	if hasKeys && nodes != nil && len(nodes) == 0 {
		d.problem(d.pos(b, "keys"), "keys is empty", "add routing keys, or remove the binding")
		return false
	}
	for _, n := range nodes {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
			d.problem(d.at(n), "a routing key has no value", `a routing key that begins with # needs quotes: "#"`)
			return false
		}
		key, ok := d.textOf(n, "key")
		if !ok {
			return false
		}
		if over := len(key) - topology.MaxNameBytes; over > 0 {
			d.problem(d.at(n), fmt.Sprintf("the routing key %q has %d bytes, more than the %d that AMQP allows", key, len(key),
				topology.MaxNameBytes), fmt.Sprintf("shorten it by %d", over))
			return false
		}
		binding.Keys, binding.KeyPos = append(binding.Keys, key), append(binding.KeyPos, d.at(n))
	}
	return !hasKeys || nodes != nil
}

// bindingHeaders reads match and headers into the arguments of the binding.
func (d *decoder) bindingHeaders(binding *Binding, b fields) bool {
	match, hasMatch := d.word(b, "match", []string{"all", "any"})
	headers, nodes := d.arguments(b, "headers")
	_, hasHeaders := b.values["headers"]
	if !hasHeaders {
		if hasMatch {
			d.problem(d.pos(b, "match"), "binding has match, but no headers", "add headers: {name: value}")
		}
		return !hasMatch
	}
	ok := true
	for name, v := range nodes {
		if strings.HasPrefix(name, "x-") {
			d.problem(d.at(v.key), fmt.Sprintf("the header %q begins with x-", name),
				"headers exchanges ignore such names, so the binding would match every message: rename the header")
			ok = false
		}
	}
	if match == "" {
		match = "all"
	}
	if match == "any" && len(nodes) == 0 {
		d.problem(d.pos(b, "headers"), "headers is empty, and match: any without headers never matches",
			"add headers, or write match: all to match every message")
		ok = false
	}
	binding.Arguments = headers.With(topology.ArgMatch, match)
	return ok
}

// bindingArguments reads the arguments of a binding that stand there as they are.
func (d *decoder) bindingArguments(binding *Binding, b fields) bool {
	v, given := b.values["arguments"]
	if !given {
		return true
	}
	if binding.Arguments != nil {
		d.problem(d.at(v.key), "binding has headers and arguments",
			"keep one of them: arguments has the headers, and x-match in place of match")
		return false
	}
	args, nodes := d.arguments(b, "arguments")
	d.reserved(nodes, topology.ArgManagedBy)
	binding.Arguments, binding.Raw = args, true
	return true
}
