package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// astrayChecks are the rules about messages that do not get to the queue that is meant for them.
func astrayChecks() []check {
	return []check{retryReturnsNothing(), waitingDeleted(), alternateUnrouted()}
}

// retryInto returns definitions of a queue with a retry queue that has these arguments.
func retryInto(arguments string) string {
	return `{
  "exchanges": [{"name": "events", "type": "topic", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.retry"}},
    {"name": "billing.retry", "durable": true, "arguments": {"x-dead-letter-exchange": "", ` + arguments + `}},
    {"name": "reports", "durable": true}],
  "bindings": [
    {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"},
    {"source": "events", "destination": "reports", "destination_type": "queue", "routing_key": "report.*"}]}`
}

func retryReturnsNothing() check {
	return check{Rule{
		ID: "retry-queue-returns-nothing", Severity: Warning, Group: groupRetries,
		Title: "Failed messages do not come back from the retry queue",
		Why: "Dead letters wait in the queue, and never return to the queue in which they failed. Either it has no TTL: " +
			"RabbitMQ removes the TTL of a message when it dead-letters it. Or its messages go to other queues, whose " +
			"consumers do not expect them; of these, only queues that are named for retries are found.",
		Fix:  "Set a TTL by a policy, or correct the dead-letter routing key of the retry queue.",
		Hit:  Example{Definitions: retryInto(`"x-message-ttl": 5000, "x-dead-letter-routing-key": "reports"`)},
		Miss: Example{Definitions: retryInto(`"x-message-ttl": 5000, "x-dead-letter-routing-key": "billing"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Made || q.Role != topology.RoleRetry || q.Business() {
			return Finding{}, false
		}
		fed := "; queues that dead-letter here: " + list(q.From)
		switch {
		case !q.Args.HasAny(topology.ArgMessageTTL) && !q.DropsHead():
			return Finding{
				Evidence: "no TTL" + fed,
				Consequence: fmt.Sprintf("a dead letter that comes to %s stays there, as RabbitMQ has removed its own TTL",
					text.Name(q.Name)),
				Remedy: fmt.Sprintf("decide how long failed messages should wait, and set message-ttl for %s by a policy",
					text.Name(q.Name)),
			}, true
		case saysRetry(q.Name) && !x.comesBack(q):
			return Finding{
				Evidence: fmt.Sprintf("%s; its messages go to %s%s", q.deadLetterExchange(), list(q.Targets()), fed),
				Consequence: fmt.Sprintf("consumers of %s get the failed messages of %s", list(q.Targets()),
					list(q.From)),
				Remedy: fmt.Sprintf("decide to which queue %s should return messages, and correct its dead-letter routing key or "+
					"the bindings of its dead-letter exchange", text.Name(q.Name)),
			}, true
		default:
			return Finding{}, false
		}
	})}
}

// saysRetry reports whether a name says that messages return from a queue.
func saysRetry(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"retry", "retries", "redeliver", "backoff"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// givesBack reports whether messages are meant to wait in the queue and then go to one that works
// on them: only its name tells where none gets them.
func (q *queue) givesBack() bool {
	return q.Waits() || saysRetry(q.Name) && q.Args.HasAny(topology.ArgMessageTTL)
}

// comesBack reports whether messages of a retry queue return to a queue in which they died, perhaps
// through other queues in which they wait.
func (x *index) comesBack(q *queue) bool {
	through := func(next func(*queue) []string) map[string]bool {
		seen := map[string]bool{}
		for todo := next(q); len(todo) > 0; todo = todo[1:] {
			if o := x.byName[todo[0]]; !seen[o.Name] {
				seen[o.Name] = true
				if o.Waits() {
					todo = append(todo, next(o)...)
				}
			}
		}
		return seen
	}
	from := through(func(q *queue) []string { return slices.Clone(q.From) })
	for name := range through(func(q *queue) []string { return q.Targets() }) {
		if from[name] && !x.byName[name].Waits() {
			return true
		}
	}
	return false
}

func waitingDeleted() check {
	return check{Rule{
		ID: "waiting-queue-deleted", Severity: Error, Group: groupRetries,
		Title: "RabbitMQ deletes the queue in which messages wait",
		Why: "A queue with x-expires is deleted, with all messages in it, when it had no consumer for that time. Each " +
			"declaration of a classic queue begins the time anew; that of a quorum queue does not. An auto-delete queue is " +
			"deleted when its last consumer leaves. Queues in which messages wait have no consumers. Where publishers alone " +
			"use a classic queue, and its TTL is shorter than x-expires, it is a warning: a publisher that declares it before " +
			"each message loses none.",
		Fix:  "Remove x-expires or auto-delete.",
		Hit:  Example{Definitions: retryInto(`"x-message-ttl": 5000, "x-dead-letter-routing-key": "billing", "x-expires": 60000`)},
		Miss: Example{Definitions: retryInto(`"x-message-ttl": 5000, "x-dead-letter-routing-key": "billing"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		expires, set := q.number(topology.ArgExpires)
		if q.Made || q.Exclusive || !q.Waits() || !set && !q.AutoDelete {
			return Finding{}, false
		}
		evidence := "auto-delete"
		if set {
			evidence = q.argument(topology.ArgExpires)
		}
		f := Finding{
			Evidence:    fmt.Sprintf("%s; messages wait here for %s", evidence, list(q.Targets())),
			Consequence: fmt.Sprintf("the messages that wait in %s are lost with it", text.Name(q.Name)),
			Remedy: fmt.Sprintf("decide when %s can be declared without it: the arguments of a queue never change, so it is deleted, "+
				"with its messages, and then declared by the service that uses it", text.Name(q.Name)),
		}
		if set {
			f.Remedy, f.Tries = x.fixed(q, topology.ArgExpires), x.unsetting(q, topology.ArgExpires)
		}
		ttl, hasTTL := q.number(topology.ArgMessageTTL)
		if hasTTL && set && ttl < expires && len(q.From) == 0 && q.Type() == topology.Classic {
			f.Severity = Warning
			f.Consequence += ", if a publisher does not declare it before each message"
		}
		return f, true
	})}
}

func alternateUnrouted() check {
	const partly = `{
  "exchanges": [
    {"name": "events", "type": "topic", "durable": true, "arguments": {"alternate-exchange": "unrouted"}},
    {"name": "unrouted", "type": "topic", "durable": true}],
  "queues": [{"name": "billing", "durable": true}, {"name": "unrouted", "durable": true}],
  "bindings": [
    {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"},
    {"source": "unrouted", "destination": "unrouted", "destination_type": "queue", "routing_key": %q}]}`
	return check{Rule{
		ID: "alternate-exchange-unrouted", Severity: Warning, Group: groupPublished,
		Title: "The alternate exchange routes only some keys",
		Why: "An alternate exchange gets the messages that no binding matches, with the keys that publishers gave them. A " +
			"topic or direct exchange that is bound with a few keys drops the others.",
		Fix: "Use a fanout exchange, or bind the queue that holds what no binding matches with # where the alternate exchange " +
			"is a topic exchange.",
		Hit:  Example{Definitions: fmt.Sprintf(partly, "unrouted")},
		Miss: Example{Definitions: fmt.Sprintf(partly, "#")},
	}, ofExchanges(func(x *index, e *exchange) (Finding, bool) {
		to := x.Exchange(e.Alternate)
		if !e.HasAlternate || to == nil || len(to.Out) == 0 || e.Internal {
			return Finding{}, false
		}
		lost := slices.ContainsFunc(survey.AnyKey().Samples(), func(key string) bool {
			result := x.Router.Publish(e.Name, key, nil)
			return len(result.Queues)+len(result.Unknown) == 0
		})
		if !lost {
			return Finding{}, false
		}
		f := Finding{
			Evidence: fmt.Sprintf("%s, of type %s, without a binding that takes every key", alternateText(e), to.Type),
			Consequence: fmt.Sprintf("a message to %s that no binding matches is lost, unless a binding of %s matches its key",
				text.Name(e.Name), text.Name(to.Name)),
			Remedy: fmt.Sprintf("decide which queue should get what no binding matches, and bind it to a fanout exchange that is the "+
				"alternate exchange of %s", text.Name(to.Name)),
		}
		if to.Type == topology.Topic && x.holdsUnrouted(to) {
			f.Tries = []Fix{{Changes: []Change{bound(to.Name, to.Out[0].Destination, "#")}}}
		}
		return f, true
	})}
}

// holdsUnrouted reports whether an exchange leads to one queue alone, in which messages that no
// binding matches only wait, and no other exchange and no queue leads to it: the queue may get
// whatever comes. One on whose messages consumers work gets only what it is bound for.
func (x *index) holdsUnrouted(e *exchange) bool {
	q := x.byName[e.Out[0].Destination]
	return q != nil && q.Role == topology.RoleUnroutable && len(e.In)+len(e.DeadLettersOf) == 0 &&
		!slices.ContainsFunc(e.Out, func(b topology.Binding) bool {
			return b.DestinationType != topology.ToQueue || b.Destination != q.Name
		})
}
