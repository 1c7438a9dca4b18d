package deadletter

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// The names of families that no publisher writes.
const (
	familyDlxctl   = "dlxctl"
	familyRabbitMQ = "RabbitMQ"

	familyOfDlxctl = 3 // its index in View.Families
)

// Family is headers that one author wrote.
type Family struct {
	// Name is publisher, dlxctl, RabbitMQ, AMQP 1.0 client, or the name of a framework.
	Name string
	// Headers are the names of the headers, sorted.
	Headers []string
}

// Families returns the headers of a view by their author, without families that are empty.
func (v View) Families() []Family {
	families := []Family{
		{Name: "publisher"}, {Name: v.Framework}, {Name: amqp10}, {Name: familyDlxctl}, {Name: familyRabbitMQ},
	}
	for _, name := range slices.Sorted(maps.Keys(v.Headers)) {
		f := &families[v.family(name)]
		f.Headers = append(f.Headers, name)
	}
	return slices.DeleteFunc(families, func(f Family) bool { return len(f.Headers) == 0 })
}

// family returns the index of the family of a header in [View.Families].
//
// From familyOfDlxctl on, no consumer needs the header: a message that is sent again is without it.
func (v View) family(header string) int {
	switch {
	case v.Framework != "" && isOf(v.Framework, header):
		return 1
	case v.FromProcessor && (header == v.countHeader || header == topology.CC), begins(header, retryPrefix, deskPrefix),
		!v.DueAt.IsZero() && slices.Contains(topology.DelayHeaders(), header):
		return familyOfDlxctl
	case begins(header, "x-opt-"):
		return 2 // an annotation: RabbitMQ shows its own to a client of AMQP 0-9-1 under other names
	case header == topology.HeaderDeath, topology.IsDeliveryCount(header), header == "x-stream-offset",
		begins(header, topology.HeaderFirstDeath, topology.HeaderLastDeath, "x-shovelled"):
		return 4
	default:
		return 0
	}
}

func begins(header string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(header, p) })
}

// widestNames is how many columns names of rows have at most, however wide the terminal is.
const widestNames = 40

// WriteShow writes a message for a person to read: why it died, its way, its properties, its
// headers by family, and its body. Whatever the message holds, the text has no characters that
// control a terminal. Long values are wrapped at width columns; 0 wraps none, as a program may
// read the text. The body is not wrapped.
func WriteShow(w io.Writer, v View, width int) error {
	if width <= 0 {
		width = math.MaxInt
	}
	var p page
	p.width = width
	fmt.Fprintf(&p, "%s in %s\n", v.Name(), safe(v.Queue))
	if !v.DueAt.IsZero() {
		p.section("delay", [][2]string{{"due", Moment(v.DueAt)}, {"published to", address(v.Exchange, []string{v.Key})}})
	}
	p.section("failure", v.failure())
	p.timeline(v.Hops)
	p.section("properties", v.properties())
	for _, f := range v.Families() {
		rows := make([][2]string, len(f.Headers))
		for i, name := range f.Headers {
			rows[i] = [2]string{name, literal(v.Headers[name])}
		}
		p.section("headers of "+safe(f.Name), rows)
	}
	p.section("envelope", v.envelope())
	p.body(v)
	_, err := w.Write(p.Bytes())
	return err
}

// failure returns why the message died.
func (v View) failure() [][2]string {
	if !v.DueAt.IsZero() {
		return nil // it waits
	}
	rows := [][2]string{{"cause", v.Cause}, {"error", v.Error}, {"error type", v.ErrorType}}
	if v.WorkQueue != "" || v.Doubt == "" {
		rows = append(rows, [2]string{"work queue", v.WorkQueue})
	} else {
		rows = append(rows, [2]string{"work queue", "unknown: " + v.Doubt})
	}
	if v.FirstQueue != "" {
		rows = append(rows, [2]string{"failed first in", v.FirstQueue})
	}
	if v.Attempts >= 0 {
		rows = append(rows, [2]string{"attempts", fmt.Sprint(v.Attempts)})
	}
	if v.Native {
		rows = append(rows, [2]string{"retried by", "RabbitMQ (engine: native), which keeps no reason and no time of an earlier attempt"})
	}
	last := Moment(v.LastFailed)
	if last == "" && !v.FirstFailed.IsZero() {
		last = "unknown: of several deaths in a queue RabbitMQ tells the time of the first"
	}
	rows = append(rows, [2]string{"first failed", Moment(v.FirstFailed)}, [2]string{"last failed", last})
	if v.Key != "" || v.Exchange != "" {
		rows = append(rows, [2]string{"published to", address(v.Exchange, []string{v.Key})})
	}
	if v.Replays > 0 {
		rows = append(rows, [2]string{"replays", fmt.Sprintf("%d, the last by run %s", v.Replays, v.Run)})
	}
	if unread := fields(v.Headers).text(topology.HeaderAfter); unread != "" && v.FromProcessor {
		// The processor keeps it for this: see its rules.
		rows = append(rows, [2]string{"ignored", fmt.Sprintf("%s: %q is not a time", topology.HeaderAfter, unread)})
	}
	return append(rows, [2]string{"framework", v.Framework}, [2]string{"stack", v.Stack})
}

// address names an exchange and keys.
func address(exchange string, keys []string) string {
	out := "exchange " + text.Name(exchange)
	if exchange == "" {
		out = "the default exchange"
	}
	switch {
	case len(keys) == 1 && keys[0] != "":
		out += ", key " + text.Name(keys[0])
	case len(keys) > 1:
		out += ", keys " + quoted(keys)
	}
	return out
}

func (v View) properties() [][2]string {
	rows := [][2]string{
		{"message-id", v.MessageID},
		{"type", v.Type},
		{"timestamp", Moment(v.Published)},
		{"content-type", v.ContentType},
		{"content-encoding", v.ContentEncoding},
		{"correlation-id", v.CorrelationID},
		{"reply-to", v.ReplyTo},
		{"app-id", v.AppID},
		{"user-id", v.UserID},
		{"expiration", v.Expiration},
	}
	if v.Priority > 0 {
		rows = append(rows, [2]string{"priority", fmt.Sprint(v.Priority)})
	}
	if !v.Persistent {
		rows = append(rows, [2]string{"delivery-mode", "transient: a restart of the broker loses it in a classic queue"})
	}
	return rows
}

// envelope returns what the envelope of the body holds in addition to the message.
func (v View) envelope() [][2]string {
	var rows [][2]string
	for _, name := range slices.Sorted(maps.Keys(v.Body.Envelope)) {
		rows = append(rows, [2]string{name, literal(v.Body.Envelope[name])})
	}
	return rows
}

// Moment returns a time as outputs show it, in UTC. Empty if it is unknown.
func Moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// literal returns a header as JSON, so that a number and a text that looks like one differ.
func literal(v any) string {
	line, err := text.JSON(finite(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return line
}

// safe returns a text without characters that control a terminal, and without bytes that are no
// text.
func safe(s string) string { return topology.Printable(strings.ToValidUTF8(s, "\uFFFD")) }

// page is the text about one message.
type page struct {
	bytes.Buffer

	width int
}

// section writes rows with a name and a value, without those that have no value.
func (p *page) section(title string, rows [][2]string) {
	rows = slices.DeleteFunc(rows, func(r [2]string) bool { return r[1] == "" })
	if len(rows) == 0 {
		return
	}
	longest := 0
	for i := range rows {
		rows[i][0] = safe(rows[i][0])
		longest = max(longest, utf8.RuneCountInString(rows[i][0]))
	}
	longest = min(longest, p.width/3, widestNames)
	fmt.Fprintf(p, "\n%s\n", title)
	for _, r := range rows {
		head := fmt.Sprintf("  %-*s  ", longest, r[0])
		for line := range strings.Lines(r[1]) {
			p.wrapped(head, 4+longest, safe(strings.TrimRight(line, "\r\n")))
			head = strings.Repeat(" ", 4+longest)
		}
	}
}

// wrapped writes a line behind a head, and continues it below its beginning.
func (p *page) wrapped(head string, indent int, line string) {
	room := max(p.width-indent, 20)
	runes := []rune(line)
	for {
		part := runes[:min(room, len(runes))]
		if space := strings.LastIndexByte(string(part), ' '); len(part) < len(runes) && space > 0 {
			part = []rune(string(part)[:space+1])
		}
		fmt.Fprintln(p, strings.TrimRight(head+string(part), " "))
		if runes = runes[len(part):]; len(runes) == 0 {
			return
		}
		head = strings.Repeat(" ", indent)
	}
}

// timeline writes the hops, the oldest first.
func (p *page) timeline(hops []Hop) {
	if len(hops) == 0 {
		return
	}
	longest, assumed := 0, false
	for _, h := range hops {
		longest = max(longest, utf8.RuneCountInString(safe(h.Queue)))
		assumed = assumed || h.Assumed
	}
	longest = min(longest, p.width/3, widestNames)
	fmt.Fprint(p, "\ntimeline\n")
	for _, h := range hops {
		when := Moment(h.Time)
		if h.Assumed {
			when = "*"
		}
		line := fmt.Sprintf("%-20s  %-*s  %s", when, longest, safe(h.Queue), safe(h.describe()))
		p.wrapped("  ", 2, line)
	}
	if assumed {
		fmt.Fprintln(p, "  * not in the headers: according to the topology as it is today")
	}
}

// describe says what happened in a hop.
func (h Hop) describe() string {
	out := h.Reason
	if out == "" {
		out = "failed"
	}
	if h.Attempt > 0 {
		out = fmt.Sprintf("attempt %d: %s", h.Attempt, out)
	}
	if h.ErrorType != "" {
		out += " by " + h.ErrorType
	}
	if h.Annotated {
		out += " (its consumer or its publisher says)"
	}
	if h.Tier != "" {
		out += ", then waited " + h.Tier
	}
	if h.Count > 1 {
		out += fmt.Sprintf(", %d times", h.Count)
	}
	if h.Exchange != "" || len(h.Keys) > 0 {
		out += ", came through " + address(h.Exchange, h.Keys)
	}
	return out
}

// body writes the decoded body, with what was undone to read it.
func (p *page) body(v View) {
	title := []string{"body"}
	if v.Bytes >= 0 {
		title = append(title, text.Count(v.Bytes, "byte"))
	}
	if v.Body.Format != "" {
		title = append(title, string(v.Body.Format))
	}
	if len(v.Body.Steps) > 0 {
		title = append(title, "from "+strings.Join(v.Body.Steps, ", "))
	}
	fmt.Fprintf(p, "\n%s\n", safe(strings.Join(title, ", ")))
	if v.Body.Note != "" {
		p.wrapped("  ", 2, safe(v.Body.Note))
	}
	for line := range strings.Lines(lines(v.Body.Text)) {
		fmt.Fprintf(p, "  %s", line)
	}
}
