package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// deadLetterQueue is a dead-letter queue of work queues of the file, with what it does not keep.
type deadLetterQueue struct {
	name string
	// change is that of the queue itself. Nil: it stays as it is.
	change *Change
	// losses are those of the queue as it becomes, and before those that it has. Refuses says at how
	// many messages or bytes it refuses more. Empty: it does not.
	losses, before []policy.Loss
	refuses        string
	// origin says which policy has brought a loss, as "(x-message-ttl of the policy x)".
	origin func(policy.Loss) string
	// works are the work queues that the file names, and its matches, as [topology.Match.WorkQueue]
	// returns them for their pattern.
	works []topology.WorkQueue
}

// called names a work queue, or the queues of a match.
func called(w topology.WorkQueue) string {
	if w.Match != "" {
		return "queues that match " + text.Name(w.Match)
	}
	return text.Name(w.Name)
}

// deadLetterKey returns the key with which dead letters of w come to the exchange that picks the
// dead-letter queue.
func deadLetterKey(w topology.WorkQueue) string {
	if w.Match != "" {
		return topology.AddressKey(w.DeadLetterQueue)
	}
	return topology.AddressKey(w.Name)
}

// needsConsent reports whether a loss can take dead letters of normal use. A large limit of the
// length takes some only after an outage; a plan warns of it.
func needsConsent(l policy.Loss) bool { return l.Argument == topology.ArgMessageTTL || !l.Retains() }

// losing asks for consent wherever the plan has dead letters of a work queue go to a dead-letter
// queue that does not keep them: at the change of the dead-letter queue itself if it comes to lose
// them, or else at the change that leads a work queue to it. It does not ask for what is in place.
func (r resolved) losing(p *Plan) {
	for _, d := range r.deadLetterQueues(p.Changes) {
		if len(d.losses) == 0 && d.refuses == "" {
			continue
		}
		var fresh []policy.Loss // what the queue itself begins to lose
		if c := d.change; c != nil && (c.Action == Create || c.Action == Replace) {
			fresh = filtered(d.losses, func(l policy.Loss) bool { return !slices.Contains(d.before, l) })
			d.ask(c, fresh, "it")
		}
		var joining []topology.WorkQueue
		for _, w := range d.works {
			leading := r.leading(p.Changes, w)
			if len(leading) > 0 {
				joining = append(joining, w)
			}
			for _, c := range leading {
				d.ask(c, filtered(d.losses, func(l policy.Loss) bool { return !slices.Contains(fresh, l) }),
					fmt.Sprintf("dead letters of %s go to %s, which", called(w), text.Name(d.name)))
			}
		}
		p.Warnings = append(p.Warnings, r.limiting(d, fresh, joining)...)
	}
}

// ask adds to a change what is lost by it. subject is what loses it.
func (d *deadLetterQueue) ask(c *Change, losses []policy.Loss, subject string) {
	losses = filtered(losses, needsConsent)
	if len(losses) == 0 {
		return
	}
	why := subject + " " + strings.Join(text.Each(losses, d.origin), ", and ")
	if c.Reason != "" {
		why = c.Reason + "; " + why
	}
	c.Reason = why
	if !slices.Contains(c.Hazards, topology.LosesMessages) {
		c.Hazards = append([]topology.Hazard{topology.LosesMessages}, c.Hazards...)
	}
}

// limiting warns of limits of the length of a dead-letter queue that is new, or that work queues
// join.
func (r resolved) limiting(d *deadLetterQueue, fresh []policy.Loss, joining []topology.WorkQueue) []Warning {
	if topology.Accepts(r.want.Accepted, topology.WarnLimitedDeadLetters, []string{d.name}) {
		return nil
	}
	concerned := joining
	if len(fresh) > 0 {
		concerned = d.works
	}
	var out []Warning
	warn := func(works []topology.WorkQueue, what string) {
		if len(works) > 0 {
			out = append(out, Warning{Name: topology.WarnLimitedDeadLetters, Text: fmt.Sprintf(
				"%s, where dead letters of %s go, %s", text.Name(d.name), text.Some(text.Each(works, called)), what)})
		}
	}
	for _, l := range filtered(d.losses, func(l policy.Loss) bool { return !needsConsent(l) }) {
		warn(concerned, d.origin(l))
	}
	if d.refuses != "" {
		warn(slices.DeleteFunc(slices.Clone(concerned), func(w topology.WorkQueue) bool { return !r.unconfirmed(w) }),
			"refuses more than "+d.refuses+", and what it refuses is lost, as they dead-letter to it at most once")
	}
	return out
}

// unconfirmed reports whether a work queue dead-letters to its dead-letter queue without the
// processor, and without waiting for a confirmation.
func (r resolved) unconfirmed(w topology.WorkQueue) bool {
	if r.want.Processed(w) {
		return false // the processor waits for it
	}
	args := topology.Arguments{}
	for _, q := range r.want.Queues {
		if q.Name == w.Name {
			args = q.Arguments
		}
	}
	for _, x := range r.want.Policies {
		if x.Label.Queue == w.Name && !args.HasAny(topology.ArgDeadLetterExchange) {
			args = policy.Arguments(x.Definition)
		}
	}
	return deadLettersAtMostOnce(args)
}

// deadLetterQueues returns the dead-letter queues of the work queues of the file, in the order of
// the file. One that is refused is left out: nothing is led to it.
func (r resolved) deadLetterQueues(changes []Change) []*deadLetterQueue {
	wanted := byName(r.want.Queues, func(q topology.Queue) string { return q.Name })
	found := byName(r.have.Queues, func(q topology.Queue) string { return q.Name })
	changed := map[string]*Change{}
	for i, c := range changes {
		if _, isQueue := c.Object().(topology.Queue); isQueue {
			changed[c.Name] = &changes[i]
		}
	}
	at := map[string]*deadLetterQueue{}
	var out []*deadLetterQueue
	works := filtered(r.want.WorkQueues, func(w topology.WorkQueue) bool { return w.Match == "" })
	for _, m := range r.want.Matches {
		works = append(works, m.WorkQueue(m.Pattern))
	}
	for _, w := range works {
		q, exists := wanted[w.DeadLetterQueue]
		if !exists {
			continue
		}
		if d := at[q.Name]; d != nil {
			d.works = append(d.works, w)
			continue
		}
		d := &deadLetterQueue{name: q.Name, change: changed[q.Name], works: []topology.WorkQueue{w}}
		at[q.Name], out = d, append(out, d)
		have, there := found[q.Name]
		if there {
			d.before = policy.Losses(have, r.effective(have, w))
		}
		if d.change != nil && d.change.Action == Blocked {
			q = have // with --skip-blocked it stays as it is
		}
		effective := r.effective(q, w)
		d.losses = policy.Losses(q, effective)
		d.refuses = refusesAbove(q, effective)
		d.origin = func(l policy.Loss) string {
			name := l.Argument
			if by, ok := r.guards.foreign.Origin(q, l.Argument, l.Limit); ok && q.External {
				name = topology.PolicyKey(name) + " of " + by.String()
			}
			return fmt.Sprintf("%s (%s)", l, name)
		}
	}
	return out
}

// effective returns the arguments in effect on the dead-letter queue of w. What policies do to one
// that is not external is left to guards, which override them or ask for consent. A dead-letter
// exchange is left out if it leads dead letters of w to no queue.
func (r resolved) effective(q topology.Queue, w topology.WorkQueue) topology.Arguments {
	if !q.External {
		return q.Arguments
	}
	args, now := r.guards.foreign.Effective(q), r.present().after(nil)
	to, moves := now.deadLetters(q, target{key: deadLetterKey(w), known: true})
	if moves && len(now.reach(to, true).queues) == 0 {
		return args.Without(topology.ArgDeadLetterExchange)
	}
	return args
}

// refusesAbove says how many messages or bytes a queue has when it refuses more. Empty: it never
// does.
func refusesAbove(q topology.Queue, effective topology.Arguments) string {
	if overflow := policy.OverflowOf(q, effective); overflow == "" || overflow == policy.DropHead {
		return ""
	}
	if n, ok := effective[topology.ArgMaxLength].(int64); ok {
		return text.Count(n, "message")
	}
	n, _ := effective[topology.ArgMaxLengthBytes].(int64)
	return text.Count(n, "byte")
}

// leading returns the changes by which dead letters of a work queue come to go to its dead-letter
// queue. None: they go there already, or no change leads them there.
func (r resolved) leading(changes []Change, w topology.WorkQueue) []*Change {
	exchange, key := topology.DeadLetterName(r.want.Name), deadLetterKey(w)
	policies := topology.Match{Pattern: w.Match}.PolicyNames(r.want.Name)
	attaches := func(name string) bool {
		return w.Match != "" && (name == policies[topology.Quorum] || name == policies[topology.Classic])
	}
	_, exists := r.guards.existing[w.Name]
	exists = exists && w.Match == "" ||
		slices.ContainsFunc(r.have.Policies, func(p topology.Policy) bool { return attaches(p.Name) })
	if exists && r.leadsTo(exchange, key, w.DeadLetterQueue) {
		return nil
	}
	var making, binding []*Change
	for i := range changes {
		c := &changes[i]
		b, _ := c.After.(topology.Binding)
		switch {
		case c.Reroute != nil && c.Reroute.Queue == w.Name && c.Reroute.Exchange == exchange:
			return []*Change{c}
		case c.Kind == topology.KindQueue && c.Name == w.Name && (c.Action == Create || c.Action == Migrate),
			c.Kind == topology.KindPolicy && c.Action == Create && attaches(c.Name):
			making = append(making, c) // without it there are no dead letters
		case c.Action == Create && b.Source == exchange && b.Key == key && b.Destination == w.DeadLetterQueue:
			binding = append(binding, c)
		}
	}
	if len(making) > 0 {
		return making
	}
	return binding
}

// leadsTo reports whether messages with a key go from the exchange that picks the dead-letter queue
// to a queue: through its next exchange only where it has no binding of its own.
func (r resolved) leadsTo(exchange, key, queue string) bool {
	leads := map[string][]string{}
	for _, b := range r.bindings {
		if b.Key == key && b.DestinationType == topology.ToQueue {
			leads[b.Source] = append(leads[b.Source], b.Destination)
		}
	}
	if at := leads[exchange]; len(at) > 0 {
		return slices.Contains(at, queue)
	}
	return slices.Contains(leads[topology.NextExchangeName(exchange)], queue)
}
