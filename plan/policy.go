package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dlclark/regexp2"

	"github.com/dlxctl/dlxctl/topology"
)

// policies completes each wanted policy with what is in force on its queue
// without it: only one policy applies to a queue, so what another team set by
// theirs must stand in ours too, and ours must have the higher priority.
func (r *resolver) policies() {
	r.out.Bases = map[string]topology.Policy{}
	found := byName(r.state.Have.Queues, func(q topology.Queue) string { return q.Name })
	wanted := byName(r.out.Want.Queues, func(q topology.Queue) string { return q.Name })
	have := byName(r.state.Have.Policies, func(p topology.Policy) string { return p.Name })
	for _, want := range r.want.Policies {
		q, ok := wanted[want.Label.Queue]
		if !ok {
			continue // the queue was refused
		}
		existing, exists := found[q.Name]
		if exists && q.External && !r.attachable(want, existing) {
			continue
		}
		base, hasBase := r.foreignPolicy(q)
		if owner, theirs := topology.PolicyOwner(base.Name); theirs {
			r.refuse(topology.Key{Kind: topology.KindPolicy, Name: want.Name}, nil, want, want.Label,
				fmt.Sprintf("the policy %s of the topology %q gives the queue %s its dead-lettering, and the topology %q wants to: take the queue out of one of the files", display(base.Name), owner, display(q.Name), r.want.Name))
			continue
		}
		if hasBase {
			r.out.Bases[want.Name] = base
		}
		if !topology.Overridable(base.Priority) {
			r.refuse(topology.Key{Kind: topology.KindPolicy, Name: want.Name}, nil, want, want.Label,
				fmt.Sprintf("the policy %s has the highest priority that there is, so that no policy can give the queue %s its dead-lettering: lower its priority", display(base.Name), display(q.Name)))
			continue
		}
		for _, p := range r.foreignPolicies {
			if (p.Name == base.Name || r.applies(p, q)) && p.Priority >= want.Priority {
				want.Priority = topology.PriorityAbove(p.Priority)
			}
		}
		want.Definition = merged(q, base.Definition, want.Definition)
		p, ok := have[want.Name]
		if ok {
			want.Priority = max(want.Priority, p.Priority) // a higher one does no harm
		}
		if ok && r.pending(p, existing) {
			want.Priority = topology.PriorityAbove(want.Priority) // the broker passes over a policy that it has stored just so
			r.out.pending[want.Name] = true
		}
		r.out.Want.Policies = append(r.out.Want.Policies, want)
		r.starves(q, base, want)
		if ok {
			p.Label = want.Label
			r.out.Have.Policies = append(r.out.Have.Policies, p)
			r.outranked(p, want, existing)
		}
	}
}

// pending reports whether a policy was stored, and perhaps not put in force: see
// topology.Policy.Pending.
func (r *resolver) pending(p topology.Policy, q topology.Queue) bool {
	return p.IsPending() || q.Name != "" && r.state.InForce != nil && r.state.InForce[q.Name] == "" && r.applies(p, q)
}

// attachable refuses a policy that the arguments of an external queue beat.
func (r *resolver) attachable(want topology.Policy, q topology.Queue) bool {
	key := topology.Key{Kind: topology.KindPolicy, Name: want.Name}
	for _, name := range []string{topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgDeadLetterStrategy} {
		own, given := q.Arguments[name]
		value, wanted := want.Definition[topology.PolicyKey(name)]
		if !given || own == value || !wanted {
			continue
		}
		r.refuse(key, nil, want, want.Label, fmt.Sprintf("the queue %s was declared with %s, and an argument beats every policy: let a new queue take its place (replaces: and dlxctl migrate), or have the service declare it without", display(q.Name), name),
			Field{name, own, value})
		return false
	}
	if _, limited := want.Definition[topology.PolicyKey(topology.ArgDeliveryLimit)]; limited && q.Type() != topology.Quorum {
		r.refuse(key, nil, want, want.Label, fmt.Sprintf("the queue %s is of type %s and has a deliveryLimit: only quorum queues count deliveries; take it out", display(q.Name), q.Type()))
		return false
	}
	return true
}

// outranked warns when the broker says that another policy applies, though ours
// is there as it should be.
func (r *resolver) outranked(have, want topology.Policy, q topology.Queue) {
	inForce := r.state.InForce[q.Name]
	if q.Name == "" || r.state.InForce == nil || inForce == have.Name || len(differing(policyFields(have), policyFields(want))) > 0 {
		return
	}
	if inForce == "" {
		inForce = "no policy"
	}
	r.warn("overruled", fmt.Sprintf("%s is in force on %s, not %s: what it rejects is not dead-lettered", display(inForce), display(q.Name), display(have.Name)))
}

// starves warns of an external queue that refuses messages when it is full, and
// shares its backoff. For queues of the file see overruled.
func (r *resolver) starves(q topology.Queue, base, want topology.Policy) {
	effective := asArguments(want.Definition)
	maps.Copy(effective, q.Arguments)
	full := effective[topology.ArgOverflow] == topology.RejectPublish && hasAny(effective, topology.ArgMaxLength, topology.ArgMaxLengthBytes)
	if !q.External || !full || !r.shared(q.Name) {
		return
	}
	limited := "its arguments limit"
	if hasAny(base.Definition, "max-length", "max-length-bytes") {
		limited = "the policy " + display(base.Name) + " limits"
	}
	r.warn("starves-tier", fmt.Sprintf("%s the length of %s, which shares its backoff: while it is full it holds up the retries of the others; give it a backoff of its own", limited, display(q.Name)))
}

// shared reports whether another queue has the backoff of this one.
func (r *resolver) shared(queue string) bool {
	w := r.works[queue]
	return w.Backoff != topology.NoBackoff && slices.ContainsFunc(r.want.Works, func(o topology.Work) bool { return o.Queue != queue && o.Backoff == w.Backoff })
}

// merged gives the definition of a policy that starts from base. The keys of the
// dead-lettering are ours. Where base or the queue itself limits the length, or
// chose what happens then, that stays, as publishers rely on it: the queue then
// dead-letters at most once.
func merged(q topology.Queue, base, ours topology.Arguments) topology.Arguments {
	out := maps.Clone(base)
	if out == nil {
		out = topology.Arguments{}
	}
	maps.Copy(out, ours)
	const overflow, strategy = "overflow", "dead-letter-strategy"
	chosen, given := base[overflow]
	limited := given || hasAny(base, "max-length", "max-length-bytes")
	if q.External {
		limited = limited || hasAny(q.Arguments, topology.ArgOverflow, topology.ArgMaxLength, topology.ArgMaxLengthBytes)
	}
	switch {
	case q.Type() != topology.Quorum || limited && chosen != topology.RejectPublish:
		// A policy with a key that the type does not know applies to no such queue.
		delete(out, strategy)
		delete(out, overflow)
		if given {
			out[overflow] = chosen
		}
	case q.External || given:
		out[strategy], out[overflow] = topology.AtLeastOnce, topology.RejectPublish
	}
	return out
}

func hasAny(args topology.Arguments, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := args[name]; return ok })
}

// bares reports whether a queue is without dead-lettering once our policy is
// gone.
func (r *resolver) bares(queue string) bool {
	is := func(q topology.Queue) bool { return q.Name == queue }
	i, wanted := slices.IndexFunc(r.state.Have.Queues, is), slices.IndexFunc(r.want.Queues, is)
	switch {
	case i < 0 || wanted < 0 && r.ours(r.state.Have.Queues[i].Arguments):
		return false // it does not exist, or goes too
	case wanted >= 0 && hasAny(r.want.Queues[wanted].Arguments, topology.ArgDeadLetterExchange):
		return false // it is made again with arguments; while it cannot be, Allowed keeps the policy
	}
	q := r.state.Have.Queues[i]
	other, _ := r.strongest(r.foreignPolicies, q)
	return !hasAny(q.Arguments, topology.ArgDeadLetterExchange) && !hasAny(other.Definition, "dead-letter-exchange")
}

// attached gives the arguments of a queue that was found without those that its
// wanted policy says too: it was made with arguments, which cannot be taken from
// it and need not be.
func (r *resolver) attached(q topology.Queue, args topology.Arguments) topology.Arguments {
	for name, v := range asArguments(r.attach[q.Name].Definition) {
		if args[name] == v {
			args = args.Without(name)
		}
	}
	return args
}

// effective gives the arguments of a wanted queue, and those that its policy
// stands for.
func (r *resolver) effective(q topology.Queue) topology.Arguments {
	args := asArguments(r.attach[q.Name].Definition)
	maps.Copy(args, q.Arguments)
	return args
}

// foreignPolicy gives the policy that is in force on a queue, or would be
// without ours. What the broker says is believed first.
func (r *resolver) foreignPolicy(q topology.Queue) (topology.Policy, bool) {
	if i := slices.IndexFunc(r.foreignPolicies, func(p topology.Policy) bool { return p.Name == r.state.InForce[q.Name] }); i >= 0 {
		return r.foreignPolicies[i], true
	}
	return r.strongest(r.foreignPolicies, q)
}

// PolicyFor gives the policy that is in force on a queue, or would be if the
// queue existed. It reports false where there is none.
func PolicyFor(state State, q topology.Queue) (topology.Policy, bool) {
	r := anyPolicies(state)
	return r.foreignPolicy(q)
}

// strongest gives the policy of list that applies to a queue: of those whose
// pattern matches, the one with the highest priority. Between equals the broker
// chooses as it likes.
func (r *resolver) strongest(list []topology.Policy, q topology.Queue) (topology.Policy, bool) {
	var best topology.Policy
	found := false
	for _, p := range list {
		if (!found || p.Priority > best.Priority) && r.applies(p, q) {
			best, found = p, true
		}
	}
	return best, found
}

// applies reports whether a policy is for a queue of that name and type. A
// policy with a key that the type does not know is passed over by the broker,
// whatever else it says (measured on 3.10.8, 4.0.5 and 4.3.6). A pattern that
// cannot be read is taken not to match.
func (r *resolver) applies(p topology.Policy, q topology.Queue) bool {
	kinds := map[string]string{topology.Quorum: "quorum_queues", topology.Classic: "classic_queues", topology.Stream: "streams"}
	if !slices.Contains([]string{"queues", "all", "", kinds[q.Type()]}, p.ApplyTo) || hasAny(p.Definition, unknownKeys(q.Type())...) {
		return false
	}
	pattern, known := r.patterns[p.Pattern]
	if !known {
		pattern = compiledPattern(p.Pattern)
		r.patterns[p.Pattern] = pattern
	}
	if pattern == nil {
		return false
	}
	matches, err := pattern.MatchString(q.Name)
	return err == nil && matches
}

// compiledPattern reads a pattern as the broker does: as Perl's. Many begin with
// (?!amq\.), which the standard library does not know. It gives nil for one that
// cannot be read.
func compiledPattern(s string) *regexp2.Regexp {
	pattern, err := regexp2.Compile(s, regexp2.None)
	if err != nil {
		return nil
	}
	pattern.MatchTimeout = time.Second // some never come to an end
	return pattern
}

// unknownKeys are those of policies that are not for queues of a type.
func unknownKeys(queueType string) []string {
	switch queueType {
	case topology.Classic:
		return []string{"delivery-limit", "dead-letter-strategy", "target-group-size", "max-age", "stream-max-segment-size-bytes"}
	case topology.Quorum:
		return []string{"queue-mode", "queue-master-locator", "ha-mode", "ha-params", "ha-sync-mode", "max-age", "stream-max-segment-size-bytes"}
	default:
		return nil
	}
}

// policyChanges compares the policies.
func (r Resolved) policyChanges() []Change {
	var out []Change
	have := byName(r.Have.Policies, func(p topology.Policy) string { return p.Name })
	for _, want := range r.Want.Policies {
		c := Change{Action: Update, Kind: topology.KindPolicy, Name: want.Name, After: want, Label: want.Label}
		base, hasBase := r.Bases[want.Name]
		if before, ok := have[want.Name]; ok {
			c.Before, c.Fields = before, differing(policyFields(before), policyFields(want))
		} else {
			c.Action = Create
			c.Fields = overlaid(definitionFields(base), policyFields(want))
		}
		if len(c.Fields) == 0 {
			continue
		}
		if r.pending[want.Name] {
			c.Reason = "it is stored, and perhaps not in force: whoever wrote it was cut off; a new priority makes the broker apply it"
		} else if hasBase {
			c.Reason = fmt.Sprintf("starts from the policy %s, which it outranks", display(base.Name))
		}
		c.Rank, c.Hazards = rank(c), hops(asArguments(want.Definition))
		out = append(out, c)
	}
	wanted := byName(r.Want.Policies, func(p topology.Policy) string { return p.Name })
	for _, p := range r.Have.Policies {
		if _, ok := wanted[p.Name]; !ok {
			out = append(out, r.detached(p))
		}
	}
	return out
}

// detached gives the change that takes a policy away. A queue that lives on
// without dead-lettering drops what its consumers reject.
func (r Resolved) detached(p topology.Policy) Change {
	c := deleted(topology.KindPolicy, p.Name, p, p.Label)
	if p.Pattern == "" { // see resolver.ghosts
		c.Reason = fmt.Sprintf("somebody has deleted it, or was cut off doing so, and it is still in force on %s", display(p.Label.Queue))
		return c
	}
	c.Fields = differing(policyFields(p), nil)
	if r.bared[p.Label.Queue] {
		c.Hazards = []Hazard{LosesMessages}
		c.Reason = fmt.Sprintf("no longer in the file; %s lives on, and drops what its consumers reject", display(p.Label.Queue))
	}
	return c
}

// asArguments gives the arguments that a definition stands for.
func asArguments(definition topology.Arguments) topology.Arguments {
	out := topology.Arguments{}
	for key, v := range definition {
		out["x-"+key] = v
	}
	return out
}

func policyFields(p topology.Policy) []Field {
	return append([]Field{
		{Name: "pattern", After: p.Pattern}, {Name: "apply-to", After: p.ApplyTo}, {Name: "priority", After: p.Priority},
	}, definitionFields(p)...)
}

// overlaid gives all fields of a policy that is new, with what was in force in
// its place.
func overlaid(before, after []Field) []Field {
	values := byName(before, func(f Field) string { return f.Name })
	var out []Field
	for _, f := range after {
		out = append(out, Field{Name: f.Name, Before: values[f.Name].After, After: f.After})
	}
	return out
}

func definitionFields(p topology.Policy) []Field { return fieldsOf(p.Definition) }
