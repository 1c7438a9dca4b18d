package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// idleLength is a length limit that no queue comes to: the broker wants something
// in a policy.
const idleLength = int64(1) << 31

// protectionChanges compares the policies that override harmful ones. deletions are
// the changes that take queues away.
func (r resolved) protectionChanges(deletions []Change) []Change {
	gone := map[string]bool{}
	for _, c := range deletions {
		gone[c.Name] = gone[c.Name] || c.Kind == topology.KindQueue && c.Action == Delete
	}
	var out []Change
	for _, g := range r.guards.list {
		out = append(out, r.protectionChange(g, gone)...)
	}
	for _, p := range r.guards.orphaned {
		if slices.ContainsFunc(out, func(c Change) bool { return c.Name == p.Name }) {
			continue // it is made again
		}
		c := exposing(p, nil)
		c.Reason = fmt.Sprintf("it is deleted, and still in effect on %s", text.Name(p.Label.Queue))
		out = append(out, c)
	}
	return out
}

// protectionChange returns the changes of one protection.
func (r resolved) protectionChange(g protection, gone map[string]bool) []Change {
	var out []Change
	for _, x := range g.parts(r.want.Name, r.guards.exists) {
		stays := slices.ContainsFunc(x.members, func(name string) bool { return !gone[name] })
		if !stays {
			if x.have != nil {
				out = append(out, exposing(*x.have, nil))
			}
			continue
		}
		c := g.change(x, g.want(x, r.want.Name, x.have != nil && r.guards.pending[x.have.Name]))
		if len(c.Fields) > 0 {
			out = append(out, c)
		}
		if want, _ := c.After.(topology.Policy); len(x.others) > 0 {
			narrow := want
			narrow.Pattern = topology.QueuesPattern(x.members)
			out = append(out, exposing(want, &narrow))
		}
	}
	return out
}

// harmed says what policies of others do to generated queues now, or would do to
// those that are to be made.
func (r resolved) harmed(changes []Change) []string {
	out := slices.Clone(r.guards.harms)
	for _, g := range r.guards.list {
		if slices.ContainsFunc(changes, func(c Change) bool { return c.Phase == phaseProtect && c.Reason == g.reason() }) {
			out = append(out, g.harm())
		}
	}
	return out
}

// exposing returns the change that takes queues out of a protection, or takes it
// away: they need it no more.
func exposing(have topology.Policy, narrow *topology.Policy) Change {
	c := Change{
		Action: Delete, Kind: topology.KindPolicy, Name: have.Name, Before: have, Phase: phaseExpose, ReturnPath: true,
		Label: have.Label, Reason: "there is no harmful policy left to override",
	}
	if narrow == nil {
		c.Fields = differing(have.Properties(), nil)
		return c
	}
	c.Action, c.ReturnPath, c.After, c.Fields = Update, false, *narrow, differing(have.Properties(), narrow.Properties())
	c.Reason = "the other queues no longer need it"
	return c
}

// part is one of the policies of a protection.
type part struct {
	n       int
	have    *topology.Policy
	listed  []string // the queues in the pattern of have
	members []string // those that need it
	others  []string // those in the pattern that exist and do not need it
	size    int      // of the pattern in bytes, at most
}

// parts spreads the members of a protection over its policies: each stays where it
// is, so that none is without for a moment. Names in a pattern of queues that do not
// exist are left there until the policy is written again.
func (g protection) parts(top string, exists map[string]bool) []part {
	needs := map[string]bool{}
	for _, q := range g.members {
		needs[q.Name] = true
	}
	var out []part
	placed, highest := map[string]bool{}, 0
	for _, p := range g.found {
		x := part{n: partNumber(top, p), have: &p, listed: topology.PatternQueues(p.Pattern)}
		highest = max(highest, x.n)
		for _, name := range x.listed {
			switch {
			case needs[name] && !placed[name]:
				placed[name] = true
				x.members = append(x.members, name)
			case exists[name] && !needs[name]:
				x.others = append(x.others, name)
			}
		}
		x.size = len(topology.QueuesPattern(slices.Concat(x.members, x.others)))
		out = append(out, x)
	}
	for _, q := range g.members {
		if placed[q.Name] {
			continue
		}
		placed[q.Name] = true
		more := len(topology.QueuesPattern([]string{q.Name}))
		i := slices.IndexFunc(out, func(x part) bool { return x.size+more <= topology.MaxPatternBytes })
		if i < 0 {
			highest++
			i, out = len(out), append(out, part{n: highest})
		}
		out[i].members, out[i].size = append(out[i].members, q.Name), out[i].size+more
	}
	return out
}

// want returns the policy of a part, with the queues that do not need it any more:
// these are taken out last. pending says that the one that was found may not be in
// effect.
func (g protection) want(x part, top string, pending bool) topology.Policy {
	definition := topology.Arguments{}
	for key, v := range g.policy.Definition {
		if g.keys[key] == nil {
			definition[key] = v
		}
	}
	if len(definition) == 0 {
		definition[topology.KeyMaxLength] = idleLength
	}
	want := topology.Policy{
		Name:    topology.ProtectionName(top, g.role, x.n, g.base),
		Pattern: topology.QueuesPattern(slices.Concat(x.members, x.others)), ApplyTo: "queues",
		Priority: g.priority, Definition: definition, Label: topology.Label{Role: g.role},
	}
	if x.have == nil {
		return want
	}
	want.Priority = max(want.Priority, x.have.Priority) // a higher one does no harm
	if pending || x.have.IsPending() {
		want.Priority = topology.PriorityAbove(want.Priority) // the broker passes over a policy that it has stored just so
	}
	missing := slices.ContainsFunc(x.members, func(name string) bool { return !slices.Contains(x.listed, name) })
	if !missing && x.listed != nil {
		want.Pattern = x.have.Pattern // what else it names does not exist
	}
	return want
}

// change returns the change that puts a part of a protection in place. It has no
// fields if that is as it should be.
func (g protection) change(x part, want topology.Policy) Change {
	c := Change{
		Action: Update, Kind: topology.KindPolicy, Name: want.Name, After: want, Label: want.Label,
		Phase: phaseProtect, Reason: g.reason(),
	}
	if x.have != nil {
		c.Before, c.Fields = *x.have, differing(x.have.Properties(), want.Properties())
		return c
	}
	c.Action = Create
	c.Fields = overlaid(asFields(g.policy.Definition.Properties()), asFields(want.Properties()))
	for _, key := range slices.Sorted(maps.Keys(g.keys)) {
		if want.Definition[key] == nil {
			c.Fields = append(c.Fields, Field{Name: key, Before: g.policy.Definition[key]})
		}
	}
	return c
}

// reason says what would be without the protection.
func (g protection) reason() string {
	why := g.harm() + "; this policy overrides it there"
	if len(g.policy.Definition) > len(g.keys) {
		why += " and keeps its other settings"
	}
	if g.stamped > 0 {
		why += fmt.Sprintf("; it has set the expiry of %s there already: take them out before they expire",
			text.Count(g.stamped, "message"))
	}
	return why
}

// harm says what the policy would do.
func (g protection) harm() string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(g.keys)) {
		alike := map[string][]string{} // queues to which it does the same
		var one []topology.Queue
		for _, q := range g.keys[key] {
			does := policy.Consequence(q, key, g.policy.Definition, "")
			if alike[does] == nil {
				one = append(one, q)
			}
			alike[does] = append(alike[does], text.Name(q.Name))
		}
		for _, q := range one {
			names := alike[policy.Consequence(q, key, g.policy.Definition, "")]
			texts = append(texts, policy.Consequence(q, key, g.policy.Definition, text.Some(names)))
		}
	}
	return fmt.Sprintf("the policy %s (pattern %s) would %s", text.Name(g.policy.Name),
		text.Name(g.policy.Pattern), strings.Join(texts, "; and "))
}

// Exposes reports whether c ends the protection of queues from harmful policies of other teams.
// Such a change comes after the deletion of these queues.
func Exposes(c Change) bool {
	_, ok := c.Before.(topology.Policy)
	return ok && c.Phase == phaseExpose
}

// keepsExposed reports whether a change takes the protection away of a queue that
// stays.
func (h *kept) keepsExposed(c Change) bool {
	p, _ := c.Before.(topology.Policy)
	return Exposes(c) && slices.ContainsFunc(topology.PatternQueues(p.Pattern), func(queue string) bool {
		return h.objects[topology.Key{Kind: topology.KindQueue, Name: queue}]
	})
}
