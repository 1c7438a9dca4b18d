package audit

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// keeperChecks are the rules about dead-letter queues: they should keep what they get.
func keeperChecks() []check {
	return []check{
		keeperExpires(), keeperDeleted(), keeperDrops(), keeperRefuses(), keeperDeliveryLimit(), keeperDeadLetters(),
		keeperShared(), keeperTransient(),
	}
}

// deadLettersIn returns definitions of a queue and its dead-letter queue with these arguments.
func deadLettersIn(arguments string) string {
	return `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead"}},
  {"name": "billing.dead", "durable": true, "auto_delete": false, "arguments": {` + arguments + `}}]}`
}

// sources lists the queues whose dead letters a queue gets, as the end of the evidence.
func (q *queue) sources() string {
	from := list(q.From)
	switch {
	case len(q.From) == 0 && q.Made:
		from = "work queues"
	case len(q.From) == 0:
		from = "none, its name says what it is for"
	}
	return "; queues that dead-letter here: " + from
}

// gives returns the settings with these arguments by which a dead-letter queue gives up messages. A
// failed queue of dlxctl gives up none but with itself: it dead-letters what it does not keep.
func (q *queue) gives(arguments ...string) []policy.Loss {
	failed := q.Made && q.Role == topology.RoleFailed && slices.Contains(arguments, topology.ArgExpires)
	if q.Role != topology.RoleDeadLetter && !failed {
		return nil
	}
	return slices.DeleteFunc(q.Losses(), func(l policy.Loss) bool { return !slices.Contains(arguments, l.Argument) })
}

func keeperExpires() check {
	return check{Rule{
		ID: "dead-letter-queue-expires", Severity: Error, Group: groupNotKept,
		Title: "The dead-letter queue deletes its messages",
		Why: "The queue has a TTL and no dead-letter exchange: RabbitMQ deletes what it should keep. " +
			"A TTL of a day or more is a warning, as it may be a retention that is meant: the messages count as kept.",
		Fix: "Remove the TTL. Where it comes from a policy for many queues, exclude the dead-letter queue from its pattern.",
		Hit: Example{Definitions: deadLettersIn(`"x-message-ttl": 60000`)}, Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		losses := q.gives(topology.ArgMessageTTL)
		if len(losses) == 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    q.argument(topology.ArgMessageTTL) + q.sources(),
			Consequence: fmt.Sprintf("dead letters are lost after %s", text.Millis(losses[0].Limit)),
			Remedy:      x.fixed(q, topology.ArgMessageTTL),
			Tries:       x.unsetting(q, topology.ArgMessageTTL),
		}
		if q.Retains(route.Expired) {
			f.Severity = Warning
		}
		return f, true
	})}
}

func keeperDeleted() check {
	return check{Rule{
		ID: "dead-letter-queue-deleted", Severity: Error, Group: groupNotKept,
		Title: "RabbitMQ deletes the dead-letter queue with its messages",
		Why: "A queue with x-expires is deleted, with all messages in it, when it has had no consumer for that time. An " +
			"auto-delete queue is deleted when its last consumer leaves. Dead-letter queues have no consumers most of the time.",
		Fix: "Remove x-expires or auto-delete.",
		Hit: Example{Definitions: deadLettersIn(`"x-expires": 3600000`)}, Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		losses := q.gives(topology.ArgExpires, policy.AutoDelete)
		if len(losses) == 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    "auto-delete" + q.sources(),
			Consequence: "every dead letter is lost when the last consumer disconnects",
			Remedy: fmt.Sprintf("decide when %s can be declared without auto-delete: that of a queue never changes, so it is "+
				"deleted, with its messages, and then declared by the service that uses it", text.Name(q.Name)),
		}
		if losses[0].Argument == topology.ArgExpires {
			f.Evidence = q.argument(topology.ArgExpires) + q.sources()
			lost := "every dead letter is"
			if q.Role == topology.RoleFailed {
				lost = "all failed messages are"
			}
			f.Consequence = fmt.Sprintf("%s lost after %s without a consumer", lost, text.Millis(losses[0].Limit))
			f.Remedy, f.Tries = x.fixed(q, topology.ArgExpires), x.unsetting(q, topology.ArgExpires)
		}
		return f, true
	})}
}

func keeperDrops() check {
	return check{Rule{
		ID: "dead-letter-queue-drops", Severity: Error, Group: groupNotKept,
		Title: "A full dead-letter queue loses its oldest messages",
		Why: "The dead-letter queue has a length limit and drops its oldest message when it is full. During an outage, when " +
			"dead letters matter most, the first ones are lost. A limit of 10,000 messages or more is a warning, as it may be " +
			"a retention that is meant: the messages count as kept.",
		Fix: "Remove the limit, and set an alert on the length instead.",
		Hit: Example{Definitions: deadLettersIn(`"x-max-length": 1000`)}, Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if len(q.gives(q.limits()...)) == 0 {
			return Finding{}, false
		}
		f := Finding{
			Evidence:    x.cause(q, route.MaxLen) + ", overflow drop-head" + q.sources(),
			Consequence: fmt.Sprintf("when %s is full, its oldest dead letter is lost", text.Name(q.Name)),
			Remedy:      x.fixed(q, q.limits()...),
			Tries:       x.unsetting(q, q.limits()...),
		}
		if q.Retains(route.MaxLen) {
			f.Severity = Warning
		}
		return f, true
	})}
}

// limits are the arguments in effect that limit the length of a queue.
func (q *queue) limits() []string {
	var out []string
	for _, name := range []string{topology.ArgMaxLength, topology.ArgMaxLengthBytes} {
		if q.Args.HasAny(name) {
			out = append(out, name)
		}
	}
	return out
}

func keeperRefuses() check {
	return check{Rule{
		ID: "dead-letter-queue-refuses", Severity: Warning, Group: groupNotKept,
		Title: "A full dead-letter queue refuses dead letters",
		Why: "The dead-letter queue has a length limit and the overflow reject-publish. A queue that dead-letters at most " +
			"once does not see the refusal, and the dead letter is lost. One that dead-letters at least once keeps it.",
		Fix:  "Remove the limit, and set an alert on the length instead.",
		Hit:  Example{Definitions: deadLettersIn(`"x-max-length": 1000, "x-overflow": "reject-publish"`)},
		Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Role != topology.RoleDeadLetter || !q.Refuses() {
			return Finding{}, false
		}
		var exposed []string
		for _, name := range q.From {
			if !x.byName[name].To.AtLeastOnce {
				exposed = append(exposed, name)
			}
		}
		if len(exposed) == 0 {
			return Finding{}, false
		}
		return Finding{
			Evidence: fmt.Sprintf("%s, %s; at-most-once dead-lettering from %s", x.cause(q, route.MaxLen),
				q.argument(topology.ArgOverflow), list(exposed)),
			Consequence: fmt.Sprintf("while %s is full, further dead letters are lost", text.Name(q.Name)),
			Remedy:      x.fixed(q, q.limits()...),
			Tries:       x.unsetting(q, q.limits()...),
		}, true
	})}
}

func keeperDeliveryLimit() check {
	return check{Rule{
		ID: "dead-letter-queue-delivery-limit", Severity: Warning, Group: groupNotKept,
		Title: "Looking at dead letters loses them",
		Why: "A quorum queue gives up a message that was returned more often than its delivery limit, which since 4.0 is 20 " +
			"where none is set. Each look at a message by a client that returns it counts, except by basic.nack since 4.3. And since 4.3 a " +
			"message brings its count along from the queue in which it died: one that died of its delivery limit is " +
			"above an equal limit here, and the first look loses it, however it is returned.",
		Fix: "Set the delivery limit 2147483647, which is none on all versions.",
		Hit: Example{Definitions: deadLettersIn(`"x-queue-type": "quorum"`), Version: "4.0.5"},
		Miss: Example{
			Definitions: deadLettersIn(`"x-queue-type": "quorum", "x-delivery-limit": 2147483647`),
			Version:     "4.0.5",
		},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		limit, byDefault, limited := x.Delivers(q.Queue)
		unset := !q.Args.HasAny(topology.ArgDeliveryLimit)
		if q.Role != topology.RoleDeadLetter || q.DeadLetters || q.Type() != topology.Quorum ||
			!limited && (x.State.Version != "" || !unset) {
			return Finding{}, false
		}
		f := Finding{
			Evidence: q.argument(topology.ArgDeliveryLimit) + q.sources(),
			Remedy:   x.fixed(q, topology.ArgDeliveryLimit),
			Tries:    x.unsetting(q, topology.ArgDeliveryLimit),
		}
		if !limited {
			limit = 20
		}
		if byDefault || !limited {
			f.Evidence = "quorum queue without a delivery limit, which is 20 since 4.0" + q.sources()
			f.Tries = x.setting(q, topology.Arguments{topology.KeyDeliveryLimit: topology.Unlimited})
		}
		f.Consequence = fmt.Sprintf("a dead letter that is looked at and returned more than %s%s is lost",
			text.Count(limit, "time"), x.uncounted())
		if x.State.AtLeast(4, 3) {
			f.Consequence += "; returns before its death count, so the first look may lose it"
		}
		return f, true
	})}
}

func keeperDeadLetters() check {
	return check{Rule{
		ID: "dead-letter-queue-dead-letters", Severity: Note, Group: groupNotKept,
		Title: "A dead-letter queue dead-letters on",
		Why: "Messages leave the dead-letter queue when a client rejects them, or when they expire or are dropped for " +
			"length. They are then in another queue than the one where operators look.",
		Fix: "Remove the dead-letter exchange from the dead-letter queue, unless a second stage is meant.",
		Hit: Example{Definitions: `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead"}},
  {"name": "billing.dead", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "old"}},
  {"name": "old", "durable": true}]}`},
		Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Role != topology.RoleDeadLetter || !q.DeadLetters {
			return Finding{}, false
		}
		return Finding{
			Evidence:    q.deadLetterExchange() + q.sources(),
			Consequence: "a dead letter that a client rejects here leaves the queue",
			Remedy: fmt.Sprintf("decide whether a second stage is meant; if not, %s",
				x.fixed(q, topology.ArgDeadLetterExchange)),
		}, true
	})}
}

func keeperShared() check {
	return check{Rule{
		ID: "dead-letter-queue-shared", Severity: Note, Group: groupNotKept,
		Title: "Several queues share a dead-letter queue",
		Why: "Which queue a dead letter came from stands only in its header x-death. To give messages back, each has to be " +
			"sent to the queue that the header names.",
		Fix: "Give each queue a dead-letter queue of its own, or keep the shared one and use dlxctl desk, which reads the header.",
		Hit: Example{Definitions: `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}},
  {"name": "reports", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}},
  {"name": "dead", "durable": true}]}`},
		Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(x *index, q *queue) (Finding, bool) {
		if q.Role != topology.RoleDeadLetter || len(q.From) < 2 {
			return Finding{}, false
		}
		return Finding{
			Evidence:    "queues that dead-letter here: " + list(q.From),
			Consequence: "only the header x-death tells from which queue a dead letter came",
			Remedy:      lookAt(x, q),
		}, true
	})}
}

func keeperTransient() check {
	return check{Rule{
		ID: "dead-letter-queue-not-durable", Severity: Warning, Group: groupNotKept,
		Title: "A restart of the broker deletes the dead letters",
		Why:   "The dead-letter queue is not durable: when the node stops, RabbitMQ deletes it with all messages in it.",
		Fix:   "Declare the queue as durable. A queue cannot be changed: it is deleted and declared again, or replaced.",
		Hit: Example{Definitions: `{"queues": [
  {"name": "billing", "durable": true, "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dead"}},
  {"name": "billing.dead", "durable": false, "auto_delete": false}]}`},
		Miss: Example{Definitions: deadLettersIn("")},
	}, ofQueues(func(_ *index, q *queue) (Finding, bool) {
		if q.Role != topology.RoleDeadLetter || q.Durable || q.Temporary() {
			return Finding{}, false
		}
		return Finding{
			Evidence:    "durable is false" + q.sources(),
			Consequence: "all dead letters are lost when the broker restarts",
			Remedy: fmt.Sprintf("decide when %s can be declared as durable: that of a queue never changes, so it is deleted, "+
				"with its messages, and then declared by the service that uses it", text.Name(q.Name)),
		}, true
	})}
}
