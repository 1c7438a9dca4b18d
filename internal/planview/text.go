// Package planview shows plans: to people as text and as a comment for a pull request, to
// scripts as JSON, and to a later apply as a saved plan. It decides nothing, and shows only
// what a [plan.Plan] holds: equal plans have equal outputs.
package planview

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// TextOptions say how a plan is written for people.
type TextOptions struct {
	Style text.Style
	// Verbose shows generated objects one by one, with all fields, in the order in which the
	// changes are carried out.
	Verbose bool
	// Width is that of the terminal in columns: longer lines are wrapped at spaces. Zero: no
	// line is wrapped.
	Width int
	// Process is the command that starts a processor for the topology. Empty: dlxctl process.
	Process string
}

// WriteText writes p for a person to read: grouped by owner and work queue, with the count and
// what is blocked or needs consent at the end, and below it which failed queues no processor
// consumes. If there is nothing to do or to know, the count is the only line.
func WriteText(w io.Writer, p plan.Plan, o TextOptions) error {
	t := &textWriter{w: bufio.NewWriter(w), o: o, p: p}
	if !p.Empty() || len(p.Drift) > 0 {
		t.line("topology %s, vhost %s%s", text.Name(p.Topology), text.Name(p.VHost), where(p))
		t.line("")
	}
	t.changes()
	t.drift()
	t.schedules()
	for _, line := range keeps(p) {
		t.line("%s", line)
	}
	t.gap(len(p.Keeps))
	t.immutable()
	t.replacements()
	t.atMostOnce()
	warnings := grouped(p.Warnings)
	for _, w := range warnings {
		t.line("%s", warning(o.Style, w.Name, w.Text))
	}
	t.gap(len(warnings))
	t.line("%s", text.Paint(o.Style.Strong, Summary(p)))
	for _, line := range attention(p) {
		t.line("%s", text.Paint(o.Style.Danger, line))
	}
	if line := ProcessorLine(o.Style, p.Unprocessed, o.Process); line != "" {
		t.line("%s", line)
	}
	return t.w.Flush()
}

// warning returns a warning as people read it.
func warning(style text.Style, name, line string) string {
	return text.Paint(style.Caution, "warning "+name+":") + " " + line
}

// ProcessorLine returns the warning that tells a person which failed queues no processor consumes,
// and the command that starts one, by default dlxctl process. It is empty if there are none.
func ProcessorLine(style text.Style, list []plan.Unprocessed, command string) string {
	if len(list) == 0 {
		return ""
	}
	return warning(style, topology.WarnNoProcessor, noProcessor(list)+cmp.Or(command, "dlxctl process"))
}

// withProcessor returns the warnings of a plan with one sentence, that of [ProcessorLine], for all
// failed queues that no processor consumes.
func withProcessor(p plan.Plan, command string) []plan.Warning {
	if len(p.Unprocessed) == 0 {
		return p.Warnings
	}
	out := slices.DeleteFunc(slices.Clone(p.Warnings), func(w plan.Warning) bool {
		return w.Name == topology.WarnNoProcessor
	})
	return append(out, plan.Warning{
		Name: topology.WarnNoProcessor, Text: noProcessor(p.Unprocessed) + cmp.Or(command, "dlxctl process"),
	})
}

// noProcessor says which failed queues no processor consumes. The command that starts one is to
// follow.
func noProcessor(list []plan.Unprocessed) string {
	var names []string
	for _, u := range list {
		var known []string
		if u.Messages > 0 {
			known = append(known, "holds "+text.Count(u.Messages, "message"))
		}
		if !u.Asked {
			known = append(known, plan.ByStatistics)
		}
		name := text.Name(u.Queue)
		if len(known) > 0 {
			name += " (" + strings.Join(known, "; ") + ")"
		}
		names = append(names, name)
	}
	return fmt.Sprintf("no processor is consuming %s; keep one running: ", text.Some(names))
}

// where says which broker the plan is for.
func where(p plan.Plan) string {
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

// grouped returns warnings with those of one name next to each other. It leaves out no-processor,
// which is one line for all backoffs.
func grouped(warnings []plan.Warning) []plan.Warning {
	first := map[string]int{}
	for i, w := range warnings {
		if _, seen := first[w.Name]; !seen {
			first[w.Name] = i
		}
	}
	out := slices.DeleteFunc(slices.Clone(warnings), func(w plan.Warning) bool {
		return w.Name == topology.WarnNoProcessor
	})
	slices.SortStableFunc(out, func(a, b plan.Warning) int { return first[a.Name] - first[b.Name] })
	return out
}

// textWriter writes a plan. Errors stay in w until it is flushed.
type textWriter struct {
	w *bufio.Writer
	o TextOptions
	p plan.Plan
}

func (t *textWriter) line(format string, args ...any) {
	for _, line := range text.Wrap(fmt.Sprintf(format, args...), t.o.Width) {
		fmt.Fprintln(t.w, line)
	}
}

// gap writes an empty line below n lines, if there are any.
func (t *textWriter) gap(n int) {
	if n > 0 {
		t.line("")
	}
}

// changes writes the changes: one by one, or grouped.
func (t *textWriter) changes() {
	if !t.o.Verbose {
		t.sections()
		return
	}
	for _, r := range t.p.Rescheduled {
		t.line("%s backoff %s: %s", t.symbol(plan.Update), text.Name(r.After.Name), rescheduled(r))
	}
	for _, c := range t.p.Changes {
		t.change(c)
	}
	t.gap(len(t.p.Changes))
}

// drift writes what no file declares.
func (t *textWriter) drift() {
	if len(t.p.Drift) == 0 {
		return
	}
	t.line("drift: no file declares these, and they touch the topology's objects; --prune deletes them")
	for _, c := range t.p.Drift {
		t.line("  %s %s", c.Kind, nameOf(c))
	}
	t.line("")
}

// immutable is what holds for all changes that the broker cannot make.
const immutable = "RabbitMQ cannot change the arguments of an existing queue or exchange: it would answer 406 PRECONDITION_FAILED. If no suggested fix suits, use another name in the file, replace a queue with a new one (replaces: and dlxctl migrate), or delete the object manually when nothing needs it, and run apply again"

// immutable writes once what holds for all changes that are blocked because the broker cannot
// make them.
func (t *textWriter) immutable() {
	if !hasImmutable(t.p) {
		return
	}
	t.line("blocked: %s", immutable)
	t.line("")
}

// replacesQueue says once what holds for all queues that are replaced under their names.
const replacesQueue = "RabbitMQ cannot change such a queue: it would answer 406 PRECONDITION_FAILED. With consent, 'dlxctl apply' replaces it: " + plan.ReplacementPause + ". What is routed to it waits in a hold meanwhile, some 10 seconds, and none of that is lost. Else keep the queue as it is (see the suggested fixes), or replace it with a new queue (replaces: and dlxctl migrate): that is better if publishers use its name, or if consumers cannot subscribe again by themselves"

// replacements explains the queues that are replaced under their names, if there are any.
func (t *textWriter) replacements() {
	if hasReplacement(t.p) {
		t.line("[%s]: %s", topology.ReplacesQueue, replacesQueue)
		t.line("")
	}
}

// hasReplacement reports whether a queue is to be replaced under its name.
func hasReplacement(p plan.Plan) bool {
	return slices.ContainsFunc(p.Changes, plan.Change.ReplacesQueue)
}

// atMostOnce explains the mark of hops, if there is one.
func (t *textWriter) atMostOnce() {
	if slices.ContainsFunc(t.p.Changes, func(c plan.Change) bool { return c.AtMostOnce }) {
		t.line("[%s]: a message may be lost there while a node fails or the next queue is not available", topology.AtMostOnce)
		t.line("")
	}
}

// hasImmutable reports whether a change is blocked because the broker cannot make it.
func hasImmutable(p plan.Plan) bool {
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.Action == plan.Blocked && c.Immutable })
}

func (t *textWriter) symbol(a plan.Action) string {
	var sign string
	style := t.o.Style.Change
	switch a {
	case plan.Create:
		sign, style = "+", t.o.Style.Create
	case plan.Update:
		sign = "~"
	case plan.Replace:
		sign, style = "-/+", t.o.Style.Delete
	case plan.Delete:
		sign, style = "-", t.o.Style.Delete
	case plan.Migrate:
		sign = ">"
	case plan.Blocked:
		sign, style = "!", t.o.Style.Blocked
	}
	return text.Paint(style, sign)
}

// change writes one change and what belongs to it.
func (t *textWriter) change(c plan.Change) {
	t.line("%s", t.head(c))
	t.details(c, "    ")
}

// head returns the first line of a change: its sign, the object, and the hazards.
func (t *textWriter) head(c plan.Change) string {
	head := fmt.Sprintf("%s %s %s", t.symbol(c.Action), c.Kind, nameOf(c))
	if typ := typeOf(c.After); typ != "" && (c.Action == plan.Create || c.Action == plan.Migrate) {
		head += " (" + typ + ")"
	}
	if c.ReplacesQueue() {
		head = fmt.Sprintf("%s %s %s: %s: replaced under its name", text.Paint(t.o.Style.Blocked, "-/+"), c.Kind,
			nameOf(c), differences(c))
	}
	if c.Unfinished {
		head = fmt.Sprintf("%s %s %s: being replaced under its name", text.Paint(t.o.Style.Blocked, "-/+"), c.Kind, nameOf(c))
	}
	if c.Reroute != nil {
		head = fmt.Sprintf("%s %s %s", t.symbol(c.Action), c.Kind, text.Name(c.Name))
		if len(c.Fields) > 0 {
			head += fmt.Sprintf(": %s %v -> %v", c.Fields[0].Name, c.Fields[0].Before, c.Fields[0].After)
		}
	}
	return head + text.Paint(t.o.Style.Danger, hazards(c))
}

// differences says in one line what becomes of a queue that is replaced, its type first: "classic
// -> quorum, x-max-length 1000 -> (none)".
func differences(c plan.Change) string {
	var out []string
	for _, f := range c.Fields {
		change := plain(f.Name, f.Before) + " -> " + plain(f.Name, f.After)
		if f.Name == topology.ArgQueueType {
			out = append([]string{change}, out...)
		} else {
			out = append(out, f.Name+" "+change)
		}
	}
	return strings.Join(out, ", ")
}

// details writes what is below the first line of a change: its fields, what is at risk, and why.
func (t *textWriter) details(c plan.Change, indent string) {
	if c.Reroute != nil {
		for _, f := range c.Fields[min(1, len(c.Fields)):] {
			t.line("%sbefore  %v", indent, f.Before)
			t.line("%safter   %v", indent, f.After)
		}
		t.line("%s%s", indent, c.Reason)
		return
	}
	whole := c.Action == plan.Create || c.Action == plan.Migrate || c.Action == plan.Delete
	if c.Kind == topology.KindPolicy || t.o.Verbose || !whole {
		t.fields(c, indent)
	}
	if c.Stake != nil {
		t.line("%sholds %d ready, %s (%s); %s", indent, c.Stake.Ready, c.Stake.NotReady(),
			text.Count(c.Stake.Bytes, "byte"), c.Stake.ConsumersText())
	}
	for _, line := range shown(c) {
		t.line("%s%s", indent, line)
	}
	if reason := reason(c); reason != "" {
		t.line("%s%s", indent, reason)
	}
}

// shown returns what the broker shows of a queue that is replaced under its name.
func shown(c plan.Change) []string {
	if c.Replacement == nil {
		return nil
	}
	return text.Each(c.Replacement.Lines(), topology.Printable)
}

// reason returns why a change is made or blocked. What all blocked changes have in common is said
// once, by immutable and by replacements.
func reason(c plan.Change) string {
	if c.Action == plan.Blocked && c.Immutable || c.ReplacesQueue() {
		return c.Brief
	}
	return c.Reason
}

// hazards returns the names of a change's hazards as they are printed behind it.
func hazards(c plan.Change) string {
	var b strings.Builder
	for _, h := range c.Hazards {
		b.WriteString(" [" + string(h) + "]")
	}
	if c.AtMostOnce {
		b.WriteString(" [" + topology.AtMostOnce + "]")
	}
	return b.String()
}

// typeOf returns the type of a queue or exchange.
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

func (t *textWriter) fields(c plan.Change, indent string) {
	width := 0
	for _, f := range c.Fields {
		width = max(width, len(f.Name))
	}
	for _, f := range c.Fields {
		line := fmt.Sprintf("%s%-*s  ", indent, width, f.Name)
		before, after := value(f.Name, f.Before), value(f.Name, f.After)
		switch {
		case c.Before == nil && f.Before == nil && f.After != nil:
			line += after
		case before == after:
			line += after + " (unchanged)"
		default:
			line += before + " -> " + after
		}
		if fix := c.Fixes[f.Name]; fix != "" {
			line += "; " + fix
		}
		t.line("%s", line)
	}
}

// longPattern is how many bytes of a pattern a person is shown.
const longPattern = 200

// value returns a field's value, with durations next to milliseconds.
func value(name string, v any) string {
	if v == nil {
		return "(none)"
	}
	out := topology.FormatValue(v)
	if len(out) > longPattern && name == "pattern" {
		return fmt.Sprintf("%s and so on, %d bytes", strings.ToValidUTF8(out[:longPattern], ""),
			len(out)) // -o json has all of it
	}
	if ms, ok := v.(int64); ok && slices.Contains([]string{
		topology.ArgMessageTTL, topology.ArgExpires, topology.KeyMessageTTL, topology.KeyExpires,
	}, name) {
		out += " (" + text.Millis(ms) + ")"
	}
	return out
}

// nameOf returns the name of a change's object. That of a binding is a line about it,
// in which headers have quotes of their own.
func nameOf(c plan.Change) string {
	if c.Kind == topology.KindBinding {
		return topology.Printable(c.Name)
	}
	return text.Name(c.Name)
}
