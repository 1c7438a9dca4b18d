package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// bindingChecks are the rules about bindings, alternate exchanges and what is not bound.
func bindingChecks() []check {
	return []check{
		bindingDangling(), wildcardOnDirect(), headersBindingEmpty(), keyOnFanout(), alternateMissing(), noAlternate(),
		exchangeUnbound(), queueUnbound(), notDurable(),
	}
}

// boundTo returns definitions of an exchange with one binding.
func boundTo(kind, key, arguments string) string {
	return fmt.Sprintf(`{"exchanges": [{"name": "events", "type": %q, "durable": true}],
 "queues": [{"name": "billing", "durable": true}, {"name": "reports", "durable": true}],
 "bindings": [
  {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": %q, "arguments": {%s}},
  {"source": "events", "destination": "reports", "destination_type": "queue", "routing_key": "", "arguments": {"format": "pdf"}}]}`,
		kind, key, arguments)
}

// ofBindings returns what a rule finds that looks at one binding at a time, and at the exchange
// that it is from, which is nil if it does not exist.
func ofBindings(find func(*index, *exchange, topology.Binding) (Finding, bool)) func(*index) []Finding {
	return func(x *index) (out []Finding) {
		for _, b := range x.State.Have.Bindings {
			if b.Source == "" {
				continue // RabbitMQ binds each queue to the default exchange
			}
			if f, ok := find(x, x.Exchange(b.Source), b); ok {
				f.Object = b.ID()
				out = append(out, f)
			}
		}
		return out
	}
}

func bindingDangling() check {
	return check{Rule{
		ID: "binding-dangling", Severity: Error, Group: groupPublished,
		Title: "A binding names a queue or an exchange that does not exist",
		Why: "RabbitMQ 3.10 drops such a binding when it imports the file, without an error: messages that it should route " +
			"are lost. RabbitMQ 4 refuses the file, after it has imported a part of it.",
		Fix: "Declare what is missing in the file, or remove the binding.",
		Hit: Example{Definitions: `{"exchanges": [{"name": "events", "type": "topic", "durable": true}],
 "bindings": [{"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"}]}`},
		Miss: Example{Definitions: `{"exchanges": [{"name": "events", "type": "topic", "durable": true}],
 "queues": [{"name": "billing", "durable": true}],
 "bindings": [{"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"}]}`},
	}, ofBindings(func(x *index, e *exchange, b topology.Binding) (Finding, bool) {
		f := Finding{Consequence: "RabbitMQ 3.10 drops the binding without an error, and 4.x refuses the file"}
		queue, exchange := x.byName[b.Destination], x.Exchange(b.Destination)
		switch {
		case e == nil:
			f.Evidence = fmt.Sprintf("binding %s; no exchange %s", b, text.Name(b.Source))
			f.Remedy = x.dangling(b, "exchange "+text.Name(b.Source))
		case b.DestinationType == topology.ToExchange && exchange == nil:
			f.Evidence = fmt.Sprintf("binding %s; no exchange %s", b, text.Name(b.Destination))
			f.Remedy = x.dangling(b, "exchange "+text.Name(b.Destination))
		case b.DestinationType == topology.ToQueue && queue == nil:
			f.Evidence = fmt.Sprintf("binding %s; no queue %s", b, text.Name(b.Destination))
			f.Remedy = x.dangling(b, "queue "+text.Name(b.Destination))
		default:
			return Finding{}, false
		}
		return f, true
	})}
}

// dangling says what to decide about a binding in a file.
func (x *index) dangling(b topology.Binding, missing string) string {
	return fmt.Sprintf("decide whether the file should have the %s, as the service that uses it declares it, or remove the binding %s from the file",
		missing, b)
}

func wildcardOnDirect() check {
	return check{Rule{
		ID: "wildcard-on-direct", Severity: Error, Group: groupPublished,
		Title: "A wildcard in a binding of a direct exchange",
		Why: "A direct exchange compares keys as they are: # and * match nothing but themselves. The binding routes no " +
			"message, unless publishers use that very key.",
		Fix:  "Use a topic exchange, or bind the keys one by one.",
		Hit:  Example{Definitions: boundTo("direct", "order.*", "")},
		Miss: Example{Definitions: boundTo("topic", "order.*", "")},
	}, ofBindings(func(_ *index, e *exchange, b topology.Binding) (Finding, bool) {
		if e == nil || e.Type != topology.Direct || !survey.IsPattern(b.Key) {
			return Finding{}, false
		}
		f := Finding{
			Evidence: fmt.Sprintf("binding %s; %s is a direct exchange", b, text.Name(e.Name)),
			Consequence: fmt.Sprintf("%s gets only messages whose key is %s", text.Name(b.Destination),
				text.Name(b.Key)),
			Remedy: fmt.Sprintf("decide which keys %s should get, and bind each of them; or declare a topic exchange of another "+
				"name for the pattern, as the type of an exchange never changes", text.Name(b.Destination)),
		}
		if e.Keyed[b.Key] {
			return Finding{}, false // a queue dead-letters with that key
		}
		return f, true
	})}
}

// compares returns the headers that a binding of a headers exchange compares.
func compares(b topology.Binding) []string {
	mode, _ := b.Arguments[topology.ArgMatch].(string)
	return slices.DeleteFunc(b.Arguments.Names(), func(name string) bool {
		return name == topology.ArgMatch || strings.HasPrefix(name, "x-") && !strings.HasSuffix(mode, "-with-x")
	})
}

func headersBindingEmpty() check {
	return check{Rule{
		ID: "headers-binding-empty", Severity: Warning, Group: groupPublished,
		Title: "A binding of a headers exchange compares no header",
		Why: "A binding without headers matches every message; with x-match any it matches none. Headers that begin with x- " +
			"are not compared, except with all-with-x and any-with-x. If no binding of the exchange compares headers, it " +
			"works like a fanout exchange, and the rule is a note.",
		Fix:  "Name the headers as arguments of the binding, or use a fanout exchange.",
		Hit:  Example{Definitions: boundTo("headers", "", "")},
		Miss: Example{Definitions: boundTo("headers", "", `"format": "csv"`)},
	}, ofBindings(func(_ *index, e *exchange, b topology.Binding) (Finding, bool) {
		if e == nil || e.Type != topology.Headers || len(compares(b)) > 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    fmt.Sprintf("binding %s without headers to compare", b),
			Consequence: fmt.Sprintf("%s gets every message of %s", text.Name(b.Destination), text.Name(e.Name)),
			Remedy: fmt.Sprintf("decide which headers messages for %s have, add a binding with them as arguments, and then delete this one",
				text.Name(b.Destination)),
		}
		if mode, _ := b.Arguments[topology.ArgMatch].(string); strings.HasPrefix(mode, "any") {
			f.Consequence = fmt.Sprintf("the binding routes no message to %s", text.Name(b.Destination))
			return f, true
		}
		if !slices.ContainsFunc(e.Out, func(b topology.Binding) bool { return len(compares(b)) > 0 }) {
			f.Severity = Note
		}
		return f, true
	})}
}

func keyOnFanout() check {
	return check{Rule{
		ID: "key-on-fanout", Severity: Note, Group: groupPublished,
		Title: "A fanout exchange ignores the routing key of a binding",
		Why:   "A fanout exchange routes every message to every binding. The key of the binding has no effect.",
		Fix:   "Remove the key, or use a direct or topic exchange if the key should select messages.",
		Hit:   Example{Definitions: boundTo("fanout", "order.placed", "")},
		Miss:  Example{Definitions: boundTo("topic", "order.placed", "")},
	}, ofBindings(func(_ *index, e *exchange, b topology.Binding) (Finding, bool) {
		if e == nil || e.Type != topology.Fanout || b.Key == "" {
			return Finding{}, false
		}
		plain := b
		plain.Key = ""
		return Finding{
			Evidence:    fmt.Sprintf("binding %s; %s is a fanout exchange", b, text.Name(e.Name)),
			Consequence: fmt.Sprintf("%s gets every message, whatever its key", text.Name(b.Destination)),
			Remedy:      "decide whether the key should select messages: a fanout exchange ignores it",
			Tries:       []Fix{{Changes: []Change{put(plain), {Delete: true, Object: b}}}},
		}, true
	})}
}

// eachExchange returns the findings about exchanges that RabbitMQ does not have by itself.
func (x *index) eachExchange(find func(*exchange) (Finding, bool)) []Finding {
	var out []Finding
	for _, e := range x.Exchanges {
		if e.BuiltIn || strings.HasPrefix(e.Name, "amq.") {
			continue
		}
		if f, ok := find(e); ok {
			f.Object = e.ID()
			out = append(out, f)
		}
	}
	return out
}

// ofExchanges returns what a rule finds that looks at one exchange at a time.
func ofExchanges(find func(*index, *exchange) (Finding, bool)) func(*index) []Finding {
	return func(x *index) []Finding {
		return x.eachExchange(func(e *exchange) (Finding, bool) { return find(x, e) })
	}
}

// withAlternate returns definitions of an exchange with an alternate exchange.
func withAlternate(name string) string {
	return `{"exchanges": [
  {"name": "events", "type": "topic", "durable": true, "arguments": {` + name + `}},
  {"name": "unrouted", "type": "fanout", "durable": true}],
 "queues": [{"name": "billing", "durable": true}, {"name": "unrouted", "durable": true}],
 "bindings": [
  {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"},
  {"source": "unrouted", "destination": "unrouted", "destination_type": "queue", "routing_key": ""}]}`
}

// alternateText says in evidence which alternate exchange an exchange has.
func alternateText(e *exchange) string {
	if e.AlternateBy != "" {
		return "alternate-exchange " + text.Name(e.Alternate) + " (policy " + e.AlternateBy + ")"
	}
	return "alternate-exchange " + text.Name(e.Alternate) + " (argument)"
}

func alternateMissing() check {
	return check{Rule{
		ID: "alternate-exchange-missing", Severity: Error, Group: groupPublished,
		Title: "The alternate exchange does not exist",
		Why: "RabbitMQ drops a message that no binding matches if the alternate exchange does not exist, as it does without " +
			"one, and writes a warning to its log.",
		Fix:  "Declare the exchange, and bind a queue to it.",
		Hit:  Example{Definitions: withAlternate(`"alternate-exchange": "nowhere"`)},
		Miss: Example{Definitions: withAlternate(`"alternate-exchange": "unrouted"`)},
	}, ofExchanges(func(x *index, e *exchange) (Finding, bool) {
		if !e.HasAlternate || x.Exchange(e.Alternate) != nil {
			return Finding{}, false
		}
		return Finding{
			Evidence: alternateText(e) + "; no such exchange",
			Consequence: fmt.Sprintf("a message to %s that no binding matches is lost", text.Name(e.Name)) +
				x.soFar("no service declares the exchange"),
			Remedy: fmt.Sprintf("decide which queue should get what no binding matches: declare the exchange %s, and bind the queue to it",
				text.Name(e.Alternate)),
			Tries: unroutedTo(e.Alternate),
		}, true
	})}
}

// unroutedTo returns the fix that declares an alternate exchange, and a queue of its name for it.
func unroutedTo(name string, more ...Change) []Fix {
	return []Fix{{Changes: append([]Change{
		put(keeper(name)), put(topology.Exchange{Name: name, Type: topology.Fanout, Durable: true}), bound(name, name, ""),
	}, more...)}}
}

func noAlternate() check {
	return check{Rule{
		ID: "no-alternate-exchange", Severity: Note, Group: groupPublished, Off: true,
		Title: "Messages that no binding matches are lost",
		Why: "Without an alternate exchange RabbitMQ drops a message that no binding matches, unless the publisher sets the " +
			"flag mandatory and handles what is returned. Most exchanges are like that, so that the rule is off.",
		Fix:  "Set an alternate exchange by a policy, and bind a queue to it.",
		Hit:  Example{Definitions: withAlternate("")},
		Miss: Example{Definitions: withAlternate(`"alternate-exchange": "unrouted"`)},
	}, ofExchanges(func(_ *index, e *exchange) (Finding, bool) {
		if e.HasAlternate || e.Internal || len(e.DeadLettersOf)+len(e.AlternateOf) > 0 || takesAll(e) {
			return Finding{}, false
		}
		return Finding{
			Evidence:    "no alternate-exchange argument, and no policy with alternate-exchange",
			Consequence: fmt.Sprintf("a message to %s that no binding matches is lost", text.Name(e.Name)),
			Remedy:      "decide which queue should get what no binding matches, and set an alternate exchange for it",
			Tries: unroutedTo(e.Name+".unrouted", put(topology.Policy{
				Name: e.Name + "-alternate", Pattern: topology.QueuesPattern([]string{e.Name}), ApplyTo: "exchanges",
				Definition: topology.Arguments{topology.ArgAlternateExchange: e.Name + ".unrouted"},
			})),
		}, true
	})}
}

// takesAll reports whether some binding matches every message.
func takesAll(e *exchange) bool {
	return slices.ContainsFunc(e.Out, func(b topology.Binding) bool {
		return e.Type == topology.Fanout || e.Type == topology.Topic && b.Key == "#"
	})
}

func exchangeUnbound() check {
	return check{Rule{
		ID: "exchange-unbound", Severity: Note, Group: groupPublished,
		Title: "Nothing is bound to the exchange",
		Why: "Every message that is published to the exchange is dropped. Services may bind temporary queues when they start, " +
			"which a file does not have; on a running broker the rule is a warning.",
		Fix:  "Bind a queue, or delete the exchange.",
		Hit:  Example{Definitions: `{"exchanges": [{"name": "events", "type": "topic", "durable": true}]}`},
		Miss: Example{Definitions: boundTo("topic", "order.*", "")},
	}, ofExchanges(func(x *index, e *exchange) (Finding, bool) {
		if len(e.Out) > 0 || e.HasAlternate || len(e.DeadLettersOf) > 0 {
			return Finding{}, false
		}
		if owner, marked := topology.Owner(e.Arguments); marked {
			if _, generated := topology.ExchangeLabelOf(owner, e.Name); generated {
				return Finding{}, false // bound while the route of failures changes
			}
		}
		f := Finding{
			Evidence:    fmt.Sprintf("exchange of type %s without bindings and without an alternate exchange", e.Type),
			Consequence: fmt.Sprintf("every message to %s is lost", text.Name(e.Name)) + x.soFar("no service binds a queue"),
			Remedy:      fmt.Sprintf("decide which queue should get the messages of %s, and bind it, or delete the exchange", text.Name(e.Name)),
		}
		if x.in.Live != nil {
			f.Severity = Warning
		}
		return f, true
	})}
}

func queueUnbound() check {
	return check{Rule{
		ID: "queue-unbound", Severity: Note, Group: groupPublished,
		Title: "Only the default exchange leads to the queue",
		Why: "The queue has no binding, and no queue dead-letters to it. Publishers have to name the queue itself. That may " +
			"be meant, for task queues.",
		Fix: "Bind the queue, or delete it if no service uses it.",
		Hit: Example{Definitions: oneQueue("")}, Miss: Example{Definitions: boundTo("topic", "order.*", "")},
	}, ofQueues(func(_ *index, q *queue) (Finding, bool) {
		if len(q.Bindings)+len(q.From) > 0 || q.Temporary() ||
			q.Role != topology.RoleWork && (q.Role != topology.RoleDeadLetter || q.Made) {
			return Finding{}, false
		}
		return Finding{
			Evidence:    "no binding, and no queue dead-letters here",
			Consequence: fmt.Sprintf("only messages that are published to the name %s arrive", text.Name(q.Name)),
			Remedy:      fmt.Sprintf("decide which exchange should route to %s, and bind it, or delete the queue if no service uses it", text.Name(q.Name)),
		}, true
	})}
}

func notDurable() check {
	return check{Rule{
		ID: "not-durable", Severity: Warning, Group: groupPublished,
		Title: "A restart of the broker deletes the object",
		Why: "A queue or exchange that is not durable is gone after a restart, with its messages and bindings. RabbitMQ has " +
			"deprecated queues that are neither durable nor exclusive; 4.3.6 accepts them, unless its configuration forbids it.",
		Fix:  "Declare it as durable. Neither can be changed: it is deleted and declared again, or replaced.",
		Hit:  Example{Definitions: `{"queues": [{"name": "billing", "durable": false, "auto_delete": false}]}`},
		Miss: Example{Definitions: `{"queues": [{"name": "billing", "durable": true, "auto_delete": false}]}`},
	}, func(x *index) []Finding {
		queues := x.each(func(q *queue) (Finding, bool) {
			if q.Durable || q.External || q.Temporary() || q.Role == topology.RoleDeadLetter {
				return Finding{}, false
			}
			return Finding{
				Evidence:    "queue with durable false",
				Consequence: fmt.Sprintf("%s and all of its messages are lost when the broker restarts", text.Name(q.Name)),
				Remedy: fmt.Sprintf("decide when %s can be declared as durable: that of a queue never changes, so it is deleted, "+
					"with its messages, and then declared by the service that uses it", text.Name(q.Name)),
				Tries: x.replacing(q),
			}, true
		})
		exchanges := x.eachExchange(func(e *exchange) (Finding, bool) {
			if e.Durable || e.External || e.AutoDelete {
				return Finding{}, false
			}
			return Finding{
				Evidence:    "exchange with durable false",
				Consequence: fmt.Sprintf("%s and its bindings are gone when the broker restarts", text.Name(e.Name)),
				Remedy: fmt.Sprintf("decide when publishers can use a durable exchange of another name, with the same bindings: "+
					"whether %s is durable never changes, and its deletion deletes its bindings", text.Name(e.Name)),
			}, true
		})
		return slices.Concat(queues, exchanges)
	}}
}
