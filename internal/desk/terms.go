package desk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// leastReturns is how many returns a look leaves to each message at the head of a queue that
	// limits them.
	leastReturns = 3
	// runReturns is how many returns a run leaves to each message that it does not choose.
	runReturns = 5
	// manyReturns is a delivery limit that no number of looks reaches.
	manyReturns = 1_000_000
)

// terms is what decides whether a queue may be looked at, and how.
type terms struct {
	queue     topology.Queue
	effective topology.Arguments // with policies
	policy    string             // the one in effect; empty: none
	usage     topology.Usage
	consumers int64
	// limit is how often a message may be returned. It holds only if limited.
	limit   int64
	limited bool
	modern  bool // the broker is 4.3 or later
	// first: the messages are taken before the consumers of the queue get any, see
	// amqp.HolderOptions.First.
	first bool
	// closes: a run takes the messages, and gives back by the end of a channel.
	closes bool
	// delayed is which returned messages the queue withholds, for at least the time in withheld.
	// Empty: none.
	delayed  string
	withheld time.Duration
	// alarm is why the broker accepts no messages. Empty: it accepts some, or that is not known.
	alarm string
	// records: the queue has the records of runs alone, of which the broker may drop any.
	records bool
}

// nodeIsDown says of a queue why it is not looked at.
const nodeIsDown = "its node is down, and what it holds is not known; start the node"

// refuseDown refuses a queue whose node is down.
func refuseDown(queue string) error {
	return refusef("queue %s exists, but its node is down, and what it holds is not known; start the node", text.Name(queue))
}

// termsOf returns the terms of a queue. It refuses a queue that does not exist, whose node is down,
// or of a type that dlxctl does not know.
func termsOf(state topology.State, queue string) (terms, error) {
	i := slices.IndexFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == queue })
	switch {
	case slices.Contains(state.Down, queue):
		return terms{}, refuseDown(queue)
	case i < 0:
		return terms{}, refusef("queue %s does not exist in vhost %s; %s", text.Name(queue), text.Name(state.VHost),
			similar(state, queue))
	}
	q := state.Have.Queues[i]
	if !slices.Contains([]string{topology.Classic, topology.Quorum, topology.Stream}, q.Type()) {
		return terms{}, refusef("queue %s is of the type %q, which dlxctl does not know: it looks at classic and quorum queues and streams; read it with the tools of the plugin that brings the type",
			text.Name(queue), q.Type())
	}
	policies := policy.All(state)
	inEffect, _ := policies.For(q)
	t := terms{
		queue: q, usage: state.Usage[queue],
		effective: policies.Effective(q), policy: inEffect.Name,
		modern: state.AtLeast(4, 3), alarm: state.Alarm,
	}
	owner, _ := topology.Owner(q.Arguments)
	t.records = topology.IsLog(survey.DeskOwner(owner), q)
	if kind, least, delays := policies.DelayedRetry(q); delays {
		t.delayed, t.withheld = kind, least
	}
	t.limit, t.limited = policy.DeliveryLimit(state, q, t.effective)
	t.limited = t.limited && t.limit < manyReturns
	return t, nil
}

// isStream reports whether a queue is a stream.
func isStream(state topology.State, queue string) bool {
	return slices.ContainsFunc(state.Have.Queues, func(q topology.Queue) bool {
		return q.Name == queue && q.Type() == topology.Stream
	})
}

// refuseStream refuses to take messages out of a stream: what is read there stays.
func refuseStream(state topology.State, queue string) error {
	if !isStream(state, queue) {
		return nil
	}
	return refusef("queue %s is a stream, out of which no message can be taken; copy messages with 'dlxctl desk export --raw' and 'dlxctl desk import'",
		text.Name(queue))
}

// similar returns a hint at queues with a similar name.
func similar(state topology.State, queue string) string {
	for _, q := range state.Have.Queues {
		if q.Name == queue+".dead" {
			return fmt.Sprintf("did you mean %s?", text.Name(q.Name))
		}
	}
	if topo, ok := strings.CutSuffix(queue, topology.ParkedName("")); ok && topo != "" {
		return fmt.Sprintf("if the topology %s has parked no message yet, there is nothing to restore", text.Name(topo))
	}
	return "'rabbitmqctl list_queues' and 'dlxctl status' list the queues"
}

// refusef returns an error that wraps ErrRefused. Its text is the whole text.
func refusef(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// refusal is an error that wraps ErrRefused.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error { return ErrRefused }

// refuse refuses a queue in which a look at so many of its ready messages would do harm. With
// consent it may have consumers.
func (t *terms) refuse(wanted, ready int, consent bool) error {
	if t.queue.Type() == topology.Stream {
		return nil // it is read by offset, also while other clients read it
	}
	if t.single() {
		return refusef("queue %s has a single active consumer (%s), and a look would take its place, or wait for it; stop the consumer and use a queue without that argument",
			text.Name(t.queue.Name), topology.ArgSingleActiveConsumer)
	}
	if t.consumers > 0 && !consent {
		return refusef("queue %s has %s, and a look would withhold up to %s from %s; stop %s, or pass --beside-consumers",
			text.Name(t.queue.Name), text.Count(t.consumers, "consumer"), text.Count(wanted, "message"),
			text.Choose(t.consumers, "it", "them"), text.Choose(t.consumers, "it", "them"))
	}
	if t.delays(t.nack()) {
		return refusef("queue %s %s, and a look would hide its messages for that time; %s", text.Name(t.queue.Name),
			t.delayText(), t.undelay())
	}
	return t.refuseDropping(wanted, ready)
}

// single reports whether the queue has one consumer at a time that gets messages.
func (t *terms) single() bool {
	single, _ := t.effective[topology.ArgSingleActiveConsumer].(bool)
	return single
}

// undelay says how to look at a queue that withholds what is returned to it.
func (t *terms) undelay() string {
	return t.byPolicy("set delayed-retry-type: disabled",
		"let the consumers read the messages, or write a backoff with engine: processor for it in the topology file")
}

// byPolicy says how to set a key for the queue. Of all policies one alone is in effect on a queue:
// another one would take away what that does, as dead-lettering where it is that of dlxctl.
func (t *terms) byPolicy(set, file string) string {
	if _, own := topology.PolicyOwner(t.policy); own {
		return file + ", and run dlxctl apply; another policy would end its dead-lettering"
	}
	if t.policy != "" {
		return fmt.Sprintf("%s in its policy %s, or in a copy of that for this queue", set, text.Name(t.policy))
	}
	return set + " for it by a policy"
}

// delays reports whether RabbitMQ withholds what is given back by basic.nack, or else by the end of
// a channel (measured on 4.3.6).
func (t *terms) delays(nack bool) bool {
	return t.delayed == "all" || t.delayed == "returned" && nack || t.delayed == "failed" && !nack
}

func (t *terms) delayText() string {
	return fmt.Sprintf("withholds what is returned to it for %s or longer (delayed-retry-type %s)",
		text.Duration(t.withheld), t.delayed)
}

// refuseDropping refuses a queue that drops its oldest messages when it is full, if what arrives
// during the look could push out what comes back.
//
// It also refuses one that rejects messages then, if the look may have to copy one to its tail:
// those that are held do not count, so the look makes room for publishers that wait. Only a look
// that takes first holds what they send.
func (t *terms) refuseDropping(wanted, ready int) error {
	if t.records {
		return nil
	}
	does, harm, fix := "drops its oldest messages", "push out what comes back", ", or set overflow to reject-publish,"
	messages, bytes := policy.DropsHead(t.queue, t.effective)
	copies := t.limited && !t.first
	if copies {
		fix = ""
	}
	fix += " in the policy or the arguments of the queue"
	if copies && messages+bytes == 0 {
		messages, bytes = policy.LengthLimits(t.effective)
		does, harm = "rejects messages", "keep out the copy of a message that has used up its returns"
		fix += "; or " + t.raise()
	}
	all := max(int64(ready), t.usage.Ready) + t.usage.Unacknowledged
	if free := messages - all; messages > 0 && free < int64(wanted) {
		fewer := ""
		if free > 0 {
			fewer = fmt.Sprintf("look at no more than %d, or ", free)
		}
		return refusef("queue %s %s when it is full, and has room for %d more of %d: what arrives during the look could %s; %sraise max-length%s",
			text.Name(t.queue.Name), does, max(0, free), messages, harm, fewer, fix)
	}
	if bytes > 0 && t.usage.Bytes == 0 && ready > 0 {
		return refusef("queue %s %s when it has more than %d bytes, and its size is not known yet; try again in 10 seconds, or, if its messages have no bodies or the broker keeps no statistics (management_agent.disable_metrics_collector), remove max-length-bytes%s",
			text.Name(t.queue.Name), does, bytes, fix)
	}
	if free := bytes - t.usage.Bytes; bytes > 0 && free < t.usage.Bytes {
		return refusef("queue %s %s when it is full, and has room for %d bytes more of %d: what arrives during the look could %s; raise max-length-bytes%s",
			text.Name(t.queue.Name), does, max(0, free), bytes, harm, fix)
	}
	return nil
}

// refuseSpent refuses a queue whose first message was returned too often.
func (t *terms) refuseSpent(count int64) error {
	left := t.limit - count - 1 // after the return of this look
	switch {
	case t.nack() && count < t.limit, !t.nack() && left >= leastReturns:
		return nil
	case t.nack():
		return refusef("the first message of queue %s was returned %s before, also in other queues, and RabbitMQ 4.3 drops or dead-letters it at its next return that counts (delivery limit %d); %s",
			text.Name(t.queue.Name), text.Count(count, "time"), t.limit, t.raise())
	}
	return refusef("the first message of queue %s can be returned %s more before the broker drops or dead-letters it (delivery limit %d), and a look returns it; %s",
		text.Name(t.queue.Name), text.Count(max(0, left), "time"), t.limit, t.raise())
}

// runSpends says why a run would lose or hide messages of the queue, one of which was returned
// count times: a run gives back what it does not choose by closing a channel, which counts. Empty
// if it does not.
func (t *terms) runSpends(count int64) string {
	if t.delays(false) {
		return fmt.Sprintf("%s %s, and a run would hide the messages that it does not choose; %s", text.Name(t.queue.Name),
			t.delayText(), t.undelay())
	}
	switch {
	case t.first && t.limited && count+runReturns > t.limit:
		return fmt.Sprintf("a message of %s was returned %s, and a pull returns the messages that it does not choose: RabbitMQ drops or dead-letters one at its limit (delivery limit %d); %s",
			text.Name(t.queue.Name), text.Count(count, "time"), t.limit, t.raise())
	case !t.nack() || count+runReturns <= t.limit:
		return ""
	}
	return fmt.Sprintf("a message of %s was returned %s, also in other queues, and each pass of a run returns it again: RabbitMQ 4.3 would drop or dead-letter it (delivery limit %d); %s",
		text.Name(t.queue.Name), text.Count(count, "time"), t.limit, t.raise())
}

// raise says how to make the delivery limit higher. Of an argument and a policy the smaller counts.
func (t *terms) raise() string {
	if t.queue.Arguments.HasAny(topology.ArgDeliveryLimit) {
		return "consume the messages, as no policy raises the limit of an argument (x-delivery-limit)"
	}
	return "consume the message, or " + t.byPolicy("raise delivery-limit",
		"write a higher deliveryLimit for it in the topology file")
}

// drops reports whether the broker drops or dead-letters a message that a look returns.
func (t *terms) drops(count int64) bool {
	if t.nack() {
		return count > t.limit
	}
	return count >= t.limit
}

// nack reports whether the messages are given back by basic.nack, which does not count as a return
// on a quorum queue of 4.3.
func (t *terms) nack() bool {
	return t.modern && t.queue.Type() == topology.Quorum && t.limited && !t.first && !t.closes
}

// counts reports whether each look uses up one of the returns that the queue allows.
func (t *terms) counts() bool { return t.limited && !t.nack() }

// timesOut reports whether the queue knows x-consumer-timeout.
func (t *terms) timesOut() bool { return t.modern && t.queue.Type() == topology.Quorum }

// expires reports whether the queue limits how long messages wait.
func (t *terms) expires() bool { return t.effective.HasAny(topology.ArgMessageTTL) }
