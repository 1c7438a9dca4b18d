package plan

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Style decorates fragments of text. The zero Style adds nothing.
type Style struct {
	Create, Change, Delete, Blocked func(string) string
}

// TextOptions say how a plan is written for people.
type TextOptions struct {
	Style Style
	// Verbose shows generated objects one by one, with all fields.
	Verbose bool
}

// WriteText writes p for a person to read. It ends with a count. If there is nothing to do, the
// count is the only line.
func WriteText(w io.Writer, p Plan, o TextOptions) error {
	t := textWriter{w: bufio.NewWriter(w), o: o, p: p}
	if !p.Empty() || len(p.Drift) > 0 {
		t.line("topology %s, vhost %s%s", text.Name(p.Topology), text.Name(p.VHost), where(p))
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
		parts = append(parts, "cluster "+text.Name(p.Cluster))
	}
	if p.Version != "" {
		parts = append(parts, "RabbitMQ "+text.Name(p.Version))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

// Summary counts the changes in one line.
func Summary(p Plan) string {
	if p.Empty() && len(p.Drift) > 0 {
		return "no changes, and drift in " + text.Count(len(p.Drift), "place")
	}
	if p.Empty() {
		return "no changes: the broker matches the file"
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
	if t.schedules() || shown {
		t.line("")
	}
}

// drift writes what no file declares, with a line between it and what is above. It
// reports whether there was any.
func (t textWriter) drift(below bool) bool {
	if len(t.p.Drift) == 0 {
		return false
	}
	if below {
		t.line("")
	}
	t.line("drift: no file declares these, and they touch the topology's objects; --prune deletes them")
	for _, c := range t.p.Drift {
		t.line("  %s %s", c.Kind, nameOf(c))
	}
	return true
}

// isGenerated reports whether the change is one of many like it that the file
// does not name, and nothing is at risk.
func isGenerated(c Change) bool {
	if c.Reroute != nil {
		return false
	}
	if len(c.Hazards) > 0 || c.Action == Replace {
		return false
	}
	if c.Kind == topology.KindPolicy {
		return c.Action == Create && c.Reason == "" // it changes no policy of another team
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
	if c.Reroute != nil && c.Reroute.Queue != "" {
		t.reroute(c)
		return
	}
	head := fmt.Sprintf("%s %s %s", t.symbol(c.Action), c.Kind, nameOf(c))
	if typ := typeOf(c.After); typ != "" && (c.Action == Create || c.Action == Migrate) {
		head += " (" + typ + ")"
	}
	t.line("%s%s", head, hazards(c))
	if c.Kind == topology.KindPolicy || t.o.Verbose || !slices.Contains([]Action{Create, Migrate, Delete}, c.Action) {
		t.fields(c)
	}
	if c.Stake != nil {
		t.line("    holds %d ready, %d unacknowledged (%s); %s", c.Stake.Ready, c.Stake.Unacknowledged,
			text.Count(c.Stake.Bytes, "byte"), c.Stake.ConsumersText())
	}
	if c.Reason != "" {
		t.line("    %s", c.Reason)
	}
}

// reroute writes a changed backoff, with the schedule before and after.
func (t textWriter) reroute(c Change) {
	head := fmt.Sprintf("%s %s %s", t.symbol(c.Action), c.Kind, text.Name(c.Name))
	for i, f := range c.Fields {
		if i == 0 {
			t.line("%s: %s %v -> %v", head, f.Name, f.Before, f.After)
			continue
		}
		t.line("    before  %v", f.Before)
		t.line("    after   %v", f.After)
	}
	if len(c.Fields) == 0 {
		t.line("%s", head)
	}
	t.line("    %s", c.Reason)
}

// hazards returns the names of a change's hazards as they are printed behind it.
func hazards(c Change) string {
	var b strings.Builder
	for _, h := range c.Hazards {
		b.WriteString(" [" + string(h) + "]")
	}
	if c.AtMostOnce {
		b.WriteString(" [" + atMostOnce + "]")
	}
	return b.String()
}

// typeOf gives the type of a queue or exchange.
func typeOf(object topology.Object) string {
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
			t.line("    %-*s  %s (unchanged)", width, f.Name, value(f.Name, f.After))
			continue
		}
		t.line("    %-*s  %s -> %s", width, f.Name, value(f.Name, f.Before), value(f.Name, f.After))
	}
}

// longPattern is how many bytes of a pattern a person is shown.
const longPattern = 200

// value gives a field's value, with durations next to milliseconds.
func value(name string, v any) string {
	if v == nil {
		return "(none)"
	}
	text := topology.FormatValue(v)
	if len(text) > longPattern && name == "pattern" {
		return fmt.Sprintf("%s and so on, %d bytes", strings.ToValidUTF8(text[:longPattern], ""),
			len(text)) // -o json has all of it
	}
	if ms, ok := v.(int64); ok && slices.Contains([]string{
		topology.ArgMessageTTL, "x-expires", "message-ttl",
		"expires",
	}, name) {
		text += " (" + formatMillis(ms) + ")"
	}
	return text
}

// formatMillis gives milliseconds as a delay.
func formatMillis(ms int64) string { return topology.FormatDelay(millis(ms)) }

// millis gives milliseconds as a duration.
func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// schedule is when a message of a queue is delivered that fails each time.
type schedule struct {
	backoff string
	// limit is how often a crash may return a delivery of it, -1 where the plan does
	// not say.
	limit int64
}

// schedules writes the deliveries of each new work queue as people ask for them,
// those of one schedule together. It reports whether there were any.
func (t textWriter) schedules() bool {
	limits := map[string]int64{} // by work queue, new or changed
	for _, c := range t.p.Changes {
		if c.Label.Role != topology.RoleWork || c.Action == Delete {
			continue
		}
		switch object := c.After.(type) {
		case topology.Queue:
			limits[c.Name] = limitOf(object.Arguments, topology.ArgDeliveryLimit)
		case topology.Policy: // it sets the dead-lettering
			limits[c.Label.Queue] = limitOf(object.Definition, topology.PolicyKey(topology.ArgDeliveryLimit))
		case topology.Exchange, topology.Binding, nil: // they have no delivery limit
		}
	}
	var order []schedule
	queues := map[schedule][]string{}
	for _, w := range t.p.WorkQueues {
		limit, shown := limits[w.Name]
		if !shown {
			continue
		}
		s := schedule{w.Backoff, limit}
		if queues[s] == nil {
			order = append(order, s)
		}
		queues[s] = append(queues[s], text.Name(w.Name))
	}
	for i, s := range order {
		if i == 0 {
			t.line("")
		}
		t.line("  %s: %s%s", some(queues[s]), t.p.deliveries(s.backoff), crashes(s.limit))
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
	return fmt.Sprintf("; each up to %s, if consumers crash or requeue (deliveryLimit %d)", text.Count(limit+1,
		"time"), limit)
}

// deliveries says when a message is delivered that fails each time: "4 deliveries,
// at 0s, +10s, +1m, +10m; dead after 11m10s at the earliest".
func (p Plan) deliveries(backoff string) string {
	loop, _ := topology.Compiled{Backoffs: p.Backoffs}.Backoff(backoff)
	return deliveries(loop)
}

// deliveries says when a message of a loop is delivered that fails each time. A loop
// without steps is no backoff at all.
func deliveries(loop topology.Backoff) string {
	if len(loop.Tiers) == 0 {
		return "1 delivery; dead at once"
	}
	parts := []string{"at 0s"}
	var total time.Duration
	for i := 0; i < len(loop.Tiers); {
		n := 1
		for i+n < len(loop.Tiers) && loop.Tiers[i+n].Delay == loop.Tiers[i].Delay {
			n++
		}
		part := "+" + topology.FormatDelay(loop.Tiers[i].Delay)
		if n > 1 {
			part += " ×" + strconv.Itoa(n)
		}
		parts = append(parts, part)
		total += time.Duration(n) * loop.Tiers[i].Delay
		i += n
	}
	return fmt.Sprintf("%d deliveries, %s; dead after %s at the earliest",
		len(loop.Tiers)+1, strings.Join(parts, ", "), topology.FormatDelay(total))
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

	counts     map[topology.Kind]int
	atMostOnce bool
}

func (g *groups) add(c Change) {
	label := "shared by the topology"
	switch {
	case c.Label.Backoff != "":
		label = "backoff " + c.Label.Backoff
	case c.Label.Queue != "":
		label = "dead-lettering of " + text.Name(c.Label.Queue)
	}
	key := groupKey{c.Action, label}
	found := g.by[key]
	if found == nil {
		found = &group{groupKey: key, counts: map[topology.Kind]int{}}
		g.list, g.by[key] = append(g.list, found), found
	}
	found.counts[c.Kind]++
	found.atMostOnce = found.atMostOnce || c.AtMostOnce
}

// String gives the group as one line: "backoff standard: 2 exchanges, 4 queues".
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
	line := g.label + ": " + strings.Join(parts, ", ")
	if g.atMostOnce {
		line += " [" + atMostOnce + "]"
	}
	return line
}

// nameOf gives the name of a change's object. That of a binding is a line about it,
// in which headers have quotes of their own.
func nameOf(c Change) string {
	if c.Kind == topology.KindBinding {
		return topology.Printable(c.Name)
	}
	return text.Name(c.Name)
}

// some gives the first names of a list and counts the rest.
func some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
