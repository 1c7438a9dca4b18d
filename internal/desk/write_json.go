package desk

// ProposalDocument is a proposal as scripts read it.
type ProposalDocument struct {
	Action Action `json:"action"`
	Proposal
	// Command is the command line that does what is proposed.
	Command string `json:"command,omitempty"`
}
