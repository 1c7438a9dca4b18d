package audit

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// lossChecks are the rules about queues whose messages are gone when they die.
func lossChecks() []check {
	return []check{
		expiresIntoNothing(), overflowsIntoNothing(), deliveryLimitIntoNothing(), overflowNotSupported(),
		minusOneBefore4(), noDeadLettering(),
	}
}

// oneQueue returns definitions of a queue with these arguments.
func oneQueue(arguments string) string {
	return `{"queues": [{"name": "billing", "durable": true, "auto_delete": false, "arguments": {` + arguments + `}}]}`
}

// drops reports whether a queue of the business lets go of messages without dead-lettering them,
// whichever policy RabbitMQ chooses.
func (q *queue) drops() bool {
	return !q.DeadLetters && q.Role == topology.RoleWork && !q.Temporary() && q.Fate() == Lost
}

// letsGo reports the same of a queue that only holds what no other binding takes.
func (q *queue) letsGo() bool {
	return q.drops() || !q.DeadLetters && q.Role == topology.RoleUnroutable && !q.Temporary()
}

// keeping sets the fixes by which a queue keeps its messages: those that it works on by
// dead-lettering, others without the limits that these arguments are.
func (x *index) keeping(f Finding, q *queue, limits ...string) Finding {
	f.Remedy, f.Tries = x.fixed(q), x.deadLettering(q)
	if q.Role == topology.RoleUnroutable {
		f.Remedy, f.Tries = x.fixed(q, limits...), x.unsetting(q, limits...)
	}
	return f
}

func expiresIntoNothing() check {
	return check{Rule{
		ID: "expires-into-nothing", Severity: Warning, Group: groupLost,
		Title: "Messages that expire are lost",
		Why: "The queue has a TTL and no dead-letter exchange. A message that no consumer takes in time is deleted. That may " +
			"be meant, for messages that are worth nothing when they are late.",
		Fix:  "Attach dead-lettering to the queue, or remove the TTL.",
		Hit:  Example{Definitions: oneQueue(`"x-message-ttl": 60000`)},
		Miss: Example{Definitions: deadLetteringTo(`"x-message-ttl": 60000`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		ttl, set := q.number(topology.ArgMessageTTL)
		if !set || !q.letsGo() {
			return Finding{}, false
		}
		return x.keeping(Finding{
			Evidence: q.argument(topology.ArgMessageTTL) + "; no dead-letter exchange",
			Consequence: fmt.Sprintf("a message that no consumer of %s takes within %s is lost", text.Name(q.Name),
				text.Millis(ttl)),
		}, q, topology.ArgMessageTTL), true
	})}
}

func overflowsIntoNothing() check {
	return check{Rule{
		ID: "overflows-into-nothing", Severity: Warning, Group: groupLost,
		Title: "A full queue loses its oldest messages",
		Why: "The queue has a length limit, drops its oldest message when it is full, and has no dead-letter exchange. " +
			"That may be meant, for messages of which only the newest count.",
		Fix:  "Attach dead-lettering, or set the overflow reject-publish, so that publishers learn that the queue is full.",
		Hit:  Example{Definitions: oneQueue(`"x-max-length": 1000`)},
		Miss: Example{Definitions: oneQueue(`"x-max-length": 1000, "x-overflow": "reject-publish"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.DropsHead() || !q.letsGo() || q.unsupportedOverflow() {
			return Finding{}, false
		}
		return x.keeping(Finding{
			Evidence:    x.cause(q, route.MaxLen) + "; overflow drop-head; no dead-letter exchange",
			Consequence: fmt.Sprintf("when %s is full, its oldest message is lost", text.Name(q.Name)),
		}, q, q.limits()...), true
	})}
}

func deliveryLimitIntoNothing() check {
	return check{Rule{
		ID: "delivery-limit-into-nothing", Severity: Error, Group: groupLost,
		Title: "Messages that are returned too often are lost",
		Why: "A quorum queue counts how often a message is returned, and gives it up beyond its delivery limit; since 4.3 it " +
			"does not count basic.nack. Since 4.0 the limit is 20 where none is set. Without a dead-letter exchange the message is dropped: crashing consumers, " +
			"requeues, and people who look at messages lose them. Where the version is not known, the default limit is a warning.",
		Fix:  "Attach dead-lettering, or set the delivery limit 2147483647, which is none on all versions.",
		Hit:  Example{Definitions: oneQueue(`"x-queue-type": "quorum"`), Version: "4.0.5"},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum"`), Version: "3.13.7"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Type() != topology.Quorum || !q.drops() {
			return Finding{}, false
		}
		limit, byDefault, limited := x.Delivers(q.Queue)
		f := Finding{Remedy: x.fixed(q), Tries: x.deadLettering(q)}
		switch {
		case limited && !byDefault:
			f.Evidence = q.argument(topology.ArgDeliveryLimit) + "; no dead-letter exchange"
		case limited:
			f.Evidence = fmt.Sprintf("quorum queue with the delivery limit %d, the default since 4.0; no dead-letter exchange",
				limit)
		case x.State.Version == "" && !q.Args.HasAny(topology.ArgDeliveryLimit):
			limit, f.Severity = 20, Warning
			f.Evidence = "quorum queue without a delivery limit, which is 20 since 4.0 and none before; no dead-letter exchange"
		default:
			return Finding{}, false
		}
		f.Consequence = fmt.Sprintf("a message that is returned to %s more than %s%s is lost", text.Name(q.Name),
			text.Count(limit, "time"), x.uncounted())
		return f, true
	})}
}

// uncounted says which returns do not count, as the continuation of a number of times: on 4.3.6,
// basic.reject and the end of a channel count, and basic.nack does not (measured).
func (x *index) uncounted() string {
	if x.State.AtLeast(4, 3) {
		return " (basic.nack does not count)"
	}
	return ""
}

// unsupportedOverflow reports whether the queue has an overflow that its type does not know.
func (q *queue) unsupportedOverflow() bool {
	return q.Type() == topology.Quorum && q.Args[topology.ArgOverflow] == policy.RejectPublishDLX
}

func overflowNotSupported() check {
	return check{Rule{
		ID: "overflow-not-supported", Severity: Error, Group: groupLost,
		Title: "A quorum queue takes reject-publish-dlx for drop-head",
		Why: "Quorum queues do not know the overflow reject-publish-dlx. RabbitMQ accepts the argument, and uses drop-head: " +
			"a full queue drops its oldest message instead of refusing the newest one.",
		Fix:  "Use reject-publish on quorum queues. A full queue then refuses messages: publishers need confirms.",
		Hit:  Example{Definitions: oneQueue(`"x-queue-type": "quorum", "x-max-length": 100, "x-overflow": "reject-publish-dlx"`)},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum", "x-max-length": 100, "x-overflow": "reject-publish"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.unsupportedOverflow() || !q.Args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes) {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    q.argument(topology.ArgOverflow) + "; queue of type quorum; " + x.cause(q, route.MaxLen),
			Consequence: fmt.Sprintf("when %s is full, its oldest message is lost", text.Name(q.Name)),
		}
		f.Remedy, f.Tries = x.refusing(q, nil, topology.ArgOverflow)
		if q.DeadLetters {
			f.Severity = Warning
			f.Consequence = fmt.Sprintf("when %s is full, its oldest message is dead-lettered, and publishers are not told",
				text.Name(q.Name))
		}
		return f, true
	})}
}

func minusOneBefore4() check {
	return check{Rule{
		ID: "limit-minus-one-on-3x", Severity: Error, Group: groupNoEffect,
		Title: "The delivery limit -1 is 0 before 4.0",
		Why: "Since 4.0 the delivery limit -1 means none. RabbitMQ 3.x reads it as 0, and gives up a message at its first " +
			"return. Where the version is not known, the rule is a note.",
		Fix: "Use 2147483647, which is no limit on all versions. Where -1 is an argument, replace the queue: of an argument and " +
			"a policy RabbitMQ 3.x applies the smaller limit.",
		Hit:  Example{Definitions: oneQueue(`"x-queue-type": "quorum", "x-delivery-limit": -1`), Version: "3.10.8"},
		Miss: Example{Definitions: oneQueue(`"x-queue-type": "quorum", "x-delivery-limit": 2147483647`), Version: "3.10.8"},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		limit, set := q.number(topology.ArgDeliveryLimit)
		if !set || limit >= 0 || q.Type() != topology.Quorum || x.State.Major() >= 4 {
			return Finding{}, false
		}
		f := Finding{
			Evidence: q.argument(topology.ArgDeliveryLimit),
			Remedy:   x.fixed(q, topology.ArgDeliveryLimit),
			// A policy helps where a policy says -1, as in a file of 4.x, and not where an argument does.
			Tries: slices.Concat(x.setting(q, topology.Arguments{topology.KeyDeliveryLimit: topology.Unlimited}),
				x.replacing(q)),
		}
		end := "lost"
		if q.DeadLetters {
			end = "dead-lettered"
		}
		f.Consequence = fmt.Sprintf("a message that a consumer returns to %s is %s at once", text.Name(q.Name), end)
		if x.State.Version == "" {
			f.Severity, f.Consequence = Note, "before 4.0, "+f.Consequence
		}
		return f, true
	})}
}

func noDeadLettering() check {
	return check{Rule{
		ID: "no-dead-lettering", Severity: Note, Group: groupLost,
		Title: "Rejected messages are lost",
		Why: "The queue has no dead-letter exchange. A message that a consumer rejects without requeue is deleted. Consumers " +
			"that never reject lose nothing.",
		Fix:  "Attach dead-lettering by a policy: the service that declares the queue needs no change.",
		Hit:  Example{Definitions: oneQueue("")},
		Miss: Example{Definitions: deadLetteringTo(`"x-queue-type": "classic"`)},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if !q.drops() {
			return Finding{}, false
		}
		return Finding{
			Evidence:    "no x-dead-letter-exchange argument, and no policy with dead-letter-exchange",
			Consequence: fmt.Sprintf("a message that a consumer of %s rejects is lost", text.Name(q.Name)),
			Remedy:      x.fixed(q),
			Tries:       x.deadLettering(q),
		}, true
	})}
}
