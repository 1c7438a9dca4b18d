package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Policies of others can make generated queues lose or misroute messages (see
// policy.Table). Where such a policy applies, a policy of dlxctl overrides it: the
// same definition without the harmful keys. The queues of a role that the same
// policy would harm share one such policy, as the broker looks at every policy for
// every queue (one for each of 1,000 queues would take half an hour). Its pattern
// is the list of their names; where that gets too long, a second policy goes on.

// protection is what the queues of one role need against one policy.
type protection struct {
	protectionKey

	policy   topology.Policy // the one to override
	found    []topology.Policy
	members  []topology.Queue
	keys     map[string][]topology.Queue // the harmful keys, and the queues that each harms
	priority int64
	stamped  int64 // messages that the policy has given an expiry already
}

// protectionKey is what tells the protections of a topology apart.
type protectionKey struct {
	role topology.Role
	base string
}

// protects reports whether a policy is one that overrides a harmful policy.
func (r *resolver) protects(name string) bool {
	_, _, _, ok := topology.ProtectionOf(r.want.Name, name)
	return ok
}

// guards are the policies that override harmful ones on generated queues.
type guards struct {
	*resolver
	findings // what no policy can override, as blocked changes that need consent

	list     []protection
	orphaned []topology.Policy // protections that are not listed and still in effect
	harms    []string          // what policies do that no other policy overrides, in words
	pending  map[string]bool   // the protections that are stored and may not be in effect
	exists   map[string]bool   // the queues that exist
}

// guards finds the policies of others that harm generated queues: what can be
// overridden, and what needs consent.
func (r *resolver) guards(wanted ...[]topology.Queue) *guards {
	out := &guards{resolver: r, pending: map[string]bool{}, exists: map[string]bool{}}
	out.collect(slices.Concat(wanted...))
	return out
}

// collect fills g. wanted are the queues that the broker is to have, refused ones left out.
func (r *guards) collect(wanted []topology.Queue) {
	for _, q := range r.state.Have.Queues {
		r.exists[q.Name] = true
	}
	found, endured := r.foundProtections(), map[string]*enduring{}
	for _, q := range r.generated(found, wanted) {
		base, keys := r.foreign.Harmful(q)
		switch {
		case len(keys) == 0:
		case topology.Overridable(base.Priority):
			r.protect(protected(found, protectionKey{q.Label.Role, base.Name}), base, q, keys)
		default:
			endure(endured, "the policy", base, "it has the highest possible priority: lower it", r.foreign).add(q,
				keys, base.Definition)
		}
		if op, ok := r.foreign.Operator(q); ok {
			all := maps.Clone(base.Definition) // such as where it moves what expires
			if all == nil {
				all = topology.Arguments{}
			}
			maps.Copy(all, op.Definition)
			endure(endured, "the operator policy", op,
				"no other policy overrides an operator policy: exclude these queues from its pattern", r.foreign).add(q,
				r.foreign.Harms(q, op.Definition), all)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), compareProtections) {
		r.list = append(r.list, *found[key])
	}
	for _, id := range slices.Sorted(maps.Keys(endured)) {
		if c, harms := endured[id].change(); harms {
			r.refused = append(r.refused, c)
			r.harms = append(r.harms, c.Reason)
		}
	}
	r.orphanedProtections()
}

// foundProtections returns those of the broker, the policies of each in their order.
func (r *resolver) foundProtections() map[protectionKey]*protection {
	found := map[protectionKey]*protection{}
	for _, p := range r.state.Have.Policies {
		if role, _, base, ok := topology.ProtectionOf(r.want.Name, p.Name); ok {
			g := protected(found, protectionKey{role, base})
			g.found = append(g.found, p)
		}
	}
	for _, g := range found {
		slices.SortFunc(g.found, func(a, b topology.Policy) int {
			return cmp.Compare(partNumber(r.want.Name, a), partNumber(r.want.Name, b))
		})
	}
	return found
}

func compareProtections(a, b protectionKey) int {
	return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.base, b.base))
}

func protected(found map[protectionKey]*protection, key protectionKey) *protection {
	if found[key] == nil {
		found[key] = &protection{protectionKey: key, keys: map[string][]topology.Queue{}}
	}
	return found[key]
}

// partNumber returns which of several protections a policy is.
func partNumber(top string, p topology.Policy) int {
	_, n, _, _ := topology.ProtectionOf(top, p.Name)
	return n
}

// generated returns the queues that dlxctl made and that hold messages on their way
// or at its end: those of the file, and those of the topology that are no longer in it, as
// long as they exist. What exists is given as it is.
func (r *resolver) generated(found map[protectionKey]*protection, permitted []topology.Queue) []topology.Queue {
	roles := policy.ProtectedRoles()
	listed := map[string]topology.Role{} // a dead-letter queue may have any name
	for key, g := range found {
		for _, p := range g.found {
			for _, name := range topology.PatternQueues(p.Pattern) {
				listed[name] = key.role
			}
		}
	}
	allowed := namesOf(permitted, func(q topology.Queue) string { return q.Name })
	wanted := map[string]bool{}
	var out []topology.Queue
	for _, q := range r.want.Queues {
		wanted[q.Name] = true
		if !allowed[q.Name] || q.External || !slices.Contains(roles, q.Label.Role) {
			continue // of another topology, or external
		}
		if existing, ok := r.existing[q.Name]; ok {
			existing.Label = q.Label
			q = existing
		}
		out = append(out, q)
	}
	for _, q := range r.state.Have.Queues {
		if wanted[q.Name] || !r.owns(q.Arguments) {
			continue
		}
		q.Label = r.queueLabel(q.Name, listed[q.Name])
		if r.previousDeadLetterQueue(q) {
			q.Label.Role = topology.RoleDeadLetter
		}
		if slices.Contains(roles, q.Label.Role) {
			out = append(out, q)
		}
	}
	return out
}

// protect notes that a queue is harmed by some keys of a policy.
func (r *guards) protect(g *protection, base topology.Policy, q topology.Queue, keys []string) {
	g.policy = base
	g.policy.Definition = r.copied(base)
	g.members = append(g.members, q)
	for _, key := range keys {
		g.keys[key] = append(g.keys[key], q)
	}
	g.priority = max(g.priority, topology.PolicyPriority)
	for _, p := range r.foreign.Policies() {
		if p.Priority >= g.priority && topology.Overridable(p.Priority) && r.foreign.Reaches(p, q) {
			g.priority = topology.PriorityAbove(p.Priority)
		}
	}
	if r.state.QueuePolicies[q.Name] == base.Name && slices.Contains(keys, topology.KeyMessageTTL) &&
		q.Label.Role != topology.RoleRetry {
		g.stamped += r.held(q.Name)
	}
	if r.state.QueuePolicies == nil {
		return
	}
	reported := r.state.QueuePolicies[q.Name]
	if !r.exists[q.Name] || slices.ContainsFunc(g.found, func(p topology.Policy) bool { return p.Name == reported }) {
		return
	}
	for _, p := range g.found { // it should be in effect
		if slices.Contains(topology.PatternQueues(p.Pattern), q.Name) {
			r.pending[p.Name] = true
		}
	}
}

// orphanedProtections adds the protections that are gone from the broker's list and
// still in effect.
func (r *guards) orphanedProtections() {
	listed := byName(r.state.Have.Policies, func(p topology.Policy) string { return p.Name })
	for _, queue := range slices.Sorted(maps.Keys(r.state.QueuePolicies)) {
		name := r.state.QueuePolicies[queue]
		role, _, _, marked := topology.ProtectionOf(r.want.Name, name)
		if _, there := listed[name]; marked && !there {
			r.orphaned = append(r.orphaned, topology.Policy{Name: name, Label: topology.Label{Role: role, Queue: queue}})
		}
	}
}

// enduring is a policy that harms generated queues and that nothing overrides.
type enduring struct {
	kind    string // what it is, with an article
	remedy  string
	policy  topology.Policy
	table   *policy.Set
	hazards map[topology.Hazard]bool
	order   []string
	harms   map[string]*harm
}

// harm is what one key does to queues of one role, on which it does the same together with the
// other keys in effect.
type harm struct {
	queue      topology.Queue // one of them
	key        string
	definition topology.Arguments
	queues     []string
}

func endure(all map[string]*enduring, kind string, p topology.Policy, remedy string, table *policy.Set) *enduring {
	id := kind + " " + p.Name
	if all[id] == nil {
		all[id] = &enduring{
			kind: kind, policy: p, remedy: remedy, table: table, hazards: map[topology.Hazard]bool{},
			harms: map[string]*harm{},
		}
	}
	return all[id]
}

// add notes which keys harm a queue. A key without a hazard is left to the
// warnings.
func (e *enduring) add(q topology.Queue, keys []string, definition topology.Arguments) {
	for _, key := range keys {
		hazard := e.table.Cell(key, q).Hazard
		if hazard == "" {
			continue
		}
		e.hazards[hazard] = true
		// The other keys in effect decide too.
		does := policy.Consequence(q, key, definition, "")
		id := fmt.Sprintf("%s %s %s", key, q.Label.Role, does)
		if e.harms[id] == nil {
			e.harms[id] = &harm{queue: q, key: key, definition: definition}
			e.order = append(e.order, id)
		}
		e.harms[id].queues = append(e.harms[id].queues, text.Name(q.Name))
	}
}

// change returns the change that needs consent. It writes nothing. It reports false
// if the policy does no harm.
func (e *enduring) change() (Change, bool) {
	if len(e.order) == 0 {
		return Change{}, false
	}
	c := Change{Action: Blocked, Kind: topology.KindPolicy, Name: e.policy.Name}
	var texts []string
	keys := map[string]bool{}
	for _, id := range e.order {
		h := e.harms[id]
		texts = append(texts, policy.Consequence(h.queue, h.key, h.definition, text.Some(h.queues)))
		if !keys[h.key] {
			keys[h.key] = true
			c.Fields = append(c.Fields, Field{Name: h.key, After: e.policy.Definition[h.key]})
		}
	}
	for _, h := range topology.Hazards() {
		if e.hazards[h] {
			c.Hazards = append(c.Hazards, h)
		}
	}
	c.Reason = fmt.Sprintf("%s %s (pattern %s) would %s; %s, or consent to what it does",
		e.kind, text.Name(e.policy.Name), text.Name(e.policy.Pattern), strings.Join(texts, "; and "), e.remedy)
	return c, true
}

// IsEndured reports whether c describes the effect of a policy that dlxctl cannot override, or a
// queue that is replaced under its name ([Change.ReplacesQueue]). Such a change needs consent.
func (c Change) IsEndured() bool { return c.Action == Blocked && len(c.Hazards) > 0 }
