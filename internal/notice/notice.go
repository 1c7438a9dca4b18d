// Package notice says what a notice holds, how it reads as text, and where it may go: the address
// of a target, which is a secret, and the template of its text.
//
// The package is pure. Package notify sends notices.
package notice

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
)

// Notice describes what happened to one message, or to several of a work queue that failed alike.
type Notice struct {
	// Event is dead_letter or unroutable, or outage or outage_end of a work queue, which is about no
	// message.
	Event    string `json:"event"`
	Topology string `json:"topology"`
	// Queue is the work queue in which the message failed, MovedTo the queue to which the
	// processor moved it.
	Queue     string `json:"queue"`
	MovedTo   string `json:"movedTo"`
	MessageID string `json:"messageId"`
	// Messages is how many messages the notice is about: that with MessageID, and others that failed
	// alike. Zero: it is about no message.
	Messages     int64  `json:"messages,omitempty"`
	Reason       string `json:"reason"`
	Attempts     int64  `json:"attempts"`
	FirstFailure string `json:"firstFailure"`
	Owner        string `json:"owner"`
	// Severity is that of the message. Empty: it is of no work queue of the topology.
	Severity string `json:"severity"`
	// Error is why the message is unroutable, what the consumer said of a dead letter, or the numbers
	// of an outage.
	Error string `json:"error,omitempty"`
	// ErrorType is the type of that error.
	ErrorType string `json:"errorType,omitempty"`
	// Body is the beginning of the message's body, if it was asked for and is UTF-8.
	Body string `json:"body,omitempty"`
	// BodyBase64 is the beginning of a body that is not UTF-8, in standard base64.
	BodyBase64 string `json:"bodyBase64,omitempty"`
	// BodyBytes is the size of the whole body, if it was asked for.
	BodyBytes int `json:"bodyBytes,omitempty"`
	// BodyFormat is the format of the decoded body, BodyType the type of the message, and BodyNote
	// what was not decoded.
	BodyFormat string `json:"bodyFormat,omitempty"`
	BodyType   string `json:"bodyType,omitempty"`
	BodyNote   string `json:"bodyNote,omitempty"`
	// BodyText is the beginning of the decoded body. Rules of the topology file mask its values;
	// Body and BodyBase64 are then empty.
	BodyText string `json:"bodyText,omitempty"`
}

// Line returns the text about a notice, on one line. escape is applied to each text that a message,
// a queue or the file brought in; nil leaves it as it is.
func (n Notice) Line(escape func(string) string) string { return n.cleaned(escape).line() }

func (n clean) line() string {
	if n.Event == "unroutable" {
		return fmt.Sprintf("[%s] unroutable: %s moved to %s: %s", n.Topology, n.messages(), n.MovedTo, n.Error)
	}
	if begins := n.Event == "outage"; begins || n.Event == "outage_end" {
		what := "is in outage: messages that would be dead letters wait in " + n.MovedTo
		if !begins {
			what = "is no longer in outage"
		}
		return fmt.Sprintf("[%s] %s (%s) %s; %s", n.Topology, n.Queue, n.who(), what, n.Error)
	}
	if n.Messages > 1 {
		return fmt.Sprintf("[%s] %d dead letters of %s (%s) within a minute: moved to %s, %s%s; the first is %s; %s",
			n.Topology, n.Messages, n.Queue, n.who(), n.MovedTo, n.Reason, n.why(), n.message(), n.Command())
	}
	times := "attempts"
	if n.Attempts == 1 {
		times = "attempt"
	}
	return fmt.Sprintf("[%s] dead letter of %s (%s): %s moved to %s after %d %s, the last %s%s; first failure %s; %s",
		n.Topology, n.Queue, n.who(), n.message(), n.MovedTo, n.Attempts, times,
		n.Reason, n.why(), n.FirstFailure, n.Command())
}

// Command returns the command of the desk that lists the dead letters of the queue.
func (n Notice) Command() string { return "dlxctl desk list " + text.ShellQuote("@"+n.Queue) }

func (n Notice) message() string {
	if n.MessageID == "" {
		return "a message without message-id"
	}
	return "message " + n.MessageID
}

// messages names the message, and counts the others.
func (n Notice) messages() string {
	if n.Messages > 1 {
		return fmt.Sprintf("%d messages within a minute, the first %s,", n.Messages, n.message())
	}
	return n.message()
}

// who returns the severity and the owner.
func (n Notice) who() string {
	if n.Owner == "" {
		return n.Severity
	}
	return n.Severity + ", " + n.Owner
}

// why returns what the consumer said, in brackets: the type and the beginning of the error.
func (n Notice) why() string {
	line := n.Error
	if n.ErrorType != "" && !strings.Contains(line, n.ErrorType) {
		line = strings.TrimSuffix(n.ErrorType+": "+line, ": ")
	}
	if line == "" {
		return ""
	}
	return " (" + line + ")"
}
