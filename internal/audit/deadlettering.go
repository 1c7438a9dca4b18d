package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// deadLetteringChecks are the rules about where queues dead-letter to.
func deadLetteringChecks() []check {
	return []check{
		exchangeMissing(), queueMissing(), unrouted(), partlyUnrouted(), atMostOnce(), atLeastOnceNotInEffect(),
		deadLetterKeyAlone(),
	}
}

// each returns the findings about queues, in their order.
func (x *index) each(find func(*queue) (Finding, bool)) []Finding {
	var out []Finding
	for _, q := range x.queues {
		if f, ok := find(q); ok {
			f.Object = q.ID()
			out = append(out, f)
		}
	}
	return out
}

// ofQueues returns what a rule finds that looks at one queue at a time.
func ofQueues(find func(*index, *queue) (Finding, bool)) func(*index) []Finding {
	return func(x *index) []Finding { return x.each(func(q *queue) (Finding, bool) { return find(x, q) }) }
}

// deadLetterExchange says in evidence where a queue dead-letters to.
func (q *queue) deadLetterExchange() string {
	out := topology.ArgDeadLetterExchange + " " + text.Name(q.To.Exchange) + " (argument)"
	if q.To.ExchangeBy != "" {
		out = "dead-letter-exchange " + text.Name(q.To.Exchange) + " (policy " + q.To.ExchangeBy + ")"
	}
	switch {
	case q.To.HasKey && q.To.KeyBy == "":
		out += ", " + topology.ArgDeadLetterRoutingKey + " " + text.Name(q.To.Key)
	case q.To.HasKey:
		out += ", dead-letter-routing-key " + text.Name(q.To.Key) + " (policy " + q.To.KeyBy + ")"
	}
	return out
}

// rejectedIsLost is what happens where dead letters reach no queue.
func (q *queue) rejectedIsLost() string {
	if q.To.AtLeastOnce {
		return "a message " + q.failing() + " stays in the queue, invisible to consumers, and counts against its length"
	}
	return "a message " + q.failing() + " is lost"
}

// failing says how messages of the queue die first of all, as the continuation of "a message".
func (q *queue) failing() string {
	if q.Waits() {
		return "whose wait in " + text.Name(q.Name) + " ends"
	}
	return "that a consumer of " + text.Name(q.Name) + " rejects"
}

func exchangeMissing() check {
	return check{Rule{
		ID: "dead-letter-exchange-missing", Severity: Error, Group: groupLost,
		Title: "The dead-letter exchange does not exist",
		Why: "RabbitMQ accepts a queue whose dead-letter exchange does not exist, and drops every message that the queue " +
			"dead-letters, without an error. A file does not tell which exchanges services declare when they start.",
		Fix: "Declare the exchange and bind a dead-letter queue to it, or correct the name.",
		Hit: Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "dlx"}}]}`},
		Miss: Example{Definitions: `{
  "exchanges": [{"name": "dlx", "type": "fanout", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "dlx"}},
    {"name": "billing.dead", "durable": true}],
  "bindings": [{"source": "dlx", "destination": "billing.dead", "destination_type": "queue", "routing_key": ""}]}`},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.DeadLetters || x.Exchange(q.To.Exchange) != nil {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    q.deadLetterExchange() + "; no such exchange",
			Consequence: q.rejectedIsLost() + x.soFar("no service declares the exchange"),
			Remedy: fmt.Sprintf("decide which type the exchange %s should have, declare it, and bind a dead-letter queue to it",
				text.Name(q.To.Exchange)),
			Tries: x.declaring(q),
		}
		if q.givesBack() {
			f.Remedy = fmt.Sprintf("decide to which queue the messages that wait in %s should go, declare the exchange %s, and bind "+
				"the queue to it", text.Name(q.Name), text.Name(q.To.Exchange))
		}
		return f, true
	})}
}

// declaring returns the fixes that declare the dead-letter exchange of a queue, and a queue for it.
// All queues that dead-letter to it get the same exchange: a direct one if each has a key.
func (x *index) declaring(q *queue) []Fix {
	e := topology.Exchange{Name: q.To.Exchange, Type: topology.Direct, Durable: true}
	if x.keyless[e.Name] {
		e.Type = topology.Topic
	}
	return x.keep(q, e, put(e))
}

// soFar limits what is said of a file: services may declare more.
func (x *index) soFar(unless string) string {
	if x.in.Live != nil {
		return ""
	}
	return ", as far as this file says (" + unless + ")"
}

func queueMissing() check {
	return check{Rule{
		ID: "dead-letter-queue-missing", Severity: Error, Group: groupLost,
		Title: "The queue that dead letters are addressed to does not exist",
		Why: "With an empty dead-letter exchange the routing key names a queue. If no queue has that name, RabbitMQ drops " +
			"the message without an error.",
		Fix: "Declare the queue, or correct the dead-letter routing key.",
		Hit: Example{Definitions: `{"queues": [{"name": "billing", "durable": true,
  "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead"}}]}`},
		Miss: Example{Definitions: `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead"}},
  {"name": "billing.dead", "durable": true}]}`},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.DeadLetters || q.To.Exchange != "" || !q.AllLost() {
			return Finding{}, false
		}
		missing := q.Hops[0].Sample
		f := Finding{
			Evidence:    fmt.Sprintf("%s; no queue %s", q.deadLetterExchange(), text.Name(missing)),
			Consequence: q.rejectedIsLost() + x.soFar("no service declares the queue"),
			Remedy:      q.undecidable(),
		}
		if successor := x.successorOf(missing); successor != "" {
			f.Remedy = fmt.Sprintf("decide where dead letters of %s should go: %s seems to be replaced by %s; do not declare %s again",
				text.Name(q.Name), text.Name(missing), text.Name(successor), text.Name(missing))
		} else if len(missing) <= topology.MaxNameBytes && missing != "" && !q.givesBack() {
			f.Tries = []Fix{{Changes: x.declared(missing)}}
		}
		if !q.To.HasKey {
			f.Evidence = q.deadLetterExchange() + " without a dead-letter routing key; no queue is named " +
				"like the keys that messages come with: " + q.keyList(survey.Nowhere)
			f.Remedy, f.Tries = q.undecidable(), x.deadLettering(q)
		}
		return f, true
	})}
}

// successorOf returns the queue that seems to have replaced one that does not exist: NAME.v2.
func (x *index) successorOf(missing string) string {
	for _, q := range x.queues {
		version, ok := strings.CutPrefix(q.Name, missing+".v")
		if ok && version != "" && strings.Trim(version, "0123456789") == "" {
			return q.Name
		}
	}
	return ""
}

func (q *queue) keyList(v survey.Verdict) string {
	var names []string
	for _, h := range q.Hops {
		if h.Verdict == v {
			names = append(names, h.Keys.String())
		}
	}
	slices.Sort(names)
	return text.FirstOf(names, 3)
}

const (
	unroutedDefinitions = `{
  "exchanges": [{"name": "dlx", "type": "direct", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "billing"}},
    {"name": "billing.dead", "durable": true}],
  "bindings": [{"source": "dlx", "destination": "billing.dead", "destination_type": "queue", "routing_key": %q}]}`
	partlyDefinitions = `{
  "exchanges": [{"name": "events", "type": "topic", "durable": true}, {"name": "dlx", "type": "topic", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "dlx"}},
    {"name": "billing.dead", "durable": true}],
  "bindings": [
    {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.placed"},
    {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "refund.asked"},
    {"source": "dlx", "destination": "billing.dead", "destination_type": "queue", "routing_key": %q}]}`
)

func unrouted() check {
	return check{Rule{
		ID: "dead-letter-unrouted", Severity: Error, Group: groupLost,
		Title: "No binding takes the dead letters of the queue",
		Why: "The dead-letter exchange exists, and no binding of it matches the keys with which messages are dead-lettered. " +
			"RabbitMQ drops them without an error. Typical causes are a missing binding, and a # on a direct exchange.",
		Fix:  "Bind a dead-letter queue with the key that the evidence names.",
		Hit:  Example{Definitions: fmt.Sprintf(unroutedDefinitions, "#")},
		Miss: Example{Definitions: fmt.Sprintf(unroutedDefinitions, "billing")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.DeadLetters || q.To.Exchange == "" || x.Exchange(q.To.Exchange) == nil || !q.AllLost() {
			return Finding{}, false
		}
		evidence := fmt.Sprintf("%s; %s", q.deadLetterExchange(), q.Hops[0].Why())
		if !q.To.HasKey {
			evidence += ", for messages with " + q.keyList(survey.Nowhere)
		}
		return Finding{
			Evidence:    evidence,
			Consequence: q.rejectedIsLost() + x.soFar("no service binds a queue"),
			Remedy:      q.undecidable(),
			Tries:       x.keep(q, x.Exchange(q.To.Exchange).Exchange),
		}, true
	})}
}

func partlyUnrouted() check {
	return check{Rule{
		ID: "dead-letter-partly-unrouted", Severity: Error, Group: groupLost,
		Title: "Some dead letters of the queue reach no queue",
		Why: "The queue has no dead-letter routing key, so that its dead letters keep the keys of the messages. The " +
			"dead-letter exchange has bindings for some of these keys only, and RabbitMQ drops messages with the others. " +
			"Where the keys come from a pattern, the rule warns. Where any key may come, or publishers choose by the key how " +
			"long a message waits, it is a note: which keys they use is not known.",
		Fix:  "Set a dead-letter routing key, or bind the dead-letter queue with # on a topic exchange.",
		Hit:  Example{Definitions: fmt.Sprintf(partlyDefinitions, "order.*")},
		Miss: Example{Definitions: fmt.Sprintf(partlyDefinitions, "#")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.DeadLetters || q.AllLost() || x.Exchange(q.To.Exchange) == nil {
			return Finding{}, false
		}
		bad := slices.IndexFunc(q.Hops, func(h survey.Hop) bool { return h.Verdict == survey.Nowhere })
		f := Finding{Consequence: "a message with one of these keys " + q.failing() + " is lost"}
		v := survey.Nowhere
		if bad < 0 {
			bad = slices.IndexFunc(q.Hops, func(h survey.Hop) bool { return h.Verdict == survey.Partly })
			f.Severity, v = Warning, survey.Partly
			f.Consequence = "a message " + q.failing() + " is lost if no binding of the dead-letter exchange matches its key"
		}
		if bad < 0 {
			return Finding{}, false
		}
		if q.Hops[bad].Keys == survey.AnyKey() || v == survey.Partly && x.DelaysPublished(q.Queue) {
			f.Severity = Note
		}
		f.Evidence = fmt.Sprintf("%s; messages come with %s, and %s", q.deadLetterExchange(), q.keyList(v),
			q.Hops[bad].Why())
		if q.losesAllKnown() {
			f.Evidence += "; no message is known to come with a key that is bound"
		}
		if q.To.AtLeastOnce {
			f.Consequence = "such a message stays in the queue, invisible to consumers, and counts against its length"
		}
		f.Consequence += x.soFar("no service binds a queue")
		f.Remedy, f.Tries = q.undecidable(), x.keep(q, x.Exchange(q.To.Exchange).Exchange)
		return f, true
	})}
}

// losesAllKnown reports whether each message that services are known to publish takes a hop to
// nowhere.
func (q *queue) losesAllKnown() bool {
	known := slices.DeleteFunc(slices.Clone(q.Hops), func(h survey.Hop) bool { return !h.Known })
	return len(known) > 0 &&
		!slices.ContainsFunc(known, func(h survey.Hop) bool { return h.Verdict != survey.Nowhere })
}

func atMostOnce() check {
	return check{Rule{
		ID: "dead-letters-at-most-once", Severity: Note, Group: groupLost,
		Title: "A dead letter is lost if its target cannot take it",
		Why: "RabbitMQ removes a dead letter from its queue before another queue has confirmed it. If the target is full, has " +
			"no leader, or the node stops in between, the message is lost. Only quorum queues can dead-letter at least once.",
		Fix: "On a quorum queue set the dead-letter strategy at-least-once and the overflow reject-publish, as the work " +
			"queues of dlxctl have them. One with a length limit then refuses messages when it is full: publishers need confirms.",
		Hit: Example{Definitions: deadLetteringTo(`"x-queue-type": "quorum"`)},
		Miss: Example{Definitions: deadLetteringTo(
			`"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.DeadLetters || q.To.AtLeastOnce || q.Temporary() || q.AllLost() || q.asksAtLeastOnce() {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    fmt.Sprintf("%s; queue of type %s", q.deadLetterExchange(), q.Type()),
			Consequence: "a dead letter of " + text.Name(q.Name) + " is lost if the queue that it goes to cannot take it",
			Remedy: fmt.Sprintf("decide whether %s should become a quorum queue: only those dead-letter at least once",
				text.Name(q.Name)),
		}
		if q.Type() == topology.Quorum {
			f.Evidence += " without x-dead-letter-strategy at-least-once"
			f.Remedy, f.Tries = x.refusing(q, topology.Arguments{topology.KeyDeadLetterStrategy: topology.AtLeastOnce},
				topology.ArgDeadLetterStrategy, topology.ArgOverflow)
		}
		return f, true
	})}
}

// deadLetteringTo returns definitions of a queue with a dead-letter queue and more arguments.
func deadLetteringTo(arguments string) string {
	return `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead", ` +
		arguments + `}},
  {"name": "billing.dead", "durable": true, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 2147483647}}]}`
}

// asksAtLeastOnce reports whether an argument or the policy asks for at-least-once dead-lettering.
func (q *queue) asksAtLeastOnce() bool {
	return q.Args[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce
}

func atLeastOnceNotInEffect() check {
	return check{Rule{
		ID: "at-least-once-not-in-effect", Severity: Error, Group: groupLost,
		Title: "At-least-once dead-lettering is set and not in effect",
		Why: "A quorum queue dead-letters at least once only with the overflow reject-publish. With drop-head, which is the " +
			"default, RabbitMQ falls back to at most once, and says so in its log alone. On quorum queues the overflow of a " +
			"policy overrides that of the arguments.",
		Fix: "Set the overflow reject-publish by a policy. A queue with a length limit then refuses messages when it is full: " +
			"publishers need confirms.",
		Hit: Example{Definitions: deadLetteringTo(`"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once"`)},
		Miss: Example{Definitions: deadLetteringTo(
			`"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		overflow, set := q.Args[topology.ArgOverflow]
		if !q.DeadLetters || q.Type() != topology.Quorum || !q.asksAtLeastOnce() || overflow == topology.RejectPublish {
			return Finding{}, false
		}
		why := "x-overflow is not set, and drop-head by default"
		if set {
			why = q.argument(topology.ArgOverflow)
		}
		f := Finding{
			Evidence: q.argument(topology.ArgDeadLetterStrategy) + "; " + why,
			Consequence: "dead letters of " + text.Name(q.Name) +
				" are lost if the queue that they go to cannot take them",
		}
		f.Remedy, f.Tries = x.refusing(q, nil, topology.ArgOverflow, topology.ArgDeadLetterStrategy)
		return f, true
	})}
}

func deadLetterKeyAlone() check {
	return check{Rule{
		ID: "dead-letter-key-without-exchange", Severity: Error, Group: groupLost,
		Title: "A dead-letter routing key without a dead-letter exchange",
		Why: "A dead-letter routing key does nothing by itself. As an argument RabbitMQ refuses the queue; in a policy it " +
			"accepts the key, and rejected messages are lost.",
		Fix: "Set the dead-letter exchange too; the empty one addresses a queue by its name.",
		Hit: Example{Definitions: `{"queues": [{"name": "billing", "durable": true}],
  "policies": [{"name": "dlq", "pattern": "^billing$", "apply-to": "queues", "priority": 0,
    "definition": {"dead-letter-routing-key": "billing.dead"}}]}`},
		Miss: Example{Definitions: `{"queues": [
  {"name": "billing", "durable": true}, {"name": "billing.dead", "durable": true}],
  "policies": [{"name": "dlq", "pattern": "^billing$", "apply-to": "queues", "priority": 0,
    "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "billing.dead"}}]}`},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.DeadLetters || q.Type() == topology.Stream || !q.Args.HasAny(topology.ArgDeadLetterRoutingKey) {
			return Finding{}, false
		}
		key, _ := q.Args[topology.ArgDeadLetterRoutingKey].(string)
		f := Finding{
			Evidence:    q.argument(topology.ArgDeadLetterRoutingKey) + "; no dead-letter exchange",
			Consequence: "a message that a consumer of " + text.Name(q.Name) + " rejects is lost",
			Remedy: fmt.Sprintf("decide to which exchange %s should dead-letter, and set it where the key is set",
				text.Name(q.Name)),
			Tries: x.setting(q, topology.Arguments{topology.KeyDeadLetterExchange: "", topology.KeyDeadLetterRoutingKey: key}),
		}
		for i := range f.Tries {
			f.Tries[i].Changes = slices.Concat(x.declared(key), f.Tries[i].Changes)
		}
		if q.Arguments.HasAny(topology.ArgDeadLetterRoutingKey) {
			f.Consequence, f.Tries = "RabbitMQ refuses to declare the queue, and to import the file", nil
		}
		return f, true
	})}
}

// isCycle reports whether a way ends because the broker takes it for a cycle.
func isCycle(w survey.Way) bool {
	return slices.ContainsFunc(w.Ends, func(e route.End) bool { return e.Cause == route.Cycle })
}
