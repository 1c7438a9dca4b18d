package spec

import (
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// The tables in this file are the keys of the format, once: the decoder refuses
// what they do not name, and Schema prints them.

// shape is what a value may be. The zero shape is anything.
type shape struct {
	types  []string // JSON Schema's: string, integer, number, boolean, array, object
	enum   []string
	match  string  // a regular expression for strings
	least  int64   // for integers, if types says integer
	items  *shape  // of an array
	keys   []key   // of an object with fixed keys
	values *shape  // of an object with free keys
	either []shape // any of these, in place of all the above
}

// key is one key of an object.
type key struct {
	name     string
	doc      string
	required bool
	shape    shape
}

// namePattern is what topology and backoff names look like.
const namePattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`

func text() shape                   { return shape{types: []string{"string"}} }
func oneOf(words ...string) shape   { return shape{types: []string{"string"}, enum: words} }
func integer(least int64) shape     { return shape{types: []string{"integer"}, least: least} }
func boolean() shape                { return shape{types: []string{"boolean"}} }
func list(of shape) shape           { return shape{types: []string{"array"}, items: &of} }
func object(keys []key) shape       { return shape{types: []string{"object"}, keys: keys} }
func table() shape                  { return shape{types: []string{"object"}, values: &shape{}} }
func mapOf(of shape) shape          { return shape{types: []string{"object"}, values: &of} }
func matching(pattern string) shape { return shape{types: []string{"string"}, match: pattern} }

// delay admits ${VAR} too: a schema sees the file before it is expanded.
func delay() shape { return matching(`^(([0-9]+(ms|s|m|h|d))+|.*\$\{.*\}.*)$`) }

func fileKeys() []key {
	return []key{
		{"version", "Version of this format: 1.", true, shape{types: []string{"integer"}, enum: []string{"1"}}},
		{"name", "Name of the topology. It prefixes every generated object and marks what the file owns.", false, matching(namePattern)},
		{"vhost", "Virtual host. Default: the one of the AMQP URL; --vhost beats both.", false, text()},
		{"cluster", "Refuse a broker whose cluster name differs. Empty: any.", false, text()},
		{"countHeader", "Header that counts the attempts. It must not begin with x-. Default: count.", false, text()},
		{"defaults", "Defaults for queues, and the type of generated queues.", false, object(defaultsKeys())},
		{"backoff", "Ladders of waits, by name.", false, mapOf(object(backoffKeys()))},
		{"exchanges", "Exchanges of this topology.", false, list(object(exchangeKeys()))},
		{"queues", "Work queues.", false, list(object(queueKeys()))},
	}
}

func defaultsKeys() []key {
	return []key{
		{"type", "Type of work queues, and of failed, retry, dead and unroutable queues. Default: quorum.", false, oneOf(topology.Quorum, topology.Classic)},
		{"backoff", "Backoff of queues that name none: a name under backoff, or none.", false, text()},
		{"deadLetterBy", "How queues get their dead-lettering. Default: arguments.", false, oneOf("arguments", "policy")},
	}
}

func backoffKeys() []key {
	return []key{
		{"tiers", "Waits, in order: a delay, or a delay with its number of attempts.", false, list(shape{either: []shape{delay(), object(tierKeys())}})},
		{"exponential", "Waits that grow by a factor, in place of tiers.", false, object(exponentialKeys())},
		{"attemptsPerTier", "How many attempts wait in a tier that does not say. Default: 1.", false, integer(1)},
		{"retryOn", "Reasons for dead-lettering that are retried. Default: all.", false, list(oneOf(reasonNames()...))},
		{"engine", "What counts the attempts: processor, which is the default.", false, oneOf("processor")},
	}
}

func tierKeys() []key {
	return []key{
		{"delay", "How long a message waits, such as 10s or 1m30s.", true, delay()},
		{"attempts", "How many attempts wait in this tier. Default: attemptsPerTier.", false, integer(1)},
	}
}

func exponentialKeys() []key {
	return []key{
		{"first", "The first wait.", true, delay()},
		{"factor", "What each wait is multiplied by. Default: 2.", false, shape{types: []string{"number"}}},
		{"steps", "How many waits.", true, integer(1)},
		{"max", "The longest wait. Default: no limit but the broker's.", false, delay()},
	}
}

func exchangeKeys() []key {
	return []key{
		{"name", "Name of the exchange.", true, text()},
		{"type", "topic (default), direct, fanout, headers, or the type of a plugin.", false, text()},
		{"arguments", "Arguments of the exchange.", false, table()},
		{"internal", "Clients may not publish to it. Default: false.", false, boolean()},
		{"external", "Somebody else's: it must exist, and is never created, changed or deleted. Default: false.", false, boolean()},
		{"bindings", "Bindings from other exchanges to this one.", false, list(object(bindingKeys()))},
	}
}

func queueKeys() []key {
	return []key{
		{"name", "Name of the work queue.", true, text()},
		{"type", "Type of this queue. Default: the one of defaults.", false, oneOf(topology.Quorum, topology.Classic)},
		{"backoff", "A name under backoff, or none: rejected messages are dead letters at once.", false, text()},
		{"bindings", "Bindings from exchanges to this queue.", false, list(object(bindingKeys()))},
		{"deliveryLimit", "Quorum queues: deliveries returned by crashes before the broker calls it a failure. Default: the broker's (none before 4.0, 20 since).", false, integer(0)},
		{"dead", "Dead-letter queue: own (default), shared, or a queue by name.", false, shape{either: []shape{oneOf("own", "shared"), object(deadKeys())}}},
		{"arguments", "Arguments of the queue that have no key of their own here.", false, table()},
		{"owner", "Who to call: a label on logs, metrics, alerts and notices.", false, text()},
		{"severity", "How loudly to call. Default: ticket.", false, oneOf(severities()...)},
		{"deadLetterBy", "How the queue gets its dead-lettering. Default: the one of defaults.", false, oneOf("arguments", "policy")},
		{"external", "A service declares the queue: it must exist, and is never created, changed or deleted; a policy brings its dead-lettering. Default: false.", false, boolean()},
		{"replaces", "The legacy queue that this one takes the place of. While it exists, this one is made without its bindings from declared exchanges.", false, text()},
	}
}

func bindingKeys() []key {
	return []key{
		{"exchange", "Source of the binding.", true, text()},
		{"key", "Routing key. Left out for fanout and headers exchanges only.", false, text()},
		{"keys", "Several routing keys: as many bindings.", false, list(text())},
		{"match", "Headers exchanges: whether all (default) or any of the headers must be equal.", false, oneOf("all", "any")},
		{"headers", "Headers exchanges: names and values. Names that begin with x- would be skipped by the broker.", false, table()},
	}
}

func deadKeys() []key {
	return []key{
		{"queue", "Name of the dead-letter queue. Several queues may share it.", true, text()},
		{"arguments", "Arguments of the dead-letter queue.", false, table()},
	}
}

// meant gives the key that another word stands for: what RabbitMQ and its clients
// call the same thing. Case, - and _ do not matter.
func meant(word string) string {
	switch strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word)) {
	case "routingkey":
		return "key"
	case "routingkeys":
		return "keys"
	case "source":
		return "exchange"
	case "args":
		return "arguments"
	default:
		return ""
	}
}

func severities() []string { return []string{"page", "ticket", "info"} }

func reasonNames() []string {
	var names []string
	for _, r := range topology.Reasons() {
		names = append(names, string(r))
	}
	return names
}
