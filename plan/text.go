package plan

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dlxctl/dlxctl/topology"
)

// Style decorates fragments of text. The zero Style adds nothing.
type Style struct {
	Create, Change, Delete, Blocked, Faint func(string) string
}

// TextOptions say how a plan is written for people.
type TextOptions struct {
	Style Style
	// Verbose shows generated objects one by one, with all fields.
	Verbose bool
}

// WriteText writes p for a person to read. It ends with a count, which is the
// only line when there is nothing to do.
func WriteText(w io.Writer, p Plan, o TextOptions) error {
	t := textWriter{w: bufio.NewWriter(w), o: o, p: p}
	if !p.Empty() || len(p.Drift) > 0 {
		t.line("topology %s, vhost %s%s", display(p.Topology), display(p.VHost), where(p))
		t.line("")
	}
	t.changes()
	for _, warning := range p.Warnings {
		t.line("warning %s: %s", warning.Name, warning.Text)
	}
	if len(p.Warnings) > 0 {
		t.line("")
	}
	t.line("%s", Summary(p))
	return t.w.Flush()
}

// where says which broker the plan is for.
func where(p Plan) string {
	var parts []string
	if p.Cluster != "" {
		parts = append(parts, "cluster "+display(p.Cluster))
	}
	if p.Version != "" {
		parts = append(parts, "RabbitMQ "+display(p.Version))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

// Summary counts the changes in one line.
func Summary(p Plan) string {
	if p.Empty() && len(p.Drift) > 0 {
		return "no changes, and drift in " + number(int64(len(p.Drift)), "place")
	}
	if p.Empty() {
		return "no changes: the broker is as the file says"
	}
	return fmt.Sprintf("%d to create, %d to update, %d to replace, %d to delete, %d to migrate, %d blocked",
		p.Count(Create), p.Count(Update), p.Count(Replace), p.Count(Delete), p.Count(Migrate), p.Count(Blocked))
}

// textWriter writes a plan. Errors stay in w until it is flushed.
type textWriter struct {
	w *bufio.Writer
	o TextOptions
	p Plan
}

func (t textWriter) line(format string, args ...any) { fmt.Fprintf(t.w, format+"\n", args...) }

// changes writes what people declared one by one, and what was generated for it
// as one line for each group, unless all is to be shown.
func (t textWriter) changes() {
	generated := groups{by: map[groupKey]*group{}}
	shown := false
	for _, c := range t.p.Changes {
		if !t.o.Verbose && c.Action != Blocked && isGenerated(c) {
			generated.add(c)
			continue
		}
		t.change(c)
		shown = true
	}
	for _, g := range generated.list {
		t.line("%s %s", t.symbol(g.action), g)
		shown = true
	}
	shown = t.drift(shown) || shown
	if t.ladders() || shown {
		t.line("")
	}
}

// drift writes what nobody declared, with a line between it and what is above. It
// reports whether there was any.
func (t textWriter) drift(below bool) bool {
	if len(t.p.Drift) == 0 {
		return false
	}
	if below {
		t.line("")
	}
	t.line("drift: nobody declared these, and they touch what the file owns; --prune deletes them")
	for _, c := range t.p.Drift {
		t.line("  %s %s", c.Kind, nameOf(c))
	}
	return true
}

// isGenerated reports whether the change is one of many like it that the file
// does not name, and nothing is at stake.
func isGenerated(c Change) bool {
	if len(c.Hazards) > 0 && c.Hazards[0] != AtMostOnce || c.Action == Replace {
		return false
	}
	if c.Kind == topology.KindPolicy {
		return c.Action == Create && c.Reason == "" // it changes nothing of anybody's
	}
	return c.Label.Role != topology.RoleWork && c.Label.Role != topology.RoleBusiness
}

// symbol gives the sign of an action.
func (t textWriter) symbol(a Action) string {
	var sign string
	style := t.o.Style.Change
	switch a {
	case Create:
		sign, style = "+", t.o.Style.Create
	case Update:
		sign = "~"
	case Replace:
		sign, style = "-/+", t.o.Style.Delete
	case Delete:
		sign, style = "-", t.o.Style.Delete
	case Migrate:
		sign = ">"
	case Blocked:
		sign, style = "!", t.o.Style.Blocked
	}
	if style == nil {
		return sign
	}
	return style(sign)
}

func (t textWriter) change(c Change) {
	head := fmt.Sprintf("%s %s %s", t.symbol(c.Action), c.Kind, nameOf(c))
	if typ := typeOf(c.After); typ != "" && (c.Action == Create || c.Action == Migrate) {
		head += " (" + typ + ")"
	}
	t.line("%s%s", head, hazards(c.Hazards))
	if c.Kind == topology.KindPolicy || t.o.Verbose || !slices.Contains([]Action{Create, Migrate, Delete}, c.Action) {
		t.fields(c)
	}
	if c.Stake != nil {
		t.line("    holds %d ready, %d unacknowledged (%s); %s", c.Stake.Ready, c.Stake.Unacknowledged, number(c.Stake.Bytes, "byte"), number(c.Stake.Consumers, "consumer"))
	}
	if c.Reason != "" {
		t.line("    %s", c.Reason)
	}
}

// hazards gives the names of hazards as they stand behind a change.
func hazards(list []Hazard) string {
	var b strings.Builder
	for _, h := range list {
		b.WriteString(" [" + string(h) + "]")
	}
	return b.String()
}

// typeOf gives the type of a queue or exchange.
func typeOf(object any) string {
	switch o := object.(type) {
	case topology.Queue:
		return o.Type()
	case topology.Exchange:
		return o.Type
	default:
		return ""
	}
}

func (t textWriter) fields(c Change) {
	width := 0
	for _, f := range c.Fields {
		width = max(width, len(f.Name))
	}
	for _, f := range c.Fields {
		switch {
		case c.Before == nil && f.Before == nil && f.After != nil:
			t.line("    %-*s  %s", width, f.Name, value(f.Name, f.After))
			continue
		case value(f.Name, f.Before) == value(f.Name, f.After):
			t.line("    %-*s  %s (as before)", width, f.Name, value(f.Name, f.After))
			continue
		}
		t.line("    %-*s  %s -> %s", width, f.Name, value(f.Name, f.Before), value(f.Name, f.After))
	}
}

// value gives a field's value, with durations beside milliseconds.
func value(name string, v any) string {
	if v == nil {
		return "(none)"
	}
	text := topology.FormatValue(v)
	if ms, ok := v.(int64); ok && slices.Contains([]string{topology.ArgMessageTTL, "x-expires", "message-ttl", "expires"}, name) {
		text += " (" + formatMillis(ms) + ")"
	}
	return text
}

// formatMillis gives milliseconds as a delay.
func formatMillis(ms int64) string {
	return topology.FormatDelay(time.Duration(ms) * time.Millisecond)
}

// schedule is when a message of a queue is delivered that fails each time.
type schedule struct {
	backoff string
	// limit is how often a crash may return a delivery of it, -1 where the plan does
	// not say.
	limit int64
}

// ladders writes the deliveries of each new work queue as people ask for them,
// those of one schedule together. It reports whether there were any.
func (t textWriter) ladders() bool {
	limits := map[string]int64{} // by work queue, new or changed
	for _, c := range t.p.Changes {
		if c.Label.Role != topology.RoleWork || c.Action == Delete {
			continue
		}
		switch object := c.After.(type) {
		case topology.Queue:
			limits[c.Name] = limitOf(object.Arguments, topology.ArgDeliveryLimit)
		case topology.Policy: // it brings the dead-lettering
			limits[c.Label.Queue] = limitOf(object.Definition, topology.PolicyKey(topology.ArgDeliveryLimit))
		}
	}
	var order []schedule
	queues := map[schedule][]string{}
	for _, w := range t.p.Works {
		limit, shown := limits[w.Queue]
		if !shown {
			continue
		}
		s := schedule{w.Backoff, limit}
		if queues[s] == nil {
			order = append(order, s)
		}
		queues[s] = append(queues[s], display(w.Queue))
	}
	for i, s := range order {
		if i == 0 {
			t.line("")
		}
		t.line("  %s: %s%s", some(queues[s]), ladder(t.p, s.backoff), crashes(s.limit))
	}
	return len(order) > 0
}

// limitOf gives the delivery limit among arguments, -1 if there is none.
func limitOf(args topology.Arguments, name string) int64 {
	if limit, ok := args[name].(int64); ok && limit >= 0 && limit < topology.Unlimited {
		return limit
	}
	return -1
}

// crashes says what a delivery limit adds: RabbitMQ delivers a message that is
// returned limit times more before it counts as a failure.
func crashes(limit int64) string {
	if limit < 0 {
		return ""
	}
	return fmt.Sprintf("; each up to %s, if consumers crash or requeue (deliveryLimit %d)", number(limit+1, "time"), limit)
}

// ladder says when a message is delivered that fails each time: "4 deliveries,
// at 0s, +10s, +1m, +10m; dead after 11m10s at the earliest".
func ladder(p Plan, backoff string) string {
	loop, ok := topology.Topology{Loops: p.Loops}.Loop(backoff)
	if !ok {
		return "1 delivery; dead at once"
	}
	parts := []string{"at 0s"}
	var total time.Duration
	for i := 0; i < len(loop.Steps); {
		n := 1
		for i+n < len(loop.Steps) && loop.Steps[i+n].Delay == loop.Steps[i].Delay {
			n++
		}
		part := "+" + topology.FormatDelay(loop.Steps[i].Delay)
		if n > 1 {
			part += " ×" + strconv.Itoa(n)
		}
		parts = append(parts, part)
		total += time.Duration(n) * loop.Steps[i].Delay
		i += n
	}
	return fmt.Sprintf("%d deliveries, %s; dead after %s at the earliest",
		len(loop.Steps)+1, strings.Join(parts, ", "), topology.FormatDelay(total))
}

// groups collects generated objects by what they serve.
type groups struct {
	list []*group
	by   map[groupKey]*group
}

// groupKey is what the changes of one group have in common.
type groupKey struct {
	action Action
	label  string
}

// group is what is generated for one backoff, one queue, or the topology.
type group struct {
	groupKey

	counts  map[topology.Kind]int
	hazards map[Hazard]bool
}

func (g *groups) add(c Change) {
	label := "shared by the topology"
	switch {
	case c.Label.Backoff != "":
		label = "backoff " + c.Label.Backoff
	case c.Label.Queue != "":
		label = "dead-lettering of " + display(c.Label.Queue)
	}
	key := groupKey{c.Action, label}
	found := g.by[key]
	if found == nil {
		found = &group{groupKey: key, counts: map[topology.Kind]int{}, hazards: map[Hazard]bool{}}
		g.list, g.by[key] = append(g.list, found), found
	}
	found.counts[c.Kind]++
	for _, h := range c.Hazards {
		found.hazards[h] = true
	}
}

// String gives the group as one line: "backoff standard: 2 exchanges, 4 queues".
func (g *group) String() string {
	var parts []string
	for _, k := range []topology.Kind{topology.KindExchange, topology.KindQueue, topology.KindBinding, topology.KindPolicy} {
		switch n := g.counts[k]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+string(k))
		default:
			parts = append(parts, plural(n, k))
		}
	}
	text := g.label + ": " + strings.Join(parts, ", ")
	if g.hazards[AtMostOnce] {
		text += " [" + string(AtMostOnce) + "]"
	}
	return text
}

// plural gives "2 queues" or "2 policies".
func plural(n int, kind topology.Kind) string {
	if kind == topology.KindPolicy {
		return fmt.Sprintf("%d policies", n)
	}
	return fmt.Sprintf("%d %ss", n, kind)
}

// number gives "1 consumer" or "2 consumers".
func number(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// nameOf gives the name of a change's object. That of a binding is a line about it,
// in which headers have quotes of their own.
func nameOf(c Change) string {
	if c.Kind == topology.KindBinding {
		return topology.Printable(c.Name)
	}
	return display(c.Name)
}

// display gives a name as it is, in quotes if it could be taken for something
// else or would upset a terminal.
func display(name string) string {
	odd := name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || r == '"' })
	if odd || strings.TrimSpace(name) != name {
		return strconv.Quote(name)
	}
	return name
}

// some gives the first names of a list and counts the rest.
func some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
