package trace

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteText writes a report for people. all has every header at every stop.
func WriteText(w io.Writer, r Report, all bool) error {
	b := writer{report: r, all: all}
	b.line("%s", r.headline())
	if len(r.Journeys) > 0 {
		b.line("%s", r.Input.fate())
	}
	for _, e := range r.Ends {
		b.line("%s", e)
	}
	for _, j := range r.Journeys {
		b.line("")
		b.journey(j)
	}
	b.line("")
	b.missed()
	b.line("%s", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

// writer collects the text.
type writer struct {
	strings.Builder
	report Report
	all    bool
}

func (b *writer) line(format string, args ...any) {
	b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	b.WriteString("\n")
}

// entry writes a line of a journey: a label, and what it labels.
func (b *writer) entry(label, format string, args ...any) {
	b.line("  %-9s  %s", label, fmt.Sprintf(format, args...))
}

// headline says which message it is, and what consumers do.
func (r Report) headline() string {
	in := r.Input
	out := "default exchange"
	if in.Exchange != "" {
		out = text.Name(in.Exchange)
		if r.ExchangeType != "" {
			out += " (" + r.ExchangeType + ")"
		}
	}
	if in.Key != "" || len(in.Headers) == 0 {
		out += ", key " + text.Name(in.Key)
	}
	if len(in.Headers) > 0 {
		out += ", headers " + formatHeaders(in.Headers)
	}
	if in.Expiration != nil {
		out += ", expiration " + text.Duration(*in.Expiration)
	}
	switch n := len(r.Journeys); n {
	case 0:
		return out + ": no queue gets the message"
	default:
		return fmt.Sprintf("%s: %s %s the message", out, text.Count(n, "queue"), text.Choose(n, "gets", "get"))
	}
}

// fate says what consumers do.
func (in Input) fate() string {
	var parts []string
	one := func(times int) string {
		switch {
		case times == 0:
			return "acknowledge it"
		case in.Cause == Expired && times == Always:
			return "never take it before it expires"
		case in.Cause == Expired:
			return fmt.Sprintf("let it expire %s", often(times))
		case times == Always && in.Cause == Crash:
			return "crash over it always"
		case times == Always:
			return "reject it always"
		case in.Cause == Crash:
			return fmt.Sprintf("crash over it %s up to the delivery limit", often(times))
		default:
			return fmt.Sprintf("reject it %s", often(times))
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(in.QueueFailures)) {
		parts = append(parts, fmt.Sprintf("those of %s %s", text.Name(queue), one(in.QueueFailures[queue])))
	}
	return strings.Join(append([]string{"consumers " + one(in.Failures)}, parts...), ", ")
}

// often returns a number of times.
func often(n int) string {
	return text.Choose(n, "once", fmt.Sprintf("%d times", n))
}

// journey writes the way of one copy.
func (b *writer) journey(j Journey) {
	b.line("%s", text.Name(j.Queue))
	for i, step := range j.Path {
		b.entry([]string{"through", ""}[min(i, 1)], "%s", b.step(step))
	}
	children := make([][]int, len(j.Stops))
	for i, s := range j.Stops {
		if s.From >= 0 {
			children[s.From] = append(children[s.From], i)
		}
	}
	b.stops(j, children, 0)
}

// step describes a hop, with the place where a file declares it.
func (b *writer) step(s route.Step) string {
	var out string
	switch s.Via {
	case route.ViaAlternate:
		out = fmt.Sprintf("%s -> %s (alternate exchange)", text.Name(s.Source), text.Name(s.Destination))
		if s.Policy != "" {
			out = fmt.Sprintf("%s -> %s (alternate exchange, by policy %s)", text.Name(s.Source),
				text.Name(s.Destination), text.Name(s.Policy))
		}
	case route.ViaDefault:
		return "its name, by the default exchange"
	case route.ViaBinding:
		out = topology.Printable(s.String())
		if at := b.report.place(s.Binding); at != "" {
			out += "  " + at
		}
	}
	return out
}

// place tells where a file declares a binding.
func (r Report) place(b topology.Binding) string {
	if r.Input.Place == nil {
		return ""
	}
	return r.Input.Place(b.ID())
}

// stops writes a stop and what follows. Where the message goes on as one copy, it is one list.
func (b *writer) stops(j Journey, children [][]int, index int) {
	for {
		index = b.stop(j, children, index)
		switch len(children[index]) {
		case 0:
			return
		case 1:
			index = children[index][0]
			continue
		}
		for _, next := range children[index] {
			b.entry("copy", "to %s", text.Name(j.Stops[next].Queue))
			b.stops(j, children, next)
		}
		return
	}
}

// stop writes what happens to the message in a queue. Queues in which it only passes are one line,
// unless all headers are shown. It returns the last stop that it wrote.
func (b *writer) stop(j Journey, children [][]int, index int) int {
	s := j.Stops[index]
	if s.passes() {
		said := []string{b.describe(s)}
		for !b.all && len(s.Ends) == 0 && len(children[index]) == 1 && j.Stops[children[index][0]].passes() {
			index = children[index][0]
			s = j.Stops[index]
			said = append(said, b.describe(s))
		}
		b.entry("", "-> %s", strings.Join(said, " -> "))
	} else {
		b.entry(offset(s.At), "%s", b.describe(s))
	}
	if b.all {
		for _, h := range headerLines(s) {
			b.entry("", "    %s", h)
		}
	}
	for _, e := range s.Ends {
		if e.Kind == Lost {
			b.entry("LOST", "%s", e.Why)
		} else if said := e.String(); said != "" {
			b.entry("", "%s", said)
		}
	}
	return index
}

// passes reports whether the message leaves the queue by itself or by the processor.
func (s Stop) passes() bool { return s.Event == Waited || s.Event == Counted }

// describe says in one line what happens in a queue.
func (b *writer) describe(s Stop) string {
	name := text.Name(s.Queue)
	carried := ""
	if headers := b.carried(s); headers != "" {
		carried = " with " + headers
	}
	switch s.Event {
	case Acknowledged:
		return fmt.Sprintf("%s: delivery %d%s, acknowledged", name, s.Delivery, carried)
	case Failed:
		return fmt.Sprintf("%s: delivery %d%s, %s", name, s.Delivery, carried, b.failure(s))
	case Waited:
		return fmt.Sprintf("%s: waits %s%s", name, text.Duration(s.Wait), atMostOnce(s))
	case Counted:
		if s.InOutage != "" {
			return fmt.Sprintf("%s: the processor sets %s (in an outage: -> %s)", name, s.Count, text.Name(s.InOutage))
		}
		return fmt.Sprintf("%s: the processor sets %s", name, s.Count)
	case Kept:
		kept := "stays"
		if len(s.Ends) > 0 && s.Ends[0].Kind == DeadLetter {
			kept = "stays as a dead letter"
		}
		return fmt.Sprintf("%s: %s%s", name, kept, carried)
	default:
		return name
	}
}

// failure says how consumers fail.
func (b *writer) failure(s Stop) string {
	var out string
	switch {
	case b.report.Input.Cause == Expired:
		out = fmt.Sprintf("not taken, expires after %s", text.Duration(s.Wait))
	case s.Reason == "" && s.Wait > 0:
		return b.verb() + ", RabbitMQ delivers it again after " + text.Duration(s.Wait)
	case s.Reason == route.DeliveryLimit && b.report.Input.Cause == Rejected:
		out = "requeued once more than its backoff allows"
	case b.report.Input.Cause == Crash && s.Reason == "":
		return "crashes its consumer"
	case b.report.Input.Cause == Crash:
		out = fmt.Sprintf("crashes its consumer %s", text.Count(s.Returned+1, "time"))
	default:
		out = "rejected"
	}
	return out + atMostOnce(s)
}

// verb says what consumers do where RabbitMQ does the retries.
func (b *writer) verb() string {
	if b.report.Input.Cause == Crash {
		return "crashes its consumer"
	}
	return "requeued"
}

// atMostOnce marks a hop on which the broker may lose a message.
func atMostOnce(s Stop) string {
	if s.AtMostOnce {
		return " (at-most-once)"
	}
	return ""
}

// carried returns the headers of the processor that matter most.
func (b *writer) carried(s Stop) string {
	if b.all {
		return ""
	}
	var out []string
	for _, name := range b.report.essential() {
		switch v := s.Headers[name].(type) {
		case nil:
		case string:
			out = append(out, name+"="+topology.Printable(v))
		default:
			out = append(out, name+"="+formatValue(v))
		}
	}
	return strings.Join(out, ", ")
}

// essential names the headers that are shown everywhere.
func (r Report) essential() []string {
	var out []string
	for _, f := range r.Input.Files {
		if !slices.Contains(out, f.CountHeader) {
			out = append(out, f.CountHeader)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return append(out, topology.HeaderAttempts, topology.HeaderReason, topology.HeaderError)
}

// String says how a copy ends, empty where the stop says all.
func (e End) String() string {
	switch e.Kind {
	case Lost:
		return "LOST: " + e.Why
	case Done, DeadLetter:
		return ""
	case Unroutable:
		return "in the unroutable queue, for a person to look at"
	case Stays:
		if e.Why == "" {
			return "nothing is known to consume this queue"
		}
		return e.Why
	case Endless:
		return "without end: " + e.Why
	case Stuck:
		return "stuck, invisible to consumers: " + e.Why
	case Unknown:
		return "unknown: " + e.Why
	default:
		return e.Why
	}
}

// missed writes the queues that do not get the message.
func (b *writer) missed() {
	if len(b.report.Missed) == 0 {
		return
	}
	shown := 20
	if b.all {
		shown = len(b.report.Missed)
	}
	var out []string
	for _, m := range b.report.Missed {
		name := text.Name(m.Queue)
		keys := text.Each(m.Bindings, bindingDetail)
		if len(keys) > 0 {
			name += " (" + strings.Join(keys, ", ") + ")"
		}
		out = append(out, name)
	}
	line := text.FirstOf(out, shown)
	if len(out) > shown+1 {
		line += " (-v lists them)"
	}
	b.line("not reached: %s", line)
}

// bindingDetail returns the key or the headers of a binding.
func bindingDetail(binding string) string {
	_, detail, _ := strings.Cut(binding, " (")
	return strings.TrimSuffix(detail, ")")
}

// verdict says whether the message is lost anywhere.
func (r Report) verdict() string {
	var lost []string
	for _, j := range r.Journeys {
		if j.Lost() {
			lost = append(lost, text.Name(j.Queue))
		}
	}
	switch {
	case len(lost) > 0:
		return "lost: the copy in " + strings.Join(lost, ", ")
	case r.Lost():
		return "lost"
	default:
		return "not lost"
	}
}

// offset returns a time since the publish.
func offset(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	return "+" + text.Duration(d)
}
