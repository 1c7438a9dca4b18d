package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// matchedPolicies are policies of the file, and what was found of them.
type matchedPolicies struct {
	findings

	want, have []topology.Policy
	// bases are, by the name of a wanted policy, the one that is in effect on its queue
	// without it, and that it starts from.
	bases map[string]topology.Policy
	// pending are the wanted policies that are stored and may not be in effect.
	pending map[string]bool
	// losses are what queues lose at the change, by the name of a wanted policy.
	losses map[string]losses
}

// policies completes each wanted policy with what is in effect on its queue
// without it: only one policy applies to a queue, so the policy of dlxctl must repeat what
// another team's policy sets, and must have the higher priority.
func (r *resolver) policies(queues []topology.Queue) matchedPolicies {
	out := matchedPolicies{
		bases: map[string]topology.Policy{}, pending: map[string]bool{}, losses: map[string]losses{},
	}
	wanted := byName(queues, func(q topology.Queue) string { return q.Name })
	have := byName(r.state.Have.Policies, func(p topology.Policy) string { return p.Name })
	for _, want := range r.want.Policies {
		q, ok := wanted[want.Label.Queue]
		if !ok {
			continue // the queue was refused
		}
		existing, exists := r.existing[q.Name]
		if exists && q.External && !out.attachable(want, existing) {
			continue
		}
		base, hasBase := r.foreign.For(q)
		if owner, managed := topology.PolicyOwner(base.Name); managed {
			out.refuse(nil, want,
				fmt.Sprintf("the policy %s of the topology %q gives the queue %s its dead-lettering, and the topology %q declares the queue too; remove the queue from one of the files", text.Name(base.Name), owner, text.Name(q.Name), r.want.Name))
			continue
		}
		if hasBase {
			out.bases[want.Name] = base
		}
		if !topology.Overridable(base.Priority) {
			out.refuse(nil, want,
				fmt.Sprintf("the policy %s has the highest possible priority, so that no other policy can give the queue %s its dead-lettering; lower that priority", text.Name(base.Name), text.Name(q.Name)))
			continue
		}
		for _, p := range r.foreign.Policies() {
			if (p.Name == base.Name || r.foreign.Applies(p, q)) && p.Priority >= want.Priority {
				want.Priority = topology.PriorityAbove(p.Priority)
			}
		}
		want.Definition = policy.Merge(q, r.copied(base), want.Definition, r.limits[q.Name])
		p, ok := have[want.Name]
		inEffect := base
		if ok {
			inEffect = p
		}
		if exists && delaysRetries(want) && !q.External && existing.Type() != q.Type() {
			continue // the queue must be replaced first, and 'dlxctl migrate' writes the policy with it
		}
		if why := r.undelayable(want, q); why != "" {
			out.refuse(nil, want, why)
			continue
		}
		out.losses[want.Name] = r.losses(inEffect.Definition, want.Definition, q)
		if ok {
			want.Priority = max(want.Priority, p.Priority) // a higher one does no harm
		}
		if ok && r.pending(p, existing) {
			want.Priority = topology.PriorityAbove(want.Priority) // the broker passes over a policy that it has stored just so
			out.pending[want.Name] = true
		}
		out.want = append(out.want, want)
		r.starves(&out.findings, q, base, want)
		if ok {
			p.Label = want.Label
			out.have = append(out.have, p)
			r.notInEffect(&out.findings, p, want, existing)
		}
	}
	r.matchPolicies(&out, have)
	return out
}

// copied returns what a policy of the topology repeats of another team's policy. A key that was
// stored before an upgrade, and that RabbitMQ no longer knows, is not in it: it has no effect, and
// the copy would be refused.
func (r *resolver) copied(base topology.Policy) topology.Arguments {
	return base.Definition.Without(arguments.OutdatedKeys(r.state.Version, base.Definition)...)
}

// pending reports whether a policy was stored and may not be in effect: see
// topology.Policy.Pending.
func (r *resolver) pending(p topology.Policy, q topology.Queue) bool {
	return p.IsPending() || q.Name != "" && r.state.QueuePolicies != nil && r.state.QueuePolicies[q.Name] == "" &&
		r.foreign.Applies(p, q)
}

// attachable refuses a policy that the arguments of an external queue beat.
func (f *findings) attachable(want topology.Policy, q topology.Queue) bool {
	for _, name := range []string{
		topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey,
		topology.ArgDeadLetterStrategy,
	} {
		own, given := q.Arguments[name]
		value, wanted := want.Definition[topology.PolicyKey(name)]
		if !given || own == value || !wanted {
			continue
		}
		f.refuse(nil, want, fmt.Sprintf("the queue %s was declared with %s, and an argument overrides every policy; replace it with a new queue (replaces: and dlxctl migrate), or have the service declare it without that argument", text.Name(q.Name), name),
			Field{name, own, value})
		return false
	}
	if _, limited := want.Definition[topology.KeyDeliveryLimit]; limited &&
		q.Type() != topology.Quorum && !delaysRetries(want) {
		f.refuse(nil, want, fmt.Sprintf("the queue %s is of type %s and a deliveryLimit, and only quorum queues count deliveries; remove deliveryLimit", text.Name(q.Name), q.Type()))
		return false
	}
	return true
}

// notInEffect warns when the broker says that another policy applies, though the
// wanted one is stored as it should be.
func (r *resolver) notInEffect(f *findings, have, want topology.Policy, q topology.Queue) {
	reported := r.state.QueuePolicies[q.Name]
	if owner, _ := topology.PolicyOwner(reported); owner == r.want.Name {
		return // it is deleted or changed by this plan, and dead-letters as well
	}
	if q.Name == "" || r.state.QueuePolicies == nil || reported == have.Name ||
		len(differing(have.Properties(), want.Properties())) > 0 {
		return
	}
	if reported == "" {
		reported = "no policy"
	}
	f.warn(topology.WarnOverruled, fmt.Sprintf(
		"%s is in effect on %s, not %s: messages rejected there are not dead-lettered",
		text.Name(reported), text.Name(q.Name), text.Name(have.Name)))
}

// starves warns of an external queue that refuses messages when it is full, and
// shares the backoff of its retries. For queues of the file see overruled.
func (r *resolver) starves(f *findings, q topology.Queue, base, want topology.Policy) {
	effective := policy.Arguments(want.Definition)
	maps.Copy(effective, q.Arguments)
	full := effective[topology.ArgOverflow] == topology.RejectPublish && effective.HasAny(topology.ArgMaxLength,
		topology.ArgMaxLengthBytes)
	if !q.External || !full || !r.shared()[q.Name] || r.accepts(topology.WarnStarvesTier, q.Name) {
		return
	}
	limited := "its arguments limit"
	if base.Definition.HasAny(topology.KeyMaxLength, topology.KeyMaxLengthBytes) {
		limited = "the policy " + text.Name(base.Name) + " limits"
	}
	f.warn(topology.WarnStarvesTier,
		fmt.Sprintf("%s the length of %s, whose retries share a backoff with others: while it is full, it holds them up; give its retries a backoff of their own", limited, text.Name(q.Name)))
}

// shared returns the queues whose retries come out of retry queues that retries of another queue
// come out of too.
func (r *resolver) shared() map[string]bool {
	first, several := map[string]string{}, map[string]bool{} // by backoff
	for _, w := range r.want.WorkQueues {
		if queue, known := first[w.Backoff]; known && queue != w.ReturnsTo() {
			several[w.Backoff] = true
		} else {
			first[w.Backoff] = w.ReturnsTo()
		}
	}
	out := map[string]bool{}
	for _, w := range r.want.WorkQueues {
		if several[w.Backoff] && r.want.Processed(w) {
			out[w.ReturnsTo()] = true
		}
	}
	return out
}

// left returns a queue for which the file has neither a policy nor arguments, and the policy of
// another team that is in effect on it once the one of this topology is gone. False: the file has
// them, or the queue does not exist, or goes too.
func (r *resolver) left(queue string) (q topology.Queue, other topology.Policy, stays bool) {
	is := func(q topology.Queue) bool { return q.Name == queue }
	i, wanted := slices.IndexFunc(r.state.Have.Queues, is), slices.IndexFunc(r.want.Queues, is)
	switch {
	case i < 0 || wanted < 0 && r.owns(r.state.Have.Queues[i].Arguments):
		return q, other, false // it does not exist, or goes too
	case wanted >= 0 && r.want.Queues[wanted].Arguments.HasAny(topology.ArgDeadLetterExchange):
		return q, other, false // it is made again with arguments; while it cannot be, Allowed keeps the policy
	case r.attach[queue].Name != "":
		return q, other, false // a policy of the file is for it
	}
	q = r.state.Have.Queues[i]
	other, _ = r.foreign.Strongest(r.foreign.Policies(), q)
	return q, other, true
}

// detach notes what the queues lose that stay without the policy p of this topology.
func (r *orphans) detach(p topology.Policy) {
	set := policy.All(topology.State{})
	var out losses
	for _, q := range r.state.Have.Queues {
		q, other, stays := r.left(q.Name)
		if !stays || !set.Matches(p, q) {
			continue
		}
		if !q.Arguments.HasAny(topology.ArgDeadLetterExchange) && !other.Definition.HasAny(topology.KeyDeadLetterExchange) {
			r.losesDLX[p.Name] = append(r.losesDLX[p.Name], q.Name)
		}
		l := r.losses(p.Definition, other.Definition, q)
		for _, why := range l.why {
			if !slices.Contains(out.why, why) {
				out.why = append(out.why, why)
			}
		}
		out.asks = out.asks || l.asks
	}
	r.lost[p.Name] = out
}

// attached returns the arguments of a queue that was found without those that its wanted policy
// makes irrelevant: it was made with arguments, which cannot be taken from it and need not be.
func (r *resolver) attached(q topology.Queue, args topology.Arguments) topology.Arguments {
	for name, v := range policy.Arguments(r.attach[q.Name].Definition) {
		if args[name] == v || name == topology.ArgDeliveryLimit && lowers(v, args[name]) {
			args = args.Without(name)
		}
	}
	return args
}

// effective returns the arguments of a wanted queue, and those that its policy
// stands for.
func (r *resolver) effective(q topology.Queue) topology.Arguments {
	args := policy.Arguments(r.attach[q.Name].Definition)
	maps.Copy(args, q.Arguments)
	return args
}

// policyChanges compares the policies.
func (r resolved) policyChanges() []Change {
	var out []Change
	have := byName(r.have.Policies, func(p topology.Policy) string { return p.Name })
	for _, want := range r.want.Policies {
		c := Change{Action: Update, Kind: topology.KindPolicy, Name: want.Name, After: want, Label: want.Label}
		base, hasBase := r.policies.bases[want.Name]
		if before, ok := have[want.Name]; ok {
			c.Before, c.Fields = before, differing(before.Properties(), want.Properties())
		} else {
			c.Action = Create
			c.Fields = overlaid(asFields(base.Definition.Properties()), asFields(want.Properties()))
		}
		if len(c.Fields) == 0 {
			continue
		}
		if r.policies.pending[want.Name] {
			c.Reason = "a previous write was interrupted and the policy may not be in effect; it is rewritten with a new priority"
		} else if hasBase {
			c.Reason = fmt.Sprintf("starts from the policy %s, which it overrides", text.Name(base.Name))
		}
		losses := r.policies.losses[want.Name]
		if losses.asks {
			c.Hazards = []topology.Hazard{topology.LosesMessages}
		}
		for _, why := range losses.why {
			c.Reason = strings.TrimPrefix(c.Reason+"; "+why, "; ")
		}
		c.Phase, c.AtMostOnce = creationPhase(c), deadLettersAtMostOnce(policy.Arguments(want.Definition))
		engines(&c)
		out = append(out, c)
	}
	wanted := byName(r.want.Policies, func(p topology.Policy) string { return p.Name })
	for _, p := range r.have.Policies {
		if _, ok := wanted[p.Name]; !ok {
			out = append(out, r.detached(p))
		}
	}
	return out
}

// detached returns the change that takes a policy away. A queue that lives on
// without dead-lettering drops what its consumers reject.
func (r resolved) detached(p topology.Policy) Change {
	c := deleted(p)
	if slices.ContainsFunc(r.orphans.found.Queues, func(q topology.Queue) bool { return q.Name == p.Label.Queue }) {
		// The queue is deleted, unless it turns out to have messages: they need the policy.
		c.Phase = phaseUnbindFailed
	}
	if p.Pattern == "" { // see orphans.orphanedPolicies
		c.Reason = fmt.Sprintf("it was deleted, or its deletion was interrupted, and it is still in effect on %s",
			text.Name(p.Label.Queue))
		return c
	}
	c.Fields = differing(p.Properties(), nil)
	if queues := r.orphans.losesDLX[p.Name]; len(queues) > 0 {
		c.Hazards = []topology.Hazard{topology.LosesMessages}
		c.Reason = fmt.Sprintf("no longer declared; %s %s consumers reject", text.Some(text.Names(queues)),
			text.Choose(len(queues), "stays, and then drops the messages that its",
				"stay, and then drop the messages that their"))
	}
	lost := r.orphans.lost[p.Name]
	if lost.asks {
		c.Hazards = []topology.Hazard{topology.LosesMessages}
	}
	if len(lost.why) > 0 {
		c.Reason = strings.Join(slices.Concat([]string{cmp.Or(c.Reason, "no longer declared")}, lost.why), "; ")
	}
	return c
}

// overlaid returns all fields of a policy that is new, with what was in effect in
// its place.
func overlaid(before, after []Field) []Field {
	values := byName(before, func(f Field) string { return f.Name })
	var out []Field
	for _, f := range after {
		out = append(out, Field{Name: f.Name, Before: values[f.Name].After, After: f.After})
	}
	return out
}
