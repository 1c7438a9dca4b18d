package desk

import (
	"io"

	"github.com/dlxctl/dlxctl/internal/jsondoc"
)

// ProposalDocument is a proposal as scripts read it.
type ProposalDocument struct {
	Action Action `json:"action"`
	Proposal
	// Command is the command line that does what is proposed.
	Command string `json:"command,omitempty"`
}

// WriteProposalJSON writes a proposal for a program. do is the command line that does it.
func WriteProposalJSON(w io.Writer, p Proposal, do string) error {
	return jsondoc.Write(w, ProposalDocument{p.Request.Action, p, do})
}

// reachJSON is a queue to which messages would go. A number that is not known is left out.
type reachJSON struct {
	Queue    string `json:"queue"`
	Exchange string `json:"exchange,omitempty"`
	Key      string `json:"key,omitempty"`
	// Messages is how many messages would go there.
	Messages int `json:"messages"`
	// Consumers and Waiting are those that the queue has now: consumers, and waiting messages.
	Consumers *int `json:"consumers,omitempty"`
	Waiting   *int `json:"waiting,omitempty"`
}

// JSON implements [jsondoc.Former].
func (r Reach) JSON() any {
	known := func(n int) *int {
		if n < 0 {
			return nil
		}
		return &n
	}
	return reachJSON{r.Queue, r.Exchange, r.Key, r.Messages, known(r.Consumers), known(r.Waiting)}
}
