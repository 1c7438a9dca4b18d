package planview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// section is a part of a plan with a heading: what the topology shares, the work queues of one
// owner, or what is no longer in the file.
type section struct {
	rank    sectionRank
	owner   string
	entries []*entry
}

// sectionRank orders the sections. Owners come in the order of the file.
type sectionRank int

const (
	sharedSection sectionRank = iota
	ownerSection
	ownerlessSection
	goneSection
)

// gone is the heading of what is no longer in the file. The reasons of the deletions begin with it.
const gone = "no longer declared"

// title returns the heading.
func (s section) title() string {
	switch s.rank {
	case sharedSection:
		return "shared by all queues"
	case ownerlessSection:
		return "no owner"
	case goneSection:
		return gone
	case ownerSection:
	}
	return text.Name(s.owner)
}

// sections writes the changes by owner and by subject. If all work queues have the same owner, or
// none, there are no headings.
func (t *textWriter) sections() {
	owners := slices.Compact(slices.Sorted(maps.Values(ownersOf(t.p))))
	titled := len(owners) > 1
	sections := sectionsOf(t.p)
	l := layout{textWriter: t}
	for i, s := range sections {
		if titled || i == 0 {
			l.queues = map[string]bool{}
		}
		l.gone, l.made = titled && s.rank == goneSection, nil
		if titled {
			t.line("%s", text.Paint(t.o.Style.Strong, s.title()))
			l.indent = "  "
		}
		for _, e := range s.entries {
			l.entry(e)
		}
		l.flush()
		if titled {
			t.line("")
		}
	}
	if !titled {
		t.gap(len(sections))
	}
}

// sectionsOf groups the changes.
func sectionsOf(p plan.Plan) []section {
	// The place in the file, from 1, of a work queue, or of a match by its pattern, which comes behind
	// them, and the first place of each owner.
	works, owners, owner := map[string]int{}, map[string]int{}, ownersOf(p)
	add := func(name string) {
		works[name] = len(works) + 1
		if owners[owner[name]] == 0 {
			owners[owner[name]] = works[name]
		}
	}
	for _, w := range p.WorkQueues {
		add(w.Name)
	}
	for _, m := range p.Matches {
		add(m.Pattern)
	}
	var out []section
	index := map[sectionKey]int{}
	for _, e := range entriesOf(p) {
		key := sectionOf(p, e, owner)
		i, known := index[key]
		if !known {
			i = len(out)
			index[key] = i
			out = append(out, section{rank: key.rank, owner: key.owner})
		}
		out[i].entries = append(out[i].entries, e)
	}
	for _, s := range out {
		slices.SortStableFunc(s.entries, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(works[a.name], works[b.name]))
		})
	}
	slices.SortStableFunc(out, func(a, b section) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(owners[a.owner], owners[b.owner]))
	})
	return out
}

// sectionKey tells sections apart.
type sectionKey struct {
	rank  sectionRank
	owner string
}

// sectionOf returns the section of an entry. owners has the work queues and matches of the file.
func sectionOf(p plan.Plan, e *entry, owners map[string]string) sectionKey {
	owner, known := owners[e.name]
	switch {
	case e.kind == queueSubject && owner != "":
		return sectionKey{ownerSection, owner}
	case e.kind != sharedSubject && !known && e.deletesOnly() && placeOfSubject(p, e.subject).IsZero():
		return sectionKey{goneSection, ""}
	case e.kind == queueSubject:
		return sectionKey{ownerlessSection, ""}
	}
	return sectionKey{sharedSection, ""}
}

// entry is all that a plan changes of one subject.
type entry struct {
	subject

	// changes are shown one by one: the subject itself, and what is at risk.
	changes []plan.Change
	// bindings are those from declared exchanges, grouped.
	bindings []*bindingGroup
	// generated are the other changes, counted.
	generated []*group
	// reschedule is the change of a backoff. Nil: its tiers stay as they are.
	reschedule *plan.Reschedule
	// waits is the backoff of the subject. Nil: it is not a backoff of the file.
	backoff *topology.Backoff
	queues  int  // that have the backoff
	stays   bool // the backoff is one of the file, also by RabbitMQ's own retries
}

// bindingGroup is bindings of one subject that are made or deleted alike.
type bindingGroup struct {
	action          plan.Action
	hazards, reason string
	list            []topology.Binding
	place           topology.Place // of the first
}

// group is generated objects of one subject that are made or deleted alike.
type group struct {
	action     plan.Action
	counts     map[topology.Kind]int
	atMostOnce bool
}

// String returns the counts: "2 exchanges, 4 queues".
func (g *group) String() string {
	var parts []string
	for _, k := range []topology.Kind{
		topology.KindExchange, topology.KindQueue, topology.KindBinding,
		topology.KindPolicy,
	} {
		if n := g.counts[k]; n > 0 {
			parts = append(parts, text.Count(n, string(k)))
		}
	}
	line := strings.Join(parts, ", ")
	if g.atMostOnce {
		line += " [" + topology.AtMostOnce + "]"
	}
	return line
}

// entriesOf collects the changes by subject, in the order in which they come first.
func entriesOf(p plan.Plan) []*entry {
	var out []*entry
	by := map[subject]*entry{}
	at := func(s subject) *entry {
		if by[s] == nil {
			by[s] = &entry{subject: s}
			out = append(out, by[s])
		}
		return by[s]
	}
	for i := range p.Rescheduled {
		at(subject{backoffSubject, p.Rescheduled[i].After.Name}).reschedule = &p.Rescheduled[i]
	}
	for _, c := range p.Changes {
		e := at(subjectOf(c))
		b, isBinding := c.Object().(topology.Binding)
		switch {
		case isGenerated(c):
			e.count(c)
		case isBinding && c.Label.Role == topology.RoleBusiness && c.Action != plan.Blocked:
			e.bind(c, b, placeOf(p, c))
		default:
			e.changes = append(e.changes, c)
		}
	}
	for i, loop := range p.Backoffs {
		if e := by[subject{backoffSubject, loop.Name}]; e != nil {
			e.backoff = &p.Backoffs[i]
			for _, w := range p.WorkQueues {
				if w.Backoff == loop.Name {
					e.queues++
				}
			}
		}
	}
	for _, b := range slices.Concat(p.Backoffs, p.Native) {
		if e := by[subject{backoffSubject, b.Name}]; e != nil {
			e.stays = true
		}
	}
	return out
}

// count adds a generated object.
func (e *entry) count(c plan.Change) {
	i := slices.IndexFunc(e.generated, func(g *group) bool { return g.action == c.Action })
	if i < 0 {
		i = len(e.generated)
		e.generated = append(e.generated, &group{action: c.Action, counts: map[topology.Kind]int{}})
	}
	e.generated[i].counts[c.Kind]++
	e.generated[i].atMostOnce = e.generated[i].atMostOnce || c.AtMostOnce
}

// bind adds a binding from a declared exchange.
func (e *entry) bind(c plan.Change, b topology.Binding, place topology.Place) {
	like := func(g *bindingGroup) bool {
		return g.action == c.Action && g.hazards == hazards(c) && g.reason == c.Reason
	}
	i := slices.IndexFunc(e.bindings, like)
	if i < 0 {
		i = len(e.bindings)
		e.bindings = append(e.bindings, &bindingGroup{c.Action, hazards(c), c.Reason, nil, place})
	}
	e.bindings[i].list = append(e.bindings[i].list, b)
}

// deletesOnly reports whether nothing of the subject stays or comes.
func (e *entry) deletesOnly() bool {
	return e.reschedule == nil &&
		!slices.ContainsFunc(e.changes, func(c plan.Change) bool { return c.Action != plan.Delete }) &&
		!slices.ContainsFunc(e.bindings, func(g *bindingGroup) bool { return g.action != plan.Delete }) &&
		!slices.ContainsFunc(e.generated, func(g *group) bool { return g.action != plan.Delete })
}

// isGenerated reports whether the change is one of many like it that the file
// does not name, and nothing is at risk.
func isGenerated(c plan.Change) bool {
	if c.Reroute != nil || c.Outdated || c.Action == plan.Blocked {
		return false
	}
	if len(c.Hazards) > 0 || c.Action == plan.Replace {
		return false
	}
	if c.Kind == topology.KindPolicy {
		return c.Action == plan.Create && c.Reason == "" // it changes no policy of another team
	}
	return c.Label.Role != topology.RoleWork && c.Label.Role != topology.RoleBusiness
}
