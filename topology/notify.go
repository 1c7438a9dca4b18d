package topology

// NotifyTarget is where the processor sends notices, and which.
type NotifyTarget struct {
	// To is the address as the file has it, with ${VAR} for its secrets: commands that send no
	// notices do not need them. It may be a secret itself, and must not be shown.
	To string
	// Severities and Owners are those of the notices that it gets. Empty: all.
	Severities, Owners []string
	// Template is the text of a notice, in the language of text/template. Empty: that of dlxctl.
	Template string
	// Place is where the file has it.
	Place Place
}
