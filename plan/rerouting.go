package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// rerouting is the reroutes of a plan, and what is left to them: plans neither compare nor delete
// the bindings that they govern.
type rerouting struct {
	changes   []Change
	exchanges map[string]string // see changeable
	slots     map[slotKey]bool  // those that move
}

// governs reports whether the reroutes see to a binding.
func (x rerouting) governs(b topology.Binding) bool {
	exchange, is := x.exchanges[b.Source]
	return is && x.slots[slotOf(exchange, b)]
}

// rerouting returns the reroutes as a plan shows them: one for the failures of a queue, one for
// its dead letters, and one for the tiers of a backoff.
func (r *resolver) rerouting() rerouting {
	out := rerouting{exchanges: changeable(r.want), slots: map[slotKey]bool{}}
	at := map[rerouteKey]int{}
	for _, s := range slotsOf(r.want, r.state) {
		if !s.moves() {
			continue
		}
		out.slots[s.key] = true
		o := Reroute{Exchange: s.reroute.exchange, Queue: s.reroute.queue}
		i, known := at[s.reroute]
		if !known {
			i = len(out.changes)
			at[s.reroute] = i
			out.changes = append(out.changes, Change{Action: Update, Phase: phaseReroute, Reroute: &o})
		}
		all := out.changes[i].Reroute
		all.From, all.To = slices.Concat(all.From, s.at, s.next), append(all.To, s.want)
	}
	for i := range out.changes {
		r.describe(&out.changes[i])
	}
	return out
}

// describe says what a reroute changes.
func (r *resolver) describe(c *Change) {
	o := c.Reroute
	c.Kind, c.Name, c.Label = topology.KindQueue, o.Queue, topology.Label{Role: topology.RoleWork, Queue: o.Queue}
	switch {
	case o.Queue == "":
		c.Kind, c.Name, c.Label = topology.KindExchange, o.Exchange, o.To[0].Label
		r.describeTiers(c)
	case o.Exchange == topology.DeadLetterName(r.want.Name):
		r.describeDeadLetters(c)
	default:
		r.describeFailures(c)
	}
}

func (r *resolver) describeFailures(c *Change) {
	before, after := backoffAt(r.want.Name, c.Reroute.From[0]), backoffAt(r.want.Name, c.Reroute.To[0])
	interrupted := before == after
	was, will := r.schedule(before), r.schedule(after)
	c.Reason = "messages that wait in a tier return to the queue and keep their attempt count"
	if b, native := r.want.NativeBackoff(r.works[c.Name].Backoff); native && after == topology.NoBackoff {
		after, will = b.Name, b.ScheduleText()
		c.Reason = "messages that wait in a tier return to the queue, and RabbitMQ counts their attempts anew"
	}
	if b, native := r.nativeBefore(c.Name); native && before == topology.NoBackoff {
		before, was = "engine: native", b.ScheduleText()
		c.Reason = "messages that RabbitMQ delays return to the queue when they are due, and the processor counts their attempts anew"
	}
	if interrupted {
		c.Reason = fmt.Sprintf("an interrupted change of its backoff is completed; the backoff is %s", after)
		return
	}
	c.Fields = []Field{{Name: "backoff", Before: before, After: after}, {
		Name:   "schedule",
		Before: was, After: will,
	}}
	if len(r.want.Matches) > 1 && c.Name == r.want.Matches[0].Pattern {
		c.Reason = "all queues that match have the same backoff; " + c.Reason
	}
	if w := r.works[c.Name]; w.RetryTo != "" { // what waits may have been decided before the file had it
		c.Fields[1].After = r.want.Schedule(w.Name).ScheduleText() + "; retries go to " + text.Name(w.RetryTo)
		c.Reason = "messages that wait in a tier go where they were to go, and keep their attempt count"
	}
}

func (r *resolver) describeDeadLetters(c *Change) {
	before, after := text.Name(c.Reroute.From[0].Destination), text.Name(c.Reroute.To[0].Destination)
	if before == after {
		c.Reason = "an interrupted change of its dead-letter queue is completed; the queue is " + after
		return
	}
	c.Fields = []Field{{Name: "dead letters", Before: before, After: after}}
	c.Reason = fmt.Sprintf("what is in %s stays there", before)
}

func (r *resolver) describeTiers(c *Change) {
	backoff := c.Label.Backoff
	after, _ := r.want.Backoff(backoff)
	before, _ := r.foundLoop(backoff)
	if sameDelays(before, after) {
		c.Reason = "an interrupted change of its tiers is completed"
		return
	}
	c.Fields = []Field{{Name: "tiers", Before: before.DelaysText(), After: after.DelaysText()}}
	c.Reason = "messages that wait in a previous tier return to their queue and keep their attempt count"
}

// backoffAt returns the backoff that a binding of the failed exchange leads to.
func backoffAt(top string, b topology.Binding) string {
	if b.DestinationType == topology.ToExchange {
		return topology.NoBackoff
	}
	backoff, _ := topology.FailedBackoff(top, b.Destination)
	return backoff
}

// schedule says when a message of a backoff is delivered that fails each time. A backoff
// that the file no longer has is read from the broker.
func (r *resolver) schedule(backoff string) string {
	loop, ok := r.want.Backoff(backoff)
	if !ok {
		if loop, ok = r.foundLoop(backoff); !ok && backoff != topology.NoBackoff {
			return "a schedule that the broker does not show"
		}
	}
	return loop.ScheduleText()
}

// rescheduled returns the backoffs of the file whose tiers on the broker are others.
func (r *resolver) rescheduled() []Reschedule {
	var out []Reschedule
	for _, after := range r.want.Backoffs {
		before, ok := r.foundLoop(after.Name)
		if !ok || sameDelays(before, after) {
			continue
		}
		change := Reschedule{Before: before, After: after}
		for _, w := range r.want.WorkQueues {
			if w.Backoff == after.Name {
				change.Queues = append(change.Queues, w.Name)
			}
		}
		out = append(out, change)
	}
	return out
}

// sameDelays reports whether two backoffs have the same delays, in the same order.
func sameDelays(a, b topology.Backoff) bool {
	return slices.EqualFunc(a.Tiers, b.Tiers, func(a, b topology.Tier) bool { return a.Delay == b.Delay })
}

// foundLoop returns the loop of a backoff as its headers exchange has it on the broker, with what
// only the next exchange has during a change, and whether it is there: one without tiers is known
// by where its dead letters go.
func (r *resolver) foundLoop(backoff string) (loop topology.Backoff, exists bool) {
	loop.Name = backoff
	delays := map[string]int64{}
	for _, q := range r.state.Have.Queues {
		if ttl, ok := q.Arguments[topology.ArgMessageTTL].(int64); ok {
			delays[q.Name] = ttl
		}
	}
	exchange := topology.RetryExchangeName(r.want.Name, backoff)
	tiers := map[string]map[int64]string{exchange: {}, topology.NextExchangeName(exchange): {}}
	for _, b := range r.state.Have.Bindings {
		if tiers[b.Source] == nil || !r.owns(b.Arguments) {
			continue // as almost all
		}
		names := b.Arguments.WithoutX().Names()
		if len(names) != 1 {
			continue
		}
		if n, ok := b.Arguments[names[0]].(int64); ok && !topology.IsOutageQueueName(r.want.Name, b.Destination) {
			exists = exists || n > 0 || n == topology.DeadLetterCount
			tiers[b.Source][n] = b.Destination
		}
	}
	for n := int64(1); ; n++ {
		queue := cmp.Or(tiers[exchange][n], tiers[topology.NextExchangeName(exchange)][n])
		if queue == "" {
			return loop, exists
		}
		loop.Tiers = append(loop.Tiers, topology.Tier{Delay: millis(delays[queue]), Queue: queue})
	}
}
