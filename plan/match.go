package plan

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// leastForMatch is the oldest version whose x-death no publisher can forge. The queue in which a
// message failed is read from it, if a pattern covers the queue. RabbitMQ 3.10.8 keeps a second
// field "queue" in an entry that a publisher wrote, which clients read in place of the first.
var leastForMatch = [2]int{4, 0} //nolint:gochecknoglobals // an array cannot be a constant

// hitBy returns the queues that exist and to which the pattern of a policy of a match
// applies: those that the match covers, and those that no match covers.
func (r *resolver) hitBy(want topology.Policy) (covered, others []topology.Queue) {
	entryOf, hits := policy.Matched(r.want), policy.All(topology.State{})
	for _, q := range r.state.Have.Queues {
		if !hits.Matches(want, q) {
			continue
		}
		m, ok := entryOf(q)
		switch names := m.PolicyNames(r.want.Name); {
		case ok && names[q.Type()] == want.Name:
			covered = append(covered, q)
		case !ok:
			others = append(others, q)
		}
	}
	return covered, others
}

// matchPolicies completes the policies of matches. One policy is for all queues that a pattern
// matches, so it can repeat what another team's policy sets only if that one is in effect on all
// of them. Of two entries that match a queue the first has the higher priority, also after a
// change of their order, when each is stored with a priority of the order before.
func (r *resolver) matchPolicies(out *matchedPolicies, have map[string]topology.Policy) {
	later := map[string]int64{} // the highest priority of later entries, by what their policies apply to
	for _, want := range r.lastEntryFirst() {
		covered, others := r.hitBy(want)
		if !r.mayMatch(&out.findings, want, covered, others) {
			continue
		}
		likely, known := likelyName(want)
		queues := covered
		if known {
			queues = append(slices.Clone(covered), topology.Queue{
				Name: likely, Arguments: topology.Arguments{topology.ArgQueueType: typeOf(want)}, External: true,
			})
		}
		base, ok := r.commonBase(&out.findings, want, queues)
		if !ok {
			continue
		}
		if base.Name != "" {
			out.bases[want.Name] = base
		}
		for _, p := range r.foreign.Policies() {
			applies := func(q topology.Queue) bool { return p.Name == base.Name || r.foreign.Applies(p, q) }
			if slices.ContainsFunc(queues, applies) && p.Priority >= want.Priority {
				want.Priority = topology.PriorityAbove(p.Priority)
			}
		}
		each := topology.Queue{External: true, Arguments: topology.Arguments{topology.ArgQueueType: typeOf(want)}}
		want.Definition = policy.Merge(each, r.copied(base), want.Definition, nil)
		p, stored := have[want.Name]
		inEffect := base
		if stored {
			inEffect = p
		}
		out.losses[want.Name] = r.losses(inEffect.Definition, want.Definition, covered...)
		if stored {
			want.Priority = max(want.Priority, p.Priority)
		}
		if highest, ok := later[want.ApplyTo]; ok && want.Priority <= highest {
			want.Priority = topology.PriorityAbove(highest)
		}
		if stored && (p.IsPending() || slices.ContainsFunc(covered, func(q topology.Queue) bool { return r.pending(p, q) })) {
			want.Priority = topology.PriorityAbove(want.Priority) // see policies
			out.pending[want.Name] = true
		}
		// Until its own change comes, another policy keeps the priority it is stored with, and
		// an apply may be interrupted before.
		for r.isTaken(want, have) {
			want.Priority = topology.PriorityAbove(want.Priority)
		}
		later[want.ApplyTo] = want.Priority
		out.want = append(out.want, want)
		for _, q := range covered {
			q.External = true
			r.starves(&out.findings, q, base, want)
		}
		if stored {
			p.Label = want.Label
			out.have = append(out.have, p)
			for _, q := range covered {
				r.notInEffect(&out.findings, p, want, q)
			}
		}
	}
}

// isTaken reports whether another policy of a match is stored with the priority of want.
func (r *resolver) isTaken(want topology.Policy, have map[string]topology.Policy) bool {
	for name, p := range have {
		if name != want.Name && topology.IsMatchPolicyName(r.want.Name, name) &&
			p.ApplyTo == want.ApplyTo && p.Priority == want.Priority {
			return true
		}
	}
	return false
}

// lastEntryFirst returns the policies of matches in the opposite order of the entries.
func (r *resolver) lastEntryFirst() []topology.Policy {
	entry := map[string]int{}
	for i, m := range r.want.Matches {
		for _, name := range m.PolicyNames(r.want.Name) {
			entry[name] = i
		}
	}
	out := filtered(r.want.Policies, func(p topology.Policy) bool {
		_, ok := entry[p.Name]
		return ok
	})
	slices.SortStableFunc(out, func(a, b topology.Policy) int { return cmp.Compare(entry[b.Name], entry[a.Name]) })
	return out
}

// typeOf returns the type of the queues that a policy of a match is for.
func typeOf(p topology.Policy) string {
	if p.Definition.HasAny(topology.KeyDeadLetterStrategy) {
		return topology.Quorum
	}
	return topology.Classic
}

// likelyName returns a name that queues of a match will probably have, and whether the pattern
// matches it: what policies of others do to queues that do not exist yet is judged by it.
func likelyName(p topology.Policy) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(p.Pattern); i++ {
		switch c := p.Pattern[i]; {
		case c == '^' && i == 0:
		case c == '\\' && i+1 < len(p.Pattern):
			i++
			b.WriteByte(p.Pattern[i])
		case slices.Contains([]byte(`.^$*+?()[]{}|`), c):
			i = len(p.Pattern)
		default:
			b.WriteByte(c)
		}
	}
	name := b.String() + "x"
	q := topology.Queue{Name: name, Arguments: topology.Arguments{topology.ArgQueueType: typeOf(p)}}
	return name, policy.All(topology.State{}).Matches(p, q)
}

// matchesOfOthers returns the policies of matches of other topologies, by the topology.
func (r *resolver) matchesOfOthers() iter.Seq2[string, topology.Policy] {
	return func(yield func(string, topology.Policy) bool) {
		for _, p := range r.foreign.Policies() {
			owner, managed := topology.PolicyOwner(p.Name)
			if managed && topology.IsMatchPolicyName(owner, p.Name) && !yield(owner, p) {
				return
			}
		}
	}
}

// matchOfOther returns the policy of a match of another topology that applies to a queue, and the
// topology, which is empty if there is none. The plan of that topology is blocked once the queue
// exists.
func (r *resolver) matchOfOther(q topology.Queue) (topology.Policy, string) {
	for owner, p := range r.matchesOfOthers() {
		if r.foreign.Matches(p, q) {
			return p, owner
		}
	}
	return topology.Policy{}, ""
}

// mayMatch refuses a policy of a match that queues on the broker stand against: those of dlxctl
// that it would change, and those whose arguments beat it.
func (r *resolver) mayMatch(f *findings, want topology.Policy, covered, others []topology.Queue) bool {
	for _, q := range others {
		owner, managed := topology.Owner(q.Arguments)
		if !managed {
			continue // only its connection can use it
		}
		f.refuse(nil, want, fmt.Sprintf("the pattern also matches the queue %s, which belongs to the topology %q: the policy would change where its messages go; exclude it from match, as in ^svc\\.(?!old$)",
			text.Name(q.Name), owner))
		return false
	}
	for owner, p := range r.matchesOfOthers() {
		if name, known := likelyName(p); known && r.foreign.Matches(want, topology.Queue{
			Name: name, Arguments: topology.Arguments{topology.ArgQueueType: typeOf(p)},
		}) {
			f.refuse(nil, want, fmt.Sprintf("the policy %s of the topology %q gives queues such as %s their dead-lettering, which the pattern matches too; exclude what both match from one of them",
				text.Name(p.Name), owner, text.Name(name)))
			return false
		}
	}
	failed := topology.FailedExchangeName(r.want.Name)
	for _, q := range covered {
		exchange, named := q.Arguments[topology.ArgDeadLetterExchange]
		key, keyed := q.Arguments[topology.ArgDeadLetterRoutingKey]
		if named && keyed && exchange == failed && key == topology.AddressKey(q.Name) {
			continue // the service has declared what the file of a queue by name would set
		}
		if !f.attachable(want, q) {
			return false
		}
		limited := q.Arguments.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes)
		if q.Type() == topology.Quorum && limited && q.Arguments[topology.ArgOverflow] != topology.RejectPublish {
			f.refuse(nil, want, fmt.Sprintf("the queue %s has a limited length and drops its oldest messages; with the policy it would refuse new ones; exclude it from match, and write an entry with its name",
				text.Name(q.Name)))
			return false
		}
	}
	return true
}

// commonBase returns the policy of others that is in effect on all queues that a match covers. It
// refuses the match if they have several, or some have none.
func (r *resolver) commonBase(f *findings, want topology.Policy, queues []topology.Queue) (topology.Policy, bool) {
	var base topology.Policy
	for i, q := range queues {
		p, _ := r.foreign.For(q)
		owner, managed := topology.PolicyOwner(p.Name)
		switch {
		case managed:
			which, its := "the queue "+text.Name(q.Name), "its"
			if _, exists := r.existing[q.Name]; !exists {
				which, its = "queues such as "+text.Name(q.Name), "their"
			}
			f.refuse(nil, want, fmt.Sprintf("the policy %s of the topology %q gives %s %s dead-lettering; exclude what both match from one of them",
				text.Name(p.Name), owner, which, its))
			return base, false
		case !topology.Overridable(p.Priority):
			f.refuse(nil, want, fmt.Sprintf("the policy %s has the highest possible priority, so that no other policy can give the queue %s its dead-lettering; lower that priority", text.Name(p.Name), text.Name(q.Name)))
			return base, false
		case i > 0 && p.Name != base.Name:
			f.refuse(nil, want, fmt.Sprintf("on the queues that the pattern matches different policies are in effect, %s, and one policy cannot repeat them all; write an entry with match for each",
				inEffectOn(base, queues[0])+" and "+inEffectOn(p, q)))
			return base, false
		}
		base = p
	}
	return base, true
}

// inEffectOn names a policy and a queue.
func inEffectOn(p topology.Policy, q topology.Queue) string {
	if p.Name == "" {
		return "none on " + text.Name(q.Name)
	}
	return text.Name(p.Name) + " on " + text.Name(q.Name)
}

// attachMatches notes the policies of matches for the queues that exist and that they cover.
func (r *resolver) attachMatches() {
	policies := byName(r.want.Policies, func(p topology.Policy) string { return p.Name })
	for _, w := range r.want.WorkQueues {
		if w.Match != "" {
			m := topology.Match{Pattern: w.Match}
			r.attach[w.Name] = policies[m.PolicyNames(r.want.Name)[r.existing[w.Name].Type()]]
		}
	}
}
