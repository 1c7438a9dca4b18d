package spec

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// loops adds the retry loops of the backoffs in use. A native backoff has none: RabbitMQ delays its
// retries in the work queue itself, by the policy of the queue.
func (c *compiler) loops() {
	used := map[string]bool{}
	for _, q := range c.spec.Queues {
		used[q.Backoff] = true
	}
	for _, m := range c.spec.Matches {
		used[m.Backoff] = true
	}
	for _, b := range c.spec.Backoffs {
		switch {
		case !used[b.Name]:
		case b.Native:
			native := topology.Backoff{Name: b.Name, Native: true, Place: placed(b.Pos, b.Overlay)}
			for _, t := range b.waits() {
				native.Tiers = append(native.Tiers, topology.Tier{Delay: t.Delay})
			}
			c.out.Native = append(c.out.Native, native)
		default:
			c.loop(b)
		}
	}
}

// loop adds the loop of one backoff: what the processor reads, the headers
// exchange it publishes to, and the queues in which messages wait. A message that a
// consumer publishes to the failed queue may have an expiration, which a rejected one
// loses: if it passes there, the message is a dead letter of its work queue.
func (c *compiler) loop(b Backoff) {
	failed := topology.FailedQueueName(c.spec.Name, b.Name)
	args := c.holding().With(topology.ArgDeadLetterExchange, topology.DeadLetterName(c.spec.Name))
	if c.spec.Type == topology.Quorum {
		deadLetterSafely(args)
	}
	c.queue(failed, args, topology.Label{Role: topology.RoleFailed, Backoff: b.Name})

	loop := topology.Backoff{
		Name: b.Name, FailedQueue: failed,
		RetryExchange: topology.RetryExchangeName(c.spec.Name, b.Name),
		Tiers:         c.steps(b), RetryOn: slices.Clone(b.RetryOn), RetryUntil: b.RetryUntil,
		AfterExpiry: b.AfterExpiry,
		Place:       placed(b.Pos, b.Overlay),
	}
	if b.Outage != nil {
		outage := *b.Outage
		outage.Tier = topology.Tier{Delay: loop.OutageDelay(), Queue: topology.OutageQueueName(c.spec.Name, b.Name)}
		loop.Outage = &outage
	}
	c.out.Backoffs = append(c.out.Backoffs, loop)
	c.retries(loop)
}

// steps returns one step for each attempt of b.
func (c *compiler) steps(b Backoff) []topology.Tier {
	var steps []topology.Tier
	for _, tier := range b.Tiers {
		name := topology.RetryQueueName(c.spec.Name, b.Name, tier.Delay)
		for range tier.Attempts {
			steps = append(steps, topology.Tier{Delay: tier.Delay, Queue: name})
		}
	}
	return steps
}

// retries adds the headers exchange of a loop and what it leads to. The count
// of a dead letter leads to the exchange that picks the dead-letter queue. A
// message with a count that no binding matches goes back to the failed queue
// of its work queue, and the processor makes it a dead letter: it is never lost
// for the number it carries, and never dead without a report. Equal delays
// share a queue, next to each other or not.
func (c *compiler) retries(loop topology.Backoff) {
	label := topology.Label{Role: topology.RoleRetry, Backoff: loop.Name}
	c.withNext(loop.RetryExchange, topology.Headers, topology.FailedExchangeName(c.spec.Name), label)
	c.bindExchange(loop.RetryExchange, topology.DeadLetterName(c.spec.Name), "", c.counts(topology.DeadLetterCount), label)

	made := map[string]bool{}
	for i, step := range loop.Tiers {
		if !made[step.Queue] {
			made[step.Queue] = true
			c.queue(step.Queue, c.waiting(step.Delay), label)
		}
		c.bind(loop.RetryExchange, step.Queue, "", c.counts(int64(i)+1), label)
	}
	if loop.Outage != nil {
		c.queue(loop.Outage.Tier.Queue, c.waiting(topology.LongestOutageTier), label)
		c.exchange(loop.Outage.Exchange(), topology.Fanout, nil, label)
		c.bind(loop.Outage.Exchange(), loop.Outage.Tier.Queue, "", nil, label)
	}
}

// counts returns the arguments of a binding that matches the count n alone.
func (c *compiler) counts(n int64) topology.Arguments {
	return topology.Arguments{topology.ArgMatch: "all", c.spec.CountHeader: n}
}

// holding returns the arguments of a queue that holds messages until a person or the processor
// takes them, as a new map. Its delivery limit is never reached: RabbitMQ 4 sets 20 on a queue
// without one, and would drop a message that was looked at, or that a crashing consumer returned,
// more often.
func (c *compiler) holding() topology.Arguments {
	args := topology.Arguments{topology.ArgQueueType: c.spec.Type}
	if c.spec.Type == topology.Quorum {
		args[topology.ArgDeliveryLimit] = topology.Unlimited
	}
	return args
}

// waiting returns the arguments of a retry queue with this delay. It sets no dead-letter
// routing key: messages keep the publisher's key, and the address of their work queue in CC.
func (c *compiler) waiting(delay time.Duration) topology.Arguments {
	args := c.holding()
	args[topology.ArgMessageTTL] = delay.Milliseconds()
	args[topology.ArgDeadLetterExchange] = topology.ReturnExchangeName(c.spec.Name)
	if c.spec.Type == topology.Quorum {
		deadLetterSafely(args)
	}
	return args
}

// workArguments returns the arguments of a work queue, all but those of its
// dead-lettering where a policy brings that.
func (c *compiler) workArguments(q Queue) topology.Arguments {
	args := q.Arguments
	if q.Type != "" {
		args = args.With(topology.ArgQueueType, q.Type)
	}
	switch {
	case q.Unmanaged && q.DeliveryLimit != nil:
		return args.With(topology.ArgDeliveryLimit, *q.DeliveryLimit)
	case q.ByPolicy || q.Unmanaged:
		return args
	default:
		return c.deadLettering(q, args)
	}
}

// policy adds the policy that sets the dead-lettering of a queue: the same that
// the arguments would set. Which policy the broker applies to the queue is not
// known here; plan starts from the policy in effect.
func (c *compiler) policy(q Queue) {
	definition := topology.Arguments{}
	for name, v := range c.deadLettering(q, q.Arguments) {
		if _, given := q.Arguments[name]; !given {
			definition[topology.PolicyKey(name)] = v
		}
	}
	if b, native := c.native(q); native {
		maps.Copy(definition, b.RetryPolicy())
	}
	c.out.Policies = append(c.out.Policies, topology.Policy{
		Name: topology.PolicyName(c.spec.Name, q.Name), Pattern: "^" + regexp.QuoteMeta(q.Name) + "$", ApplyTo: "queues",
		Priority: topology.PolicyPriority, Definition: definition,
		Label: topology.Label{Role: topology.RoleWork, Queue: q.Name},
	})
}

// deadLettering returns args with those that make a work queue dead-letter. They do not
// name the backoff: arguments cannot be changed on a live queue, and a backoff can.
func (c *compiler) deadLettering(q Queue, args topology.Arguments) topology.Arguments {
	args = args.
		With(topology.ArgDeadLetterExchange, topology.FailedExchangeName(c.spec.Name)).
		With(topology.ArgDeadLetterRoutingKey, topology.AddressKey(q.Name))
	if q.DeliveryLimit != nil {
		args[topology.ArgDeliveryLimit] = *q.DeliveryLimit
	}
	if q.Type == topology.Quorum {
		deadLetterSafely(args)
	}
	return args
}

// deadLetterSafely makes a quorum queue keep each dead letter until its target
// has confirmed it. The broker respects at-least-once only together with
// reject-publish, so where the file chose one of the two the other follows: an
// overflow that drops, or at-most-once, leaves nothing to add.
func deadLetterSafely(args topology.Arguments) {
	overflow, given := args[topology.ArgOverflow]
	if given && overflow != topology.RejectPublish {
		return
	}
	strategy, given := args[topology.ArgDeadLetterStrategy]
	if given && strategy != topology.AtLeastOnce {
		return
	}
	args[topology.ArgDeadLetterStrategy] = topology.AtLeastOnce
	args[topology.ArgOverflow] = topology.RejectPublish
}
