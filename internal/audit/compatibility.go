package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/definitions"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// compatibilityChecks are the rules about what RabbitMQ refuses or ignores.
func compatibilityChecks() []check {
	return []check{
		argumentRefused(), argumentUnknown(), delayedRetry(), delayedPlugin(), topicKeyRefused(),
		typeWithoutArgument(), fieldMissing(), exchangeLeftOut(), definedTwice(),
	}
}

func argumentRefused() check {
	return check{Rule{
		ID: "argument-refused", Severity: Error, Group: groupRefused, Upgrade: Refused,
		Source: "3.10.8, 4.0.5 and 4.3.6 measured: each argument on each type of queue",
		Title:  "RabbitMQ refuses the queue because of an argument",
		Why: "Each type of queue knows its own arguments, and RabbitMQ refuses to declare a queue with an argument of another " +
			"type or with a value that it cannot use. An import of definitions stops there, after a part of the file.",
		Fix:  "Remove or correct the argument.",
		Hit:  Example{Definitions: oneQueue(`"x-delivery-limit": 5`)},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": ""`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		var wrong, names []string
		for _, p := range arguments.Refused(x.State.Version, q.Type(), q.Arguments) {
			says := p.Msg
			if !p.Misplaced {
				says = p.String()
			}
			wrong, names = append(wrong, says), append(names, p.Argument)
		}
		if len(wrong) == 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    strings.Join(wrong, ". "),
			Consequence: "RabbitMQ refuses to declare the queue, and stops the import of the file",
			Remedy:      fmt.Sprintf("remove %s from the queue %s in the file, or correct the value", strings.Join(names, ", "), text.Name(q.Name)),
		}
		if slices.Equal(names, []string{"x-queue-master-locator"}) { // measured on 4.3.6
			f.Consequence = "RabbitMQ refuses to declare the queue, and an import leaves it out without an error"
		}
		if x.in.For != "" && q.only(names...) {
			f.Tries = choosing(x.replacing(q), "replaces %s by a queue without %s: the service that declares it has to use that",
				text.Name(q.Name), strings.Join(names, ", "))
		}
		return f, true
	})}
}

func argumentUnknown() check {
	return check{Rule{
		ID: "argument-unknown", Severity: Warning, Group: groupNoEffect,
		Title: "RabbitMQ does not know the argument",
		Why: "RabbitMQ stores an argument that it does not know, and does nothing with it. If the name resembles one that it " +
			"knows, that one was probably meant; else the rule is a note.",
		Fix:  "Correct the name. Arguments of queues begin with x-; the alternate exchange of an exchange does not.",
		Hit:  Example{Definitions: oneQueue(`"message-ttl": 1000`)},
		Miss: Example{Definitions: oneQueue(`"x-message-ttl": 1000`)},
	}, func(x *index) []Finding {
		known := arguments.Known()
		queues := x.each(func(q *queue) (Finding, bool) {
			var parts []string
			severity := Note
			for _, name := range q.Arguments.Names() {
				if slices.Contains(known, name) {
					continue
				}
				part := name + " " + describe(name, q.Arguments[name])
				if meant := arguments.Meant(name); meant != "" {
					part, severity = part+": did you mean "+meant+"?", Warning
				}
				parts = append(parts, part)
			}
			if len(parts) == 0 {
				return Finding{}, false
			}
			return Finding{
				Severity: severity, Evidence: strings.Join(parts, "; "),
				Consequence: "RabbitMQ ignores it: the queue behaves as if it were not there",
				Remedy: fmt.Sprintf("decide what was meant; the arguments of a queue never change: correct the name where a service declares %s, "+
					"once the queue is deleted", text.Name(q.Name)),
			}, true
		})
		exchanges := x.eachExchange(func(e *exchange) (Finding, bool) {
			for _, name := range e.Arguments.Names() {
				if name != "x-alternate-exchange" && name != "x-dead-letter-exchange" && name != "alternate_exchange" {
					continue
				}
				return Finding{
					Evidence: fmt.Sprintf("%s %s: did you mean %s?", name, describe(name, e.Arguments[name]),
						topology.ArgAlternateExchange),
					Consequence: fmt.Sprintf("RabbitMQ ignores it: a message to %s that no binding matches is lost", text.Name(e.Name)),
					Remedy: fmt.Sprintf("set %s for %s by a policy: the arguments of an exchange never change",
						topology.ArgAlternateExchange, text.Name(e.Name)),
				}, true
			}
			return Finding{}, false
		})
		return slices.Concat(queues, exchanges)
	}}
}

func delayedRetry() check {
	return check{Rule{
		ID: "delayed-retry-disregarded", Severity: Warning, Group: groupNoEffect,
		Title: "RabbitMQ accepts arguments of a delayed retry and does not follow them",
		Why: "RabbitMQ 4.3 does not check the arguments of a delayed retry. With a wrong x-delayed-retry-type, or a wrong or " +
			"missing x-delayed-retry-min, it redelivers a returned message at once. A wrong x-delayed-retry-max is not a " +
			"maximum, and one below the minimum is the delay. It refuses a policy with such keys.",
		Fix: "Correct the arguments, or set the keys by a policy, which RabbitMQ checks.",
		Hit: Example{Definitions: oneQueue(`"x-queue-type": "quorum", "x-delayed-retry-type": "all"`)},
		Miss: Example{
			Definitions: oneQueue(`"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 1000`),
		},
	}, func(x *index) []Finding {
		keys := arguments.DelayedRetry()
		return x.each(func(q *queue) (Finding, bool) {
			problems := arguments.Disregarded(q.Type(), q.Arguments)
			if len(problems) == 0 || q.policy.Definition.HasAny(keys...) || q.operator.Definition.HasAny(keys...) {
				return Finding{}, false
			}
			f := Finding{
				Consequence: "a message that a consumer returns does not wait as long as the arguments say",
				Remedy: fmt.Sprintf("decide how long messages should wait; the arguments of a queue never change: correct them where a "+
					"service declares %s, once the queue is deleted", text.Name(q.Name)),
			}
			says := text.Each(problems, arguments.Problem.String)
			f.Evidence = strings.Join(says, ". ")
			return f, true
		})
	}}
}

func delayedPlugin() check {
	return check{Rule{
		ID: "delayed-plugin", Severity: Warning, Group: groupPublished, Upgrade: Refused,
		Source: "4.0.5 and 4.3.6 measured, without the plugin",
		Title:  "Delayed messages are on one node only",
		Why: "An exchange of type x-delayed-message holds messages in a table of the node that received them, without a copy. " +
			"They are in no queue, and no client can read them out, cancel or move them: the plugin tells their number alone " +
			"(messages_delayed of the exchange), and each node counts its own (source of the plugin). They are lost " +
			"with that node, or when the plugin is disabled. Nothing " +
			"tells a publisher that a delayed message reaches no queue. No release of the plugin is for RabbitMQ 4.3, which " +
			"refuses the exchange: there it is an error.",
		Fix: "For retries use queues with a TTL, such as a backoff of dlxctl; for other messages a delay of dlxctl, which takes " +
			"the header x-delay. Let publishers publish there, and wait until the exchange holds nothing, on each node, before " +
			"you delete it, disable the plugin or upgrade. docs/delayed-messages.md has the steps.",
		Hit: Example{Definitions: `{"exchanges": [{"name": "later", "type": "x-delayed-message", "durable": true,
  "arguments": {"x-delayed-type": "direct"}}]}`},
		Miss: Example{Definitions: boundTo("topic", "order.*", "")},
	}, ofExchanges(func(x *index, e *exchange) (Finding, bool) {
		if e.Type != topology.DelayedMessage {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    "exchange of type x-delayed-message",
			Consequence: "messages that wait there are lost with the node that holds them, and no client can read them out",
			Remedy: "decide how messages should wait instead: retries in a backoff of dlxctl, other messages in a delay of dlxctl; " +
				"let publishers publish there, and keep the plugin until the exchange holds nothing",
		}
		if x.in.Live != nil {
			if n, known := x.in.Live.Delayed[e.Name]; known {
				f.Evidence += fmt.Sprintf("; %s there now on the node that answered (messages_delayed)",
					text.Choose(n, "1 message waits", text.Count(n, "message")+" wait"))
			}
		}
		if x.State.AtLeast(4, 3) {
			f.Severity, f.Consequence = Error, "RabbitMQ 4.3 refuses the exchange, and the import of a file with it"
		} else if x.in.For != "" {
			f.Consequence = "RabbitMQ " + x.in.For + " refuses the exchange where the plugin is not enabled"
		}
		return f, true
	})}
}

// maxHashes is how many words # the key of a topic binding may have on 4.3.6. Older lines have no
// limit.
const maxHashes = 2

func topicKeyRefused() check {
	return check{Rule{
		ID: "topic-key-refused", Severity: Error, Group: groupRefused, Upgrade: Refused,
		Source: "3.10.8, 4.0.5 and 4.3.6 measured",
		Title:  "RabbitMQ 4.3 refuses a binding with more than two #",
		Why: "The key of a binding of a topic exchange may have two words # on RabbitMQ 4.3.6, which refuses a binding with " +
			"more, and with it the import of a file. Older lines accept it, and the rule is a note, as where the version is " +
			"not known.",
		Fix:  "Write # once where several follow each other, or bind shorter patterns one by one.",
		Hit:  Example{Definitions: boundTo("topic", "#.order.#.paid.#", ""), Version: "4.3.6"},
		Miss: Example{Definitions: boundTo("topic", "#.order.#", ""), Version: "4.3.6"},
	}, ofBindings(func(x *index, e *exchange, b topology.Binding) (Finding, bool) {
		n := 0
		for word := range strings.SplitSeq(b.Key, ".") {
			if word == "#" {
				n++
			}
		}
		if e == nil || e.Type != topology.Topic || n <= maxHashes {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    fmt.Sprintf("binding %s has %d words #", b, n),
			Consequence: "RabbitMQ 4.3.6 refuses the binding, and the import of a file with it",
			Remedy: fmt.Sprintf("decide which keys %s should get, and bind patterns with at most two # each",
				text.Name(b.Destination)),
		}
		if !x.State.AtLeast(4, 3) {
			f.Severity = Note
		}
		return f, true
	})}
}

// odd returns findings about oddities of a kind.
func (x *index) odd(kind definitions.OddityKind, find func(definitions.Oddity) Finding) []Finding {
	var out []Finding
	for _, o := range x.in.Oddities {
		if o.Kind == kind {
			f := find(o)
			f.Object = o.Object
			out = append(out, f)
		}
	}
	return out
}

func typeWithoutArgument() check {
	return check{Rule{
		ID: "type-without-argument", Severity: Error, Group: groupRefused,
		Title: "An import ignores the type of the queue",
		Why: "RabbitMQ reads the type of a queue from the argument x-queue-type and ignores the field type. A queue with the " +
			"field alone becomes a classic queue, without the safety of a quorum queue.",
		Fix:  "Write the type as the argument x-queue-type.",
		Hit:  Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "auto_delete": false, "type": "quorum", "arguments": {}}]}`},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum"`)},
	}, func(x *index) []Finding {
		return x.odd(definitions.TypeWithoutArgument, func(o definitions.Oddity) Finding {
			f := Finding{
				Evidence:    fmt.Sprintf("field type %s without the argument x-queue-type", text.Name(o.Value)),
				Consequence: "an import makes a classic queue, or one of the default type of the virtual host",
				Remedy:      fmt.Sprintf(`"arguments": {"x-queue-type": %q}`, o.Value),
			}
			if o.Value == topology.Classic {
				f.Severity, f.Consequence = Note, "an import makes a queue of the default type of the virtual host, which is classic as a rule"
			}
			return f
		})
	}}
}

func fieldMissing() check {
	return check{Rule{
		ID: "field-missing", Severity: Warning, Group: groupRefused,
		Title: "A field is missing that an import needs",
		Why: "RabbitMQ 3.10 refuses a queue without durable or auto_delete, and stores an exchange without auto_delete with a " +
			"value that prevents the deletion of the virtual host. Newer lines take a default. A binding without a routing " +
			"key or a destination type is refused by all, which is an error.",
		Fix:  "Write the field.",
		Hit:  Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "arguments": {}}]}`},
		Miss: Example{Definitions: oneQueue("")},
	}, func(x *index) []Finding {
		return x.odd(definitions.FieldMissing, func(o definitions.Oddity) Finding {
			f := Finding{
				Evidence:    "no field " + o.Field,
				Consequence: "RabbitMQ 3.10 refuses the file; newer lines take a default",
				Remedy:      fmt.Sprintf(`"%s": false`, o.Field),
			}
			switch {
			case o.Object.Kind == topology.KindBinding || o.Field == "vhost":
				f.Severity, f.Consequence = Error, "RabbitMQ refuses the file"
				f.Remedy = fmt.Sprintf(`"%s": ""`, o.Field)
				switch o.Field {
				case "vhost":
					f.Remedy = fmt.Sprintf(`"vhost": %q`, cmp.Or(x.State.VHost, "/"))
				case "destination_type":
					f.Remedy = `"destination_type": "queue", or "exchange"`
				}
			case o.Object.Kind == topology.KindExchange && o.Field == "auto_delete":
				f.Consequence = "before 4.3 RabbitMQ stores a value that prevents the deletion of the virtual host"
			case o.Field == "durable":
				f.Remedy = `"durable": true`
			}
			if x.State.Major() >= 4 && f.Severity != Error {
				f.Severity = Note
			}
			return f
		})
	}}
}

func exchangeLeftOut() check {
	return check{Rule{
		ID: "exchange-left-out", Severity: Warning, Group: groupRefused,
		Title: "The file has bindings of an exchange that it does not list",
		Why: "rabbitmqctl export_definitions leaves out internal exchanges, and keeps their bindings. Since 4.3 the exports of " +
			"the management API do so too. The file cannot restore the broker: an import refuses the bindings. What such an " +
			"exchange routes is not known.",
		Fix: "Add the exchange to the file, or audit the running broker. Before 4.3, GET /api/definitions has all exchanges.",
		Hit: Example{Definitions: `{"rabbitmq_version": "4.3.6",
 "exchanges": [{"name": "events", "type": "topic", "durable": true, "auto_delete": false}],
 "queues": [{"name": "billing", "durable": true, "auto_delete": false, "arguments": {}}],
 "bindings": [
  {"source": "events", "destination": "inner", "destination_type": "exchange", "routing_key": "#"},
  {"source": "inner", "destination": "billing", "destination_type": "queue", "routing_key": "#"}]}`, Version: "4.3.6"},
		Miss: Example{Definitions: boundTo("topic", "order.*", "")},
	}, func(x *index) []Finding {
		return x.odd(definitions.ExchangeLeftOut, func(o definitions.Oddity) Finding {
			return Finding{
				Evidence:    fmt.Sprintf("bindings name the exchange %s, which the file does not list", text.Name(o.Object.Name)),
				Consequence: "an import of the file fails, and the audit does not know what the exchange routes",
				Remedy: fmt.Sprintf("add the exchange %s to the file, with the type and the arguments that it has on the broker",
					text.Name(o.Object.Name)),
			}
		})
	}}
}

func definedTwice() check {
	return check{Rule{
		ID: "defined-twice", Severity: Warning, Group: groupRefused,
		Title: "The file has an object more than once",
		Why: "The definitions differ. An import keeps the first queue or exchange of a name and the last policy, and says " +
			"nothing.",
		Fix: "Keep one of the definitions.",
		Hit: Example{Definitions: `{"queues": [
  {"name": "billing", "durable": true, "auto_delete": false, "arguments": {}},
  {"name": "billing", "durable": true, "auto_delete": false, "arguments": {"x-message-ttl": 1000}}]}`},
		Miss: Example{Definitions: oneQueue("")},
	}, func(x *index) []Finding {
		return x.odd(definitions.DefinedTwice, func(o definitions.Oddity) Finding {
			kept := "the first one"
			if o.Object.Kind == topology.KindPolicy {
				kept = "the last one"
			}
			return Finding{
				Evidence: fmt.Sprintf("%s %s is defined more than once, with different values", o.Object.Kind,
					text.Name(o.Object.Name)),
				Consequence: "an import keeps " + kept + ", without an error",
				Remedy:      "delete the other definitions from the file",
			}
		})
	}}
}
