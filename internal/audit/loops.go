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

// loopChecks are the rules about dead letters that come back.
func loopChecks() []check {
	return []check{toItself(), cycleCut(), endlessRetries(), retryStarves()}
}

func toItself() check {
	return check{Rule{
		ID: "dead-letters-to-itself", Severity: Error, Group: groupRetries,
		Title: "The queue dead-letters to itself",
		Why: "A rejected message returns to the tail of the same queue at once, and is rejected again, as fast as consumers " +
			"can. A message that expires or is dropped for length is not returned: RabbitMQ sees a cycle and drops it.",
		Fix: "Dead-letter to another queue. For retries, use a queue with a TTL that dead-letters back, or a backoff of dlxctl.",
		Hit: Example{Definitions: `{
  "exchanges": [{"name": "events", "type": "topic", "durable": true}],
  "queues": [{"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "events"}}],
  "bindings": [{"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"}]}`},
		Miss: Example{Definitions: `{
  "exchanges": [{"name": "events", "type": "topic", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "dead.billing"}},
    {"name": "billing.dead", "durable": true}],
  "bindings": [
    {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"},
    {"source": "events", "destination": "billing.dead", "destination_type": "queue", "routing_key": "dead.*"}]}`},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		i := slices.IndexFunc(q.Hops, func(h survey.Hop) bool {
			return h.Verdict == survey.Routed && slices.Contains(h.Queues, q.Name)
		})
		if i < 0 {
			return Finding{}, false
		}
		h := q.Hops[i]
		result := x.Router.DeadLetter(q.Name, route.Message{Keys: h.Keys.Samples()[:1]}, route.Rejected)
		f := Finding{
			Evidence: fmt.Sprintf("%s; %s", q.deadLetterExchange(), pathText(result, q.Name)),
			Consequence: "a message that a consumer rejects comes back at once, forever; one that expires or is " +
				"dropped for length is lost",
			Remedy: x.fixed(q, topology.ArgDeadLetterExchange),
			Tries:  x.deadLettering(q),
		}
		if len(h.Queues) > 1 { // another queue keeps a copy
			f.Severity = Warning
			f.Consequence = fmt.Sprintf("a message that a consumer rejects comes back at once, forever, and each "+
				"time a copy goes to %s", list(slices.DeleteFunc(slices.Clone(h.Queues),
				func(name string) bool { return name == q.Name })))
		}
		if q.Role == topology.RoleDeadLetter {
			f.Severity = Warning
			f.Consequence = "a message that is rejected here comes back at once; one that expires or is dropped for " +
				"length is lost"
			f.Tries = x.unsetting(q, topology.ArgDeadLetterExchange) // it keeps what it has
		}
		return f, true
	})}
}

// pathText says through which bindings a message comes to a queue.
func pathText(result route.Result, queue string) string {
	var steps []string
	for _, s := range result.Path(queue) {
		switch s.Via {
		case route.ViaDefault:
			steps = append(steps, "the key "+text.Name(s.Key)+" names the queue")
		case route.ViaAlternate:
			steps = append(steps, "alternate exchange "+text.Name(s.Destination))
		case route.ViaBinding:
			steps = append(steps, "binding "+s.String())
		}
	}
	return strings.Join(steps, ", ")
}

// retryLoop returns definitions of a work queue and a queue with a TTL that dead-letter to each
// other, with more arguments of the work queue.
func retryLoop(arguments string) string {
	return `{
  "exchanges": [{"name": "events", "type": "topic", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.wait"` +
		arguments + `}},
    {"name": "billing.wait", "durable": true, "arguments": {"x-message-ttl": 10000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing"}}],
  "bindings": [{"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "order.*"}]}`
}

func cycleCut() check {
	return check{Rule{
		ID: "cycle-cut", Severity: Error, Group: groupRetries,
		Title: "RabbitMQ drops messages that go round in a loop without a consumer",
		Why: "A message that would be dead-lettered to a queue in which it died before is dropped, unless a consumer has " +
			"rejected it since. In a loop of queues that is what happens to a message that expires, is dropped for length, " +
			"or was returned too many times: it is lost without an error.",
		Fix: "Dead-letter these messages to a queue outside the loop, or remove the TTL or the length limit. A delivery " +
			"limit should stay: it ends what crashes its consumer.",
		Hit: Example{Definitions: retryLoop(`, "x-message-ttl": 60000`)}, Miss: Example{Definitions: retryLoop("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		i := slices.IndexFunc(q.Ways, func(w survey.Way) bool {
			return w.Fate == Lost && isCycle(w) && !q.Supposed(w)
		})
		if i < 0 {
			return Finding{}, false
		}
		w := q.Ways[i]
		return Finding{
			Evidence: fmt.Sprintf("%s; %s; the way of a failed message: %s", x.cause(q, w.Reason),
				q.deadLetterExchange(), cutText(q, w)),
			Consequence: fmt.Sprintf("a message %s is lost: RabbitMQ ends the cycle", x.dying(q, w.Reason)),
			Remedy:      x.fixed(q, causes(w.Reason)...),
			Tries:       x.withoutReason(q, w.Reason),
		}, true
	})}
}

// loopText lists the queues of a loop.
func loopText(q *queue, w survey.Way) string {
	names := []string{text.Name(q.Name)}
	for _, name := range w.Hops {
		names = append(names, text.Name(name))
	}
	return strings.Join(names, " → ")
}

// cutText lists the queues of a way that ends as a cycle, and says to which of them it returns.
func cutText(q *queue, w survey.Way) string {
	i := slices.IndexFunc(w.Ends, func(e route.End) bool { return e.Cause == route.Cycle })
	if back := w.Ends[i].Queue; back != q.Name {
		return loopText(q, w) + " and back to " + text.Name(back)
	}
	return loopText(q, w) + " and back"
}

// cause says which argument or policy makes messages of a queue die for a reason.
func (x *index) cause(q *queue, reason route.Reason) string {
	switch reason {
	case route.Expired:
		return q.argument(topology.ArgMessageTTL)
	case route.MaxLen:
		if q.Args.HasAny(topology.ArgMaxLength) {
			return q.argument(topology.ArgMaxLength)
		}
		return q.argument(topology.ArgMaxLengthBytes)
	case route.DeliveryLimit:
		if limit, byDefault, _ := x.Delivers(q.Queue); byDefault {
			return fmt.Sprintf("quorum queue with the delivery limit %d, the default since 4.0", limit)
		}
		return q.argument(topology.ArgDeliveryLimit)
	case route.Rejected:
		return "a consumer rejects a message"
	}
	return string(reason)
}

// dying says how messages of a queue die, as the continuation of "a message".
func (x *index) dying(q *queue, reason route.Reason) string {
	name := text.Name(q.Name)
	switch reason {
	case route.Expired:
		return "that expires in " + name
	case route.MaxLen:
		return "that " + name + " drops because it is full"
	case route.DeliveryLimit:
		limit, _, _ := x.Delivers(q.Queue)
		return fmt.Sprintf("that is returned to %s more than %d times%s", name, limit, x.uncounted())
	case route.Rejected:
		return "that a consumer of " + name + " rejects"
	}
	return "that dies in " + name
}

// causes are the arguments by which messages die for a reason.
func causes(reason route.Reason) []string {
	switch reason {
	case route.Expired:
		return []string{topology.ArgMessageTTL}
	case route.MaxLen:
		return []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes}
	case route.DeliveryLimit:
		return []string{topology.ArgDeliveryLimit}
	case route.Rejected:
	}
	return []string{topology.ArgDeadLetterExchange}
}

// withoutReason returns the fixes by which messages of a queue do not die for a reason, or go to
// another queue.
func (x *index) withoutReason(q *queue, reason route.Reason) []Fix {
	elsewhere := x.deadLettering(q)
	switch reason {
	case route.Expired, route.MaxLen:
		return slices.Concat(x.unsetting(q, causes(reason)...), elsewhere)
	case route.DeliveryLimit:
		// Last: without a limit, a message that crashes its consumer comes back without end.
		return slices.Concat(elsewhere, x.setting(q, topology.Arguments{topology.KeyDeliveryLimit: topology.Unlimited}))
	case route.Rejected:
	}
	return elsewhere
}

func endlessRetries() check {
	return check{Rule{
		ID: "retries-forever", Severity: Warning, Group: groupRetries,
		Title: "Failed messages are retried without end",
		Why: "The dead letters of the queue wait in a queue with a TTL and return. Nothing on the broker ends the loop: a " +
			"message that can never be processed goes round forever, unless its consumer counts the attempts.",
		Fix:  "Let dlxctl count the attempts: a backoff ends in a dead-letter queue.",
		Hit:  Example{Definitions: retryLoop("")},
		Miss: Example{Definitions: deadLetteringTo(`"x-queue-type": "classic"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Waits() || q.Generated() {
			return Finding{}, false
		}
		i := slices.IndexFunc(q.Ways, func(w survey.Way) bool {
			return w.Reason == route.Rejected && w.Fate == Kept && w.Returns && len(w.Hops) > 1 && !q.Supposed(w)
		})
		if i < 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence: fmt.Sprintf("%s; the way of a failed message: %s", q.deadLetterExchange(), loopText(q, q.Ways[i])),
			Consequence: fmt.Sprintf("a message that always fails is retried forever, unless the consumer of %s ends it",
				text.Name(q.Name)),
			Remedy: fmt.Sprintf("decide how often the consumer of %s should retry, and let it count", text.Name(q.Name)),
			Tries:  x.deadLettering(q),
		}
		return f, true
	})}
}

func retryStarves() check {
	const shared = `{
  "exchanges": [{"name": "events", "type": "direct", "durable": true}],
  "queues": [
    {"name": "billing", "durable": true, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 2147483647%s,
      "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}},
    {"name": "reports", "durable": true, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 2147483647,
      "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}},
    {"name": "wait", "durable": true, "arguments": {"x-queue-type": "quorum", "x-message-ttl": 1000,
      "x-dead-letter-exchange": "back", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}}],
  "bindings": [
    {"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": "billing"},
    {"source": "events", "destination": "reports", "destination_type": "queue", "routing_key": "reports"},
    {"source": "back", "destination": "billing", "destination_type": "queue", "routing_key": "wait"},
    {"source": "back", "destination": "reports", "destination_type": "queue", "routing_key": "wait"}]}`
	defs := strings.Replace(shared, `"direct", "durable": true}`,
		`"direct", "durable": true}, {"name": "back", "type": "fanout", "durable": true}`, 1)
	return check{Rule{
		ID: "retry-queue-starves", Severity: Warning, Group: groupRetries,
		Title: "A full queue holds up the retries of others",
		Why: "A retry queue that dead-letters at least once has at most 32 messages on their way. A work queue that is full " +
			"and refuses messages keeps these 32 places, and the retries of all other queues wait behind them.",
		Fix:  "Give the queue with the length limit a retry queue of its own, or drop the limit.",
		Hit:  Example{Definitions: fmt.Sprintf(defs, `, "x-max-length": 100, "x-overflow": "reject-publish"`)},
		Miss: Example{Definitions: fmt.Sprintf(defs, "")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.Waits() || !q.To.AtLeastOnce {
			return Finding{}, false
		}
		targets := q.Targets()
		full := slices.IndexFunc(targets, func(name string) bool { return x.byName[name].Refuses() })
		if full < 0 || len(targets) < 2 {
			return Finding{}, false
		}
		limited := x.byName[targets[full]]
		return Finding{
			Evidence: fmt.Sprintf("%s returns messages to %s; %s refuses messages: %s", text.Name(q.Name), list(targets),
				text.Name(limited.Name), x.cause(limited, route.MaxLen)),
			Consequence: fmt.Sprintf("while %s is full, the retries of the other queues wait", text.Name(limited.Name)),
			Remedy:      x.fixed(limited, limited.limits()...),
			Tries:       x.unsetting(limited, limited.limits()...),
		}, true
	})}
}
