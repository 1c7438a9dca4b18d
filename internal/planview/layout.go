package planview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// layout writes the entries of one section. Their places in the files stand below each other.
type layout struct {
	*textWriter

	indent string
	// gone says that the heading tells why objects are deleted.
	gone bool
	rows []row
	// made are the generated objects of queues that are created or deleted in this section.
	made []madeGroup
	// queues are those that have rows below the heading.
	queues map[string]bool
}

// madeGroup is the generated objects of some queues.
type madeGroup struct {
	group

	queues []string
}

// row is a line that is not written yet.
type row struct {
	text  string
	place topology.Place
	below func() // writes the lines below; nil: there are none
}

// furthest is the column at the right of which places stand at most. Places of longer lines
// follow the text.
const furthest = 84

// flush writes the rows.
func (l *layout) flush() {
	for _, m := range l.made {
		whose := text.Some(text.Names(m.queues))
		if len(m.queues) > 1 && len(m.queues) == len(l.queues) {
			whose = "these " + text.Count(len(m.queues), "queue")
		}
		l.row(topology.Place{}, nil, "%s dead-lettering of %s: %s", l.symbol(m.action), whose, &m.group)
	}
	column := 0
	for _, r := range l.rows {
		if n := text.Columns(r.text); n <= furthest && !r.place.IsZero() {
			column = max(column, n)
		}
	}
	for _, r := range l.rows {
		line := r.text
		if !r.place.IsZero() {
			line += strings.Repeat(" ", max(0, column-text.Columns(r.text))+2) + text.Paint(l.o.Style.Faint, r.place.String())
		}
		l.line("%s", line)
		if r.below != nil {
			r.below()
		}
	}
	l.rows = nil
}

func (l *layout) row(place topology.Place, below func(), format string, args ...any) {
	l.rows = append(l.rows, row{l.indent + fmt.Sprintf(format, args...), place, below})
}

// entry adds the rows of one subject.
func (l *layout) entry(e *entry) {
	if e.kind == queueSubject {
		l.queues[e.name] = true
	}
	if e.reschedule != nil {
		l.reschedule(e)
	}
	bindings, generated := slices.Clone(e.bindings), slices.Clone(e.generated)
	for _, c := range e.changes {
		if c.Reroute != nil && e.reschedule != nil {
			continue // the row of the backoff says it
		}
		line := l.head(c)
		if e.isItself(c) {
			line += l.folded(c, &bindings, &generated)
		}
		c.Reason = l.shown(c.Reason)
		l.row(placeOf(l.p, c), func() { l.details(c, l.indent+"    ") }, "%s", line)
	}
	for _, g := range bindings {
		below := func() { l.line("%s    %s", l.indent, l.shown(g.reason)) }
		if l.shown(g.reason) == "" {
			below = nil
		}
		l.row(g.place, below, "%s %s of %s%s%s", l.symbol(g.action), text.Plural(len(g.list), "binding"),
			e.title(), sourcesOf(g.list), text.Paint(l.o.Style.Danger, g.hazards))
	}
	for _, g := range generated {
		l.row(placeOfSubject(l.p, e.subject), nil, "%s %s", l.symbol(g.action), l.generated(e, g))
	}
}

// shown leaves out the reason that the heading gives.
func (l *layout) shown(reason string) string {
	if !l.gone {
		return reason
	}
	return strings.TrimPrefix(strings.TrimPrefix(reason, gone), "; ")
}

// isItself reports whether c is the change of the subject, not of one of its parts.
func (e *entry) isItself(c plan.Change) bool {
	return c.Name == e.name && c.Reroute == nil && (c.Kind == topology.KindQueue && e.kind == queueSubject ||
		c.Kind == topology.KindExchange && e.kind == exchangeSubject)
}

// folded returns what the line of a queue or exchange says of the bindings and generated objects
// that are made or deleted together with it, and takes them out of the lists. The generated
// objects are counted for the whole section.
func (l *layout) folded(c plan.Change, bindings *[]*bindingGroup, generated *[]*group) string {
	var out string
	action := c.Action
	if action == plan.Migrate {
		action = plan.Create // its parts are created
	}
	if action != plan.Create && action != plan.Delete {
		return ""
	}
	*bindings = slices.DeleteFunc(*bindings, func(g *bindingGroup) bool {
		if g.action != action || g.reason != c.Reason || !strings.Contains(hazards(c), g.hazards) {
			return false
		}
		out += sourcesOf(g.list)
		return true
	})
	*generated = slices.DeleteFunc(*generated, func(g *group) bool {
		if g.action != action {
			return false
		}
		l.collect(c.Name, g)
		return true
	})
	return out
}

// collect adds generated objects to those of the other queues of the section.
func (l *layout) collect(queue string, g *group) {
	i := slices.IndexFunc(l.made, func(m madeGroup) bool { return m.action == g.action })
	if i < 0 {
		i = len(l.made)
		l.made = append(l.made, madeGroup{group: group{action: g.action, counts: map[topology.Kind]int{}}})
	}
	m := &l.made[i]
	m.queues = append(m.queues, queue)
	m.atMostOnce = m.atMostOnce || g.atMostOnce
	for kind, n := range g.counts {
		m.counts[kind] += n
	}
}

// title names a subject within a line.
func (e *entry) title() string {
	if e.kind == exchangeSubject {
		return "exchange " + text.Name(e.name)
	}
	return text.Name(e.name)
}

// generated returns the line about generated objects of an entry.
func (l *layout) generated(e *entry, g *group) string {
	switch e.kind {
	case queueSubject:
		if e.name == "" { // all that a match covers have the same address
			return fmt.Sprintf("dead-lettering of queues that match: %s", g)
		}
		return fmt.Sprintf("dead-lettering of %s: %s", text.Name(e.name), g)
	case backoffSubject:
		if g.action == plan.Delete && e.stays {
			return fmt.Sprintf("retired objects of backoff %s: %s", text.Name(e.name), g)
		}
		if g.action != plan.Create || e.backoff == nil || e.reschedule != nil || g.counts[topology.KindExchange] == 0 {
			return fmt.Sprintf("backoff %s: %s", text.Name(e.name), g)
		}
		return fmt.Sprintf("backoff %s: %s; %s; dead %s (%s)", text.Name(e.name), e.backoff.DelaysText(),
			text.Count(e.queues, "queue"), e.backoff.DeadText(), g)
	case delaySubject:
		return fmt.Sprintf("delay %s: %s", text.Name(e.name), g)
	case sharedSubject, exchangeSubject:
	}
	return "shared by the topology: " + g.String()
}

// reschedule adds the rows of a backoff whose tiers change, and takes the generated objects that
// this makes and deletes out of the entry.
func (l *layout) reschedule(e *entry) {
	var made []string
	for _, g := range e.generated {
		made = append(made, fmt.Sprintf("%s %s", g.action, g))
	}
	for _, c := range e.changes {
		if c.Reroute != nil {
			made = append(made, fmt.Sprintf("reroute %s", text.Count(len(c.Reroute.To), "attempt")))
		}
	}
	e.generated = nil
	l.row(e.reschedule.After.Place, func() {
		l.line("%s    queues: %s", l.indent, text.Some(text.Names(e.reschedule.Queues)))
		if len(made) > 0 {
			l.line("%s    %s", l.indent, strings.Join(made, "; "))
		}
	}, "%s backoff %s: %s", l.symbol(plan.Update), text.Name(e.name), rescheduled(*e.reschedule))
}

// sourcesOf returns where bindings come from: " <- orders: order.placed, order.paid; audit".
func sourcesOf(bindings []topology.Binding) string {
	var order []string
	details := map[string][]string{}
	for _, b := range bindings {
		if _, seen := details[b.Source]; !seen {
			order = append(order, b.Source)
			details[b.Source] = nil
		}
		if detail := detailOf(b); detail != "" {
			details[b.Source] = append(details[b.Source], detail)
		}
	}
	var parts []string
	for _, source := range order {
		part := text.Name(source)
		if len(details[source]) > 0 {
			part += ": " + strings.Join(details[source], ", ")
		}
		parts = append(parts, part)
	}
	return " <- " + strings.Join(parts, "; ")
}

// detailOf returns the key of a binding, or the headers that it matches.
func detailOf(b topology.Binding) string {
	headers := b.Arguments.WithoutX()
	if len(headers) == 0 {
		if b.Key != "" && (text.Name(b.Key) != b.Key || strings.ContainsAny(b.Key, ",; ")) {
			return strconv.Quote(b.Key)
		}
		return b.Key
	}
	var parts []string
	for _, name := range headers.Names() {
		parts = append(parts, topology.Printable(name)+"="+topology.FormatValue(headers[name]))
	}
	if match, _ := b.Arguments[topology.ArgMatch].(string); strings.HasPrefix(match, "any") {
		return strings.Join(parts, " or ")
	}
	return strings.Join(parts, " and ")
}
