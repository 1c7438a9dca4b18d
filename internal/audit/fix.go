package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Fix are changes of a virtual host that remove a finding.
type Fix struct {
	// Changes are made in this order: a message always has somewhere to go.
	Changes []Change
	// Chooses says what a person should decide first, where the changes choose one of several ways. A
	// comment above them says it. Empty: there is one way.
	Chooses string
	// Lines are lines of a topology file, with which dlxctl makes the changes. Empty: requests to
	// the broker make them.
	Lines string
}

// requests returns the requests that make the changes. It reports false if there are none.
func (f Fix) requests(vhost string) ([]Request, bool) {
	var out []Request
	for _, c := range f.Changes {
		r, ok := c.Request(vhost)
		if !ok {
			return nil, false
		}
		out = append(out, r)
	}
	return out, true
}

// remedy returns the fix as text: lines of a topology file, or commands of which each runs only if
// the one before has succeeded.
func (f Fix) remedy(vhost string) (string, bool) {
	out, ok := f.Lines, true
	if out == "" {
		var requests []Request
		requests, ok = f.requests(vhost)
		out = strings.Join(text.Each(requests, Request.String), " &&\n")
	}
	if f.Chooses != "" {
		out = "# " + f.Chooses + "\n" + out
	}
	return out, ok
}

// choosing says of each fix what it chooses.
func choosing(fixes []Fix, format string, args ...any) []Fix {
	for i := range fixes {
		fixes[i].Chooses = fmt.Sprintf(format, args...)
	}
	return fixes
}

// The limits of what an audit tries: how many objects a virtual host may have, and how many the
// audits of all trials may have together, which take some seconds.
const (
	maxTriedObjects = 5_000
	maxTried        = 100_000
	// usualHops is how many hops of dead letters an object has at most in usual virtual hosts. Where
	// all queues dead-letter to an exchange that leads to all of them there are far more.
	usualHops = 4
)

// hops returns how many hops all dead letters have.
func (x *index) hops() int {
	n := 0
	for _, q := range x.queues {
		for _, w := range q.Ways {
			n += len(w.Hops)
		}
	}
	return n
}

// about is what a finding is about: a rule and an object.
type about struct {
	rule   string
	object topology.Key
}

// standing is what an audit says of a virtual host, as far as a fix may make it worse.
type standing struct {
	findings map[about]Severity
	fates    map[string]Fate
	// reached are, by queue, the work queues to which its dead letters come.
	reached map[string]map[string]bool
	// flooded are the queues for dead letters to which other messages come too.
	flooded map[string]bool
	// spilling are the queues that dead-letter their oldest message when they are full, refusing those
	// that refuse the newest one.
	spilling, refusing map[string]bool
}

// standing returns what the survey of an index says of its virtual host, without findings.
func (x *index) standing() standing {
	s := standing{
		findings: map[about]Severity{}, fates: x.Fates(),
		reached: map[string]map[string]bool{}, flooded: map[string]bool{},
		spilling: map[string]bool{}, refusing: map[string]bool{},
	}
	for _, q := range x.queues {
		s.flooded[q.Name] = q.Role == topology.RoleDeadLetter && q.Business()
		s.spilling[q.Name] = q.spills()
		s.refusing[q.Name] = policy.OverflowOf(q.Queue.Queue, q.Args) == topology.RejectPublish
		s.reached[q.Name] = map[string]bool{}
		for _, w := range q.Ways {
			for _, name := range w.Hops {
				if _, works := s.fates[name]; works && name != q.Name {
					s.reached[q.Name][name] = true
				}
			}
		}
	}
	return s
}

// misdirects reports whether messages come to a queue that should not get them: dead letters to a
// work queue to which they did not come before, or other messages to a queue for dead letters.
func (s standing) misdirects(before standing) bool {
	for name, works := range before.reached {
		for work := range s.reached[name] {
			if _, existed := before.fates[work]; existed && !works[work] {
				return true
			}
		}
	}
	for name, flooded := range s.flooded {
		if flooded && !before.flooded[name] {
			return true
		}
	}
	return false
}

// refuses reports whether a queue refuses messages when it is full, and dead-lettered its oldest
// ones before: publishers without confirms lose what it refuses.
func (s standing) refuses(before standing) bool {
	for name, spills := range before.spilling {
		if spills && s.refusing[name] {
			return true
		}
	}
	return false
}

// trial tries fixes on the model of a virtual host.
type trial struct {
	in     Input
	before standing
	tried  map[string]standing
	budget int
}

// settle chooses for each finding the first fix of its Tries that removes it, and adds neither an
// error nor a warning, nor lets a queue lose messages that it kept or refuse what it dead-lettered,
// nor brings messages to a queue that should not get them: alone, and together with the fixes of
// all other findings. A finding without such a fix keeps the words of its rule. It returns how many
// findings have fixes that were not tried, because the virtual host is large.
func settle(in Input, findings []Finding) (untried int) {
	in.Rules = slices.Clone(in.Rules)
	for _, r := range Rules() { // a fix must not add a finding of a rule that was not asked for
		if !r.Off {
			in.Rules = append(in.Rules, r.ID)
		}
	}
	t := trial{in: in, tried: map[string]standing{}, budget: maxTried}
	if !slices.ContainsFunc(findings, func(f Finding) bool { return len(f.Tries) > 0 }) {
		return 0
	}
	t.before, _ = t.audit(nil, findings)
	var chosen []int
	for _, i := range firstOfEachRule(findings) {
		switch ok, tried := t.choose(&findings[i]); {
		case !tried:
			untried++
		case ok:
			chosen = append(chosen, i)
		}
	}
	slices.Sort(chosen)
	kept := t.together(findings, nil, t.withoutConflicts(findings, chosen))
	for i := range findings {
		f := &findings[i]
		f.Tries = nil
		if !slices.Contains(kept, i) {
			if len(f.Fix.Changes) > 0 {
				f.Remedy = "apply the other fixes, then run dlxctl audit again: this one does not go together with them"
			}
			f.Fix = Fix{}
			continue
		}
		f.Remedy, _ = f.Fix.remedy(in.State.VHost)
	}
	return untried
}

func objects(s topology.State) int {
	return len(s.Have.Queues) + len(s.Have.Exchanges) + len(s.Have.Bindings) + len(s.Have.Policies)
}

// firstOfEachRule returns the order in which fixes are tried: first those that the text shows.
func firstOfEachRule(findings []Finding) []int {
	var first, rest []int
	for i, f := range findings {
		if i > 0 && findings[i-1].Rule == f.Rule && findings[i-1].Severity == f.Severity {
			rest = append(rest, i)
		} else {
			first = append(first, i)
		}
	}
	return append(first, rest...)
}

// choose sets the first fix of a finding that holds alone. tried is false if one was not tried.
func (t *trial) choose(f *Finding) (ok, tried bool) {
	for _, fix := range f.Tries {
		if _, ok := fix.remedy(t.in.State.VHost); !ok || len(fix.Changes) == 0 {
			continue
		}
		after, ok := t.audit(fix.Changes, nil)
		if !ok {
			return false, false
		}
		if t.holds(after, fix.Changes, []about{f.about()}) {
			f.Fix = fix
			return true, true
		}
	}
	return false, true
}

func (f Finding) about() about { return about{f.Rule, f.Object} }

// audit returns what an audit says after changes, and false if that would take too long. It has no
// rules but those that run by themselves, and those of findings.
func (t *trial) audit(changes []Change, findings []Finding) (standing, bool) {
	key := fmt.Sprint(changes)
	if s, ok := t.tried[key]; ok {
		return s, true
	}
	in := t.in
	in.State = Apply(in.State, changes)
	if t.budget -= objects(in.State); t.budget < 0 {
		return standing{}, false
	}
	x := newIndex(in)
	x.trying = true
	s := x.standing()
	t.budget -= objects(in.State)*(x.Outcomes-1) + max(0, x.hops()-usualHops*objects(in.State))
	for _, f := range slices.Concat(x.findings(in), findings) {
		if worst, ok := s.findings[f.about()]; !ok || f.Severity.rank() < worst.rank() {
			s.findings[f.about()] = f.Severity
		}
	}
	t.tried[key] = s
	return s, true
}

// holds reports whether changes remove findings and make nothing worse.
func (t *trial) holds(after standing, changes []Change, gone []about) bool {
	for _, a := range gone {
		if _, there := after.findings[a]; there {
			return false
		}
	}
	for a, severity := range after.findings {
		if was, there := t.before.findings[a]; severity != Note && (!there || severity.rank() < was.rank()) {
			return false
		}
	}
	if after.misdirects(t.before) || after.refuses(t.before) {
		return false
	}
	for name, fate := range after.fates {
		was, there := t.before.fates[name]
		if !there && fate != Kept || there && badness(fate) > badness(was) {
			return false
		}
	}
	for name := range t.before.fates {
		if _, there := after.fates[name]; !there && !deletes(changes, topology.Key{Kind: topology.KindQueue, Name: name}) {
			return false // it is not a work queue any more
		}
	}
	return true
}

// badness orders fates, the best first.
func badness(f Fate) int { return slices.Index([]Fate{Kept, Endless, Undecided, Lost}, f) }

func deletes(changes []Change, object topology.Key) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.Delete && c.Object.ID() == object })
}

// withoutConflicts returns the findings whose fixes do not change an object in another way, or by
// other lines, than the fix of a worse finding does. The others say so.
func (t *trial) withoutConflicts(findings []Finding, chosen []int) []int {
	type write struct {
		change string
		by     int
	}
	written := map[topology.Key]write{}
	return slices.DeleteFunc(slices.Clone(chosen), func(i int) bool {
		f := &findings[i]
		for _, c := range f.Fix.Changes {
			w, ok := written[c.Object.ID()]
			if !ok {
				continue
			}
			other := findings[w.by]
			if w.change != fmt.Sprint(c) || f.Fix.Lines != other.Fix.Lines && f.Fix.Lines != "" && other.Fix.Lines != "" {
				f.Remedy = fmt.Sprintf("apply the fix of %s for %s, then run dlxctl audit again: both change %s %s",
					other.Rule, other.DisplayName(), c.Object.Kind(), text.Name(c.Object.DisplayName()))
				f.Fix = Fix{}
				return true
			}
		}
		for _, c := range f.Fix.Changes {
			if _, ok := written[c.Object.ID()]; !ok {
				written[c.Object.ID()] = write{fmt.Sprint(c), i}
			}
		}
		return false
	})
}

// together returns the findings whose fixes hold together: those of kept, which do, and as many of
// more as do with them.
func (t *trial) together(findings []Finding, kept, more []int) []int {
	if len(more) == 0 {
		return kept
	}
	all := slices.Sorted(slices.Values(slices.Concat(kept, more)))
	var changes []Change
	var gone []about
	seen := map[string]bool{}
	for _, i := range all {
		for _, c := range findings[i].Fix.Changes {
			if key := fmt.Sprint(c); !seen[key] {
				seen[key] = true
				changes = append(changes, c)
			}
		}
		gone = append(gone, findings[i].about())
	}
	t.budget = max(t.budget, maxTriedObjects) // what was tried alone is tried together
	if after, ok := t.audit(changes, nil); ok && t.holds(after, changes, gone) {
		return all
	}
	if len(more) == 1 {
		return kept
	}
	half := len(more) / 2
	return t.together(findings, t.together(findings, kept, more[:half]), more[half:])
}

// compareFindings orders findings: the worst first, then by rule and object.
func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Name, b.Object.Name),
		cmp.Compare(a.Evidence, b.Evidence), cmp.Compare(a.Consequence, b.Consequence),
	)
}
