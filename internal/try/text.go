package try

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/trace"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteText writes a report for people, in lines of up to width columns; zero is any number. With
// all it has every message, otherwise those of queues where something differs or is late.
func WriteText(w io.Writer, r Report, all bool, width int) error {
	var b strings.Builder
	b.WriteString(r.head())
	for _, q := range r.Queues {
		if !all && !q.stands() {
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s\n", text.Name(q.Name), q.published())
		if err := (text.Table{Rows: q.rows()}).Write(&b, width); err != nil {
			return err
		}
		for _, m := range q.Messages {
			for _, d := range m.Differences {
				fmt.Fprintf(&b, "  DIFFERS  %s: %s\n", m.Name, d)
			}
		}
	}
	b.WriteString("\n")
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "DIFFERS  %s\n", d)
	}
	fmt.Fprintln(&b, r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// head says what was tried, and how it differs from the file.
func (r Report) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on RabbitMQ %s, delays divided by %d\n", text.Name(r.Topology), r.Broker.Version, r.Speed)
	backoffs := map[string][]string{}
	var names []string
	for _, t := range r.Tiers {
		if backoffs[t.Backoff] == nil {
			names = append(names, t.Backoff)
		}
		backoffs[t.Backoff] = append(backoffs[t.Backoff],
			fmt.Sprintf("%s -> %s", text.Duration(t.Delay), text.Duration(t.Tried)))
	}
	for _, name := range names {
		fmt.Fprintf(&b, "backoff %s: %s\n", name, strings.Join(backoffs[name], ", "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// stands reports whether a person must look at the queue.
func (q Queue) stands() bool {
	for _, m := range q.Messages {
		if len(m.Differences) > 0 {
			return true
		}
		for _, s := range m.Stops {
			if s.Late {
				return true
			}
		}
	}
	return false
}

// published says how the messages were published.
func (q Queue) published() string {
	if q.Exchange == "" {
		return fmt.Sprintf("published by its name, through the default exchange: %s", q.Why)
	}
	out := "published to " + text.Name(q.Exchange)
	if q.Key != "" || len(q.Headers) == 0 {
		out += " with key " + text.Name(q.Key)
	}
	if len(q.Headers) > 0 {
		var headers []string
		for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
			headers = append(headers, name+"="+topology.FormatValue(q.Headers[name]))
		}
		out += " with headers " + topology.Printable(strings.Join(headers, ", "))
	}
	if copies := q.Messages[0].Copies; len(copies) > 0 {
		out += "; copies to " + text.FirstOf(text.Names(copies), 5)
	}
	return out
}

// rows returns the table of the messages.
func (q Queue) rows() [][]string {
	out := [][]string{{"  MESSAGE", "PREDICTED", "DELAY", "MEASURED", "SINCE PUBLISH"}}
	for _, m := range q.Messages {
		name := "  " + m.Name
		for _, s := range m.Stops {
			out = append(out, []string{name, s.predicted(), s.delay(), s.measured(), s.since()})
			name = ""
		}
		if len(m.Stops) == 0 {
			out = append(out, []string{name, "reaches no queue", "", "", ""})
		}
	}
	return out
}

// predicted says what is predicted of a stop.
func (s Stop) predicted() string {
	if s.Event == unpredicted {
		return fmt.Sprintf("nothing; it came to %s", text.Name(s.Queue))
	}
	out := fmt.Sprintf("delivery %d", s.Delivery)
	ends := map[topology.Role]string{
		topology.RoleDeadLetter: "dead letter in ", topology.RoleUnroutable: "unroutable, in ",
	}
	if end, ok := ends[s.Role]; ok {
		out = end + text.Name(s.Queue)
	}
	if s.Tier != "" {
		out += " after " + text.Name(s.Tier)
	}
	if s.Count != "" {
		out += " with " + s.Count
	}
	if s.Role == topology.RoleWork {
		out += ", " + s.fate()
	}
	if s.Lost != "" {
		out += "; LOST: " + s.Lost
	}
	return out
}

// fate says what the consumer of a work queue does.
func (s Stop) fate() string {
	switch {
	case s.Event == trace.Acknowledged && s.Returned > 0:
		return fmt.Sprintf("crashes %s, then acknowledged", text.Count(s.Returned, "time"))
	case s.Event == trace.Acknowledged:
		return "acknowledged"
	case s.Reason == route.DeliveryLimit && s.Returned == 0, s.Event == trace.Failed && s.Reason == "":
		return "not acknowledged"
	case s.Reason == route.DeliveryLimit:
		return fmt.Sprintf("crashes %s", text.Count(s.Returned+1, "time"))
	default:
		return "rejected"
	}
}

func (s Stop) delay() string {
	if s.Wait == 0 {
		return "-"
	}
	return text.Took(s.Wait)
}

// measured returns the delay that was measured.
func (s Stop) measured() string {
	switch {
	case !s.came():
		return "did not come"
	case s.Event == unpredicted:
		return "-"
	case s.Late:
		return text.Took(*s.Waited) + " LATE"
	case s.Wait == 0:
		return "-"
	default:
		return text.Took(*s.Waited)
	}
}

// since returns the time since the publish.
func (s Stop) since() string {
	if !s.came() {
		return "-"
	}
	return text.Took(*s.Measured)
}

// summary says how it went.
func (r Report) summary() string {
	tried := fmt.Sprintf("%s in %s, %s", text.Count(r.Messages, "message"), text.Count(len(r.Queues), "queue"),
		text.Took(r.Took))
	if r.AsPredicted {
		return "as predicted: " + tried
	}
	return fmt.Sprintf("NOT as predicted: %d of %s", r.Differing, tried)
}
