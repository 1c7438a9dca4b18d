package spec

import (
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// The tables in this file are the keys of the format, once: the decoder refuses
// what they do not name, and Schema prints them.

// shape is what a value may be. The zero shape is anything.
type shape struct {
	types  []string // JSON Schema's: string, integer, number, boolean, array, object
	enum   []string
	match  string   // a regular expression for strings
	least  int64    // for integers, if types says integer
	items  *shape   // of an array
	keys   []key    // of an object with fixed keys
	oneOf  []string // of these keys the object has at least one
	values *shape   // of an object with free keys
	either []shape  // any of these, in place of all the above
	null   bool     // or null, which removes a key in an overlay
}

type key struct {
	name     string
	doc      string
	required bool
	shape    shape
}

// namePattern is what topology and backoff names look like.
const namePattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`

// percentPattern and ratePattern are what shares and rates look like, or one with a ${VAR}.
const (
	percentPattern = `^([0-9]+(\.[0-9]+)?%|.*\$\{.*\}.*)$`
	ratePattern    = `^([0-9]+(\.[0-9]+)?/s|.*\$\{.*\}.*)$`
)

func anyText() shape                { return shape{types: []string{"string"}} }
func oneOf(words ...string) shape   { return shape{types: []string{"string"}, enum: words} }
func integer(least int64) shape     { return shape{types: []string{"integer"}, least: least} }
func boolean() shape                { return shape{types: []string{"boolean"}} }
func list(of shape) shape           { return shape{types: []string{"array"}, items: &of} }
func object(keys []key) shape       { return shape{types: []string{"object"}, keys: keys} }
func table() shape                  { return shape{types: []string{"object"}, values: &shape{}} }
func mapOf(of shape) shape          { return shape{types: []string{"object"}, values: &of} }
func matching(pattern string) shape { return shape{types: []string{"string"}, match: pattern} }

// delay admits ${VAR} too: a schema sees the file before it is expanded.
func delay() shape { return matching(`^(([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+|.*\$\{.*\}.*)$`) }

func fileKeys() []key {
	return []key{
		{"version", "Version of this format: 1.", true, shape{types: []string{"integer"}, enum: []string{"1"}}},
		{"name", "Name of the topology: the prefix of generated objects except QUEUE.dead, and the owner mark of all that dlxctl declares. Default: the one of another file of the topology.", false, matching(namePattern)},
		{"vhost", "Virtual host. --vhost overrides it. Default: the one of the AMQP URL.", false, anyText()},
		{"cluster", "Refuse a broker whose cluster name differs. Default: any cluster.", false, anyText()},
		{"countHeader", "Header in which the processor counts the retries. It must not begin with x-. Default: count.", false, anyText()},
		{"defaults", "What queues have unless they say otherwise, and the type of generated queues.", false, object(defaultsKeys())},
		{"backoff", "Backoffs (retry schedules), by name.", false, mapOf(object(backoffKeys()))},
		{"exchanges", "Exchanges of this topology.", false, list(object(exchangeKeys()))},
		{
			"queues", "Work queues.", false,
			list(shape{types: []string{"object"}, keys: queueKeys(), oneOf: []string{"name", "match"}}),
		},
		{"delays", "Exchanges whose messages come to another exchange when they are due.", false, list(object(delayKeys()))},
		{"messages", "How bodies are read, and what is masked in them, where dlxctl shows messages.", false, object(messagesKeys())},
		{"notify", "Where dlxctl process sends notices of dead letters.", false, list(object(notifyKeys()))},
		{"removed", "Queues and exchanges removed on purpose: apply may delete them although routing ends (hazard drops-routing).", false, list(anyText())},
		{"accept", "Warnings that are not printed, as WARNING=OBJECT or WARNING.", false, list(anyText())},
	}
}

func defaultsKeys() []key {
	return []key{
		{
			"type", "Type of work queues; in the file with name also of failed, retry, dead-letter and unroutable queues. Default: quorum.", false,
			oneOf(topology.Quorum, topology.Classic),
		},
		{"backoff", "Backoff of queues that set none. Default: each queue must set its own.", false, anyText()},
		{
			"deadLetterBy", "What sets dead-lettering on queues. Default: arguments.",
			false, oneOf(deadLetterWords()...),
		},
		{"deliveryLimit", "deliveryLimit of quorum queues. External queues take it over only with type: quorum or match. Default: the broker's.", false, integer(0)},
		{
			"dead", "Dead-letter queue: own, shared, or a mapping. A queue that it names is shared by all. Default: own.", false,
			shape{either: []shape{oneOf("own", "shared"), object(deadKeys())}},
		},
		{"arguments", "Arguments of queues that are not external, merged by key: the value of a queue wins, and null omits one.", false, table()},
		{"owner", "Owning team. Default: none.", false, anyText()},
		{"severity", "Severity of alerts and messages. Default: ticket.", false, severityShape()},
	}
}

func backoffKeys() []key {
	return []key{
		{
			"tiers", "Tiers, in order: a delay, or a delay with its number of attempts. []: nothing is retried.", false,
			list(shape{either: []shape{delay(), object(tierKeys())}}),
		},
		{"exponential", "Tiers whose delays grow by a factor, in place of tiers.", false, object(exponentialKeys())},
		{"linear", "Tiers whose delays grow by the first one, in place of tiers.", false, object(linearKeys())},
		{"attemptsPerTier", "Attempts per tier, where the tier sets none. Default: 1.", false, integer(1)},
		{"retryOn", "Reasons for dead-lettering that are retried. Default: all.", false, list(oneOf(reasonNames()...))},
		{
			"retryUntil", "How long after its first failure a message may wait uncounted, where a consumer asks for longer than any tier. Default: 24h.",
			false, delay(),
		},
		{
			"afterExpiry", "What becomes of a message that expired in its work queue, or whose expiration ends before its next wait. Default: ignore.",
			false, oneOf(expiryWords()...),
		},
		{
			"outage", "In an outage of a work queue, messages that would be dead wait instead. Default: none, failures count.",
			false, object(outageKeys()),
		},
		{
			"engine", "What delays and counts the retries: the processor, or RabbitMQ itself (native, from 4.3.1 on). Default: processor.",
			false, oneOf(topology.EngineProcessor, topology.EngineNative),
		},
	}
}

func outageKeys() []key {
	return []key{
		{"failing", "Share of the last deliveries of a queue that has failed in an outage. Default: 80%.", false, matching(percentPattern)},
		{"of", "Number of the last deliveries that are looked at. Default: 50.", false, integer(1)},
		{"until", "How long after its first failure a message may wait for the end of an outage. Default: 24h.", false, delay()},
		{"rate", "How many waiting messages of the backoff return per second at most. Default: any number.", false, matching(ratePattern)},
	}
}

func tierKeys() []key {
	return []key{
		{"delay", "How long a message waits, such as 10s or 1m30s.", true, delay()},
		{"attempts", "Attempts that use this tier. Default: attemptsPerTier.", false, integer(1)},
	}
}

func exponentialKeys() []key {
	return []key{
		{"first", "Delay of the first tier.", true, delay()},
		{"factor", "Factor from one delay to the next, 1 or more. Default: 2.", false, shape{types: []string{"number"}}},
		{"steps", "Number of tiers.", true, integer(1)},
		{"max", "The longest delay. Default: the broker's limit.", false, delay()},
	}
}

func linearKeys() []key {
	return []key{
		{"first", "Delay of the first retry, by which each later one grows.", true, delay()},
		{"attempts", "Number of retries.", true, integer(1)},
		{"max", "The longest delay. Default: the broker's limit.", false, delay()},
	}
}

func exchangeKeys() []key {
	return []key{
		{"name", "Name of the exchange.", true, anyText()},
		{"type", "topic, direct, fanout, headers, or the type of a plugin. Default: topic.", false, anyText()},
		{"arguments", "Arguments of the exchange.", false, table()},
		{"internal", "Clients may not publish to it. Default: false.", false, boolean()},
		{"external", "Another team manages it, and it must exist. Default: false.", false, boolean()},
		{"bindings", "Bindings from other exchanges to this one.", false, list(object(bindingKeys()))},
	}
}

func delayKeys() []key {
	return []key{
		{"name", "Name of the exchange that publishers use, with the header x-delay or x-delay-until.", true, anyText()},
		{"to", "Exchange of the file to which a message that is due is published.", true, anyText()},
		{"max", "How far ahead a message may be due, 1s or more. Default: 24h.", false, delay()},
		{
			"engine", "Where messages wait: levels, queues with a TTL, or native, one queue of RabbitMQ " + topology.FirstNative + " and later. Default: levels.",
			false, oneOf(topology.EngineLevels, topology.EngineNative),
		},
	}
}

func queueKeys() []key {
	return []key{
		{"name", "Name of the work queue. Default: none, with match.", false, anyText()},
		{"match", "Pattern of a RabbitMQ policy: the entry covers each queue whose name has a match, now and later. Default: none.", false, anyText()},
		{"type", "Type of this queue. Default: the one of defaults.", false, oneOf(topology.Quorum, topology.Classic)},
		{"backoff", "A name under backoff, or none: rejected messages are dead-lettered at once. Default: the one of defaults.", false, anyText()},
		{"bindings", "Bindings from exchanges to this queue.", false, list(object(bindingKeys()))},
		{"deliveryLimit", "Quorum queues: how many times the broker redelivers a message before it dead-letters it. Default: the broker's (no limit before 4.0, 20 since).", false, integer(0)},
		{
			"dead", "Dead-letter queue: own is QUEUE.dead, shared is TOPOLOGY.dead, or a mapping. Default: own, and shared with match.", false,
			shape{either: []shape{oneOf("own", "shared"), object(deadKeys())}},
		},
		{"arguments", "Other arguments of the queue.", false, table()},
		{"owner", "Owning team: a label on logs, metrics, alerts and notices, by which plan groups. Default: none.", false, anyText()},
		{"severity", "Severity of its alerts, and of its messages in logs, metrics and notices. Default: ticket.", false, severityShape()},
		{
			"deadLetterBy", "What sets dead-lettering on the queue. unmanaged: dlxctl sets none, and the queue keeps its own. Default: the one of defaults.",
			false, oneOf(deadLetterWords()...),
		},
		{"external", "A service declares the queue, and it must exist. A policy sets its dead-lettering, unless deadLetterBy is unmanaged. Default: false.", false, boolean()},
		{"messages", "What applies to the messages of this queue in addition.", false, object(queueMessagesKeys())},
		{
			"retryTo", "Queue of the file to which failed messages of this queue come after a tier. Default: this queue.",
			false, anyText(),
		},
		{"replace", "dlxctl apply may replace the queue under its name (hazard replaces-queue). Default: false.", false, boolean()},
		{"replaces", "The legacy queue that this queue replaces, in a migration. Default: none.", false, anyText()},
	}
}

func bindingKeys() []key {
	return []key{
		{"exchange", "Source of the binding.", true, anyText()},
		{"key", "Routing key. Only bindings to fanout and headers exchanges may omit it. Default: empty.", false, anyText()},
		{"keys", "Several routing keys: one binding per key.", false, list(anyText())},
		{"match", "Headers exchanges: whether all or any of the headers must match. Default: all.", false, oneOf("all", "any")},
		{
			"headers", "Headers exchanges: names and values. Names that begin with x- are not allowed: the broker ignores them.",
			false, table(),
		},
		{
			"arguments", "The arguments of the binding as they are, in place of match and headers.",
			false, table(),
		},
	}
}

func deadKeys() []key {
	return []key{
		{"queue", "Name of the dead-letter queue. Several queues may share it. Default: QUEUE.dead, and TOPOLOGY.dead with match.", false, anyText()},
		{
			"keep", "Age from which a dead letter is old, the same for all queues that share the dead-letter queue. Default: none is old.",
			false, delay(),
		},
		{"arguments", "Arguments of the dead-letter queue.", false, table()},
		{"external", "The queue exists: dlxctl only binds it. Default: false.", false, boolean()},
	}
}

// meant returns the key that another word stands for: what RabbitMQ and its clients
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

func deadLetterWords() []string { return []string{byArguments, byPolicy, unmanaged} }

func reasonNames() []string {
	return text.Each(topology.Reasons(), func(r topology.Reason) string { return string(r) })
}
