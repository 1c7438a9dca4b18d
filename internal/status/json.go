package status

import (
	"io"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// reportJSON is a report as scripts read it. Its fields are a contract.
type reportJSON struct {
	Version  int        `json:"version"`
	Topology string     `json:"topology"`
	VHost    string     `json:"vhost"`
	Time     *time.Time `json:"time,omitempty"` // when the broker was read
	// Problems counts the warnings that are problems, not notes.
	Problems   int           `json:"problems"`
	Queues     []queueJSON   `json:"queues"`
	WorkQueues []workJSON    `json:"workQueues"`
	Warnings   []warningJSON `json:"warnings"`
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
	// Oldest is the timestamp of the message at the head, where the broker reports it.
	Oldest *time.Time `json:"oldest,omitempty"`
}

// workJSON is a row of the table of work queues.
type workJSON struct {
	Name           string `json:"name"`
	Ready          int64  `json:"ready"`
	Unacknowledged int64  `json:"unacknowledged"`
	Retrying       int64  `json:"retrying"`
	// SharedRetrying and SharedDead say that the number counts messages of other queues too.
	SharedRetrying bool     `json:"sharedRetrying,omitempty"`
	Dead           int64    `json:"dead"`
	SharedDead     bool     `json:"sharedDead,omitempty"`
	Problems       []string `json:"problems"`
}

type warningJSON struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Fix  string `json:"fix"`
	// Command is to paste into a shell.
	Command string `json:"command"`
	// Note says that nothing is wrong.
	Note   bool     `json:"note,omitempty"`
	Queues []string `json:"queues"`
}

// WriteJSON writes r for scripts.
func WriteJSON(w io.Writer, r Report) error {
	out := reportJSON{
		Version: 1, Topology: r.Topology, VHost: r.VHost, Time: moment(r.At), Problems: r.Wrong(),
		Queues: []queueJSON{}, WorkQueues: []workJSON{}, Warnings: []warningJSON{},
	}
	for _, q := range r.Queues {
		out.Queues = append(out.Queues, queueJSON{
			q.Name, q.Role, q.Backoff, q.Delay.Milliseconds(), q.Type, q.Messages, q.Unacknowledged, q.Consumers, q.Owner,
			q.Severity, q.ConsumersUnknown, moment(q.Oldest),
		})
	}
	for _, q := range r.Works {
		out.WorkQueues = append(out.WorkQueues, workJSON{
			q.Name, q.Ready, q.Unacknowledged, q.Retrying, q.SharedRetrying, q.Dead, q.SharedDead,
			append([]string{}, q.Problems...),
		})
	}
	for _, p := range r.Problems {
		out.Warnings = append(out.Warnings, warningJSON{
			p.Name, p.Text, p.Fix, p.Command, p.Note, append([]string{}, p.Queues...),
		})
	}
	return text.WriteJSON(w, out)
}

// moment returns a time in UTC, and nil for none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
