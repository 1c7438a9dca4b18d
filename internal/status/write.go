package status

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// WriteText writes r as a table, with the warnings behind it.
func WriteText(w io.Writer, r Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "topology %s, vhost %s\n\n", r.Topology, topology.Printable(r.VHost))
	fmt.Fprintln(t, "QUEUE\tROLE\tBACKOFF\tDELAY\tMESSAGES\tUNACKNOWLEDGED\tCONSUMERS")
	for _, q := range r.Queues {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", topology.Printable(q.Name), q.Role, q.Backoff, delay(q), q.Messages,
			q.Unacknowledged, consumers(q))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, warning := range r.Warnings {
		if _, err := fmt.Fprintf(w, "warning %s: %s\n", warning.Name, topology.Printable(warning.Text)); err != nil {
			return err
		}
	}
	return nil
}

func consumers(q Queue) string {
	if q.ConsumersUnknown {
		return "?"
	}
	return strconv.FormatInt(q.Consumers, 10)
}

func delay(q Queue) string {
	if q.Role != topology.RoleRetry {
		return ""
	}
	return topology.FormatDelay(q.Delay)
}

// reportJSON is a report as scripts read it. Its fields are a contract.
type reportJSON struct {
	Version  int           `json:"version"`
	Topology string        `json:"topology"`
	VHost    string        `json:"vhost"`
	Queues   []queueJSON   `json:"queues"`
	Warnings []warningJSON `json:"warnings"`
}

type queueJSON struct {
	Name           string        `json:"name"`
	Role           topology.Role `json:"role"`
	Backoff        string        `json:"backoff"`
	Delay          int64         `json:"delay"` // milliseconds
	Type           string        `json:"type"`
	Messages       int64         `json:"messages"`
	Unacknowledged int64         `json:"unacknowledged"`
	Consumers      int64         `json:"consumers"`
	Owner          string        `json:"owner"`
	Severity       string        `json:"severity"`
	// ConsumersUnknown says that consumers is 0 because the broker did not report any number.
	ConsumersUnknown bool `json:"consumersUnknown,omitempty"`
}

type warningJSON struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// WriteJSON writes r for scripts.
func WriteJSON(w io.Writer, r Report) error {
	out := reportJSON{Version: 1, Topology: r.Topology, VHost: r.VHost, Queues: []queueJSON{}, Warnings: []warningJSON{}}
	for _, q := range r.Queues {
		out.Queues = append(out.Queues, queueJSON{
			q.Name, q.Role, q.Backoff, q.Delay.Milliseconds(), q.Type, q.Messages, q.Unacknowledged, q.Consumers, q.Owner,
			q.Severity, q.ConsumersUnknown,
		})
	}
	for _, warning := range r.Warnings {
		out.Warnings = append(out.Warnings, warningJSON(warning))
	}
	return text.WriteJSON(w, out)
}
