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
