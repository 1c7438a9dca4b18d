// Package deadletter reads dead letters: why a message died, where it came from, and how to
// name, choose, group, show and store it. It does no I/O.
package deadletter

import (
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/decode"
)

// Message is a message as it lies in a queue.
type Message struct {
	// Delivery is the message byte for byte, with the headers that were published.
	Delivery amqp091.Delivery
	// Queue is where the message lies.
	Queue string
	// Position counts from the head of the queue; the first is 0.
	Position int
	// Handle names the content, and Copy tells those apart that have the same handle: 1 is the
	// first in the queue.
	Handle Handle
	Copy   int
}

// Handle names the content of a message as a person may see it: 32 hexadecimal digits of a SHA-256
// over message-id, body, type and headers, without the headers in which the broker counts
// deliveries and those of the desk.
//
// Where rules mask a part of a message, the handle is made of the masked view: a person who sees
// the output could compute it, and learns nothing from it. Messages that differ only in what is
// masked have the same one. So a handle names a message to a person; what a run takes is chosen by
// the [Digest].
type Handle string

// Facts is what the headers of a dead letter tell, in the words of RabbitMQ, of dlxctl or of
// the framework that wrote them. A field that nothing tells is zero, and Attempts is -1. Times are
// in UTC.
type Facts struct {
	// Cause is why it died last: rejected, delivery_limit, expired, maxlen, permanent (by a consumer),
	// unroutable (by the processor), failed or skipped (by a framework).
	Cause string `json:"cause"`
	// Error is the error, as the consumer, the processor or a framework wrote it.
	Error string `json:"error"`
	// ErrorType is the type of the error.
	ErrorType string `json:"errorType,omitempty"`
	// Stack is the stack trace.
	Stack string `json:"stack,omitempty"`
	// Attempts is how many deliveries failed.
	Attempts int `json:"attempts" jsondoc:"known"`
	// FirstFailed is when it failed first.
	FirstFailed time.Time `json:"firstFailed"`
	// LastFailed is when it failed last. RabbitMQ does not tell it of a message that died several
	// times where it died last.
	LastFailed time.Time `json:"lastFailed"`
	// DueAt is when it is due, if it waits in a delay.
	DueAt time.Time `json:"dueAt,omitzero"`
	// WorkQueue is the work queue in which it failed; empty is unknown.
	WorkQueue string `json:"queue"`
	// FirstQueue is the work queue in which it failed first, where retryTo has sent it on from there.
	FirstQueue string `json:"firstQueue,omitempty"`
	// Doubt says why the work queue is unknown, if there are several candidates.
	Doubt string `json:"doubt,omitempty"`
	// Exchange is where the publisher sent it.
	Exchange string `json:"exchange"`
	// Key is the routing key of the publisher.
	Key string `json:"key"`
	// Replays is how many times the desk has sent it before.
	Replays int `json:"replays"`
	// Run is the last run of the desk that sent it.
	Run string `json:"run"`
	// Framework is the framework whose headers it has, as "NServiceBus".
	Framework string `json:"framework,omitempty"`
	// Hops are its deaths, the oldest first, as far as the headers tell.
	Hops []Hop `json:"hops"`
	// Job is the type of the message as the headers of a framework name it.
	Job string `json:"-"`
	// ByFramework reports that a framework has named the work queue: its consumer has published the
	// message to where it lies.
	ByFramework bool `json:"-"`
	// Native reports that RabbitMQ did the retries of its work queue: no header tells of an earlier
	// attempt.
	Native bool `json:"-"`
	// FromProcessor reports that the headers are those of a processor of dlxctl.
	FromProcessor bool `json:"-"`
}

// Hop is one death on the way of a message. A time that is not known is zero.
type Hop struct {
	Queue  string `json:"queue"`
	Reason string `json:"reason"`
	// Count is how often it died there for that reason; 0 is unknown.
	Count int64 `json:"count"`
	// Time is when it died there for the first time.
	Time     time.Time `json:"time"`
	Exchange string    `json:"exchange"`
	Keys     []string  `json:"keys"`
	// Attempt is the number of the failed delivery, as the processor's history tells.
	Attempt int `json:"attempt,omitempty"`
	// ErrorType is the type of the error of that attempt.
	ErrorType string `json:"errorType,omitempty"`
	// Annotated reports that ErrorType is of an annotation: its consumer or its publisher says it.
	Annotated bool `json:"annotated,omitempty"`
	// Tier is the delay of the tier in which the message then waited.
	Tier string `json:"tier,omitempty"`
	// Assumed reports that no header tells of it: it must have waited in this tier, as the topology
	// is today.
	Assumed bool `json:"assumed,omitempty"`
}

// Properties are those of a message, as far as a person sees them. One that it does not have is
// zero.
type Properties struct {
	MessageID string `json:"id"`
	// Type is the type of the message, as its property, its body or its framework names it.
	Type string `json:"type"`
	// Published is when it was published.
	Published       time.Time `json:"published"`
	ContentType     string    `json:"contentType"`
	ContentEncoding string    `json:"contentEncoding,omitempty"`
	CorrelationID   string    `json:"correlationId,omitempty"`
	ReplyTo         string    `json:"replyTo,omitempty"`
	AppID           string    `json:"appId,omitempty"`
	UserID          string    `json:"userId,omitempty"`
	// Expiration is the time to live that the publisher set, in milliseconds.
	Expiration string `json:"expiration,omitempty"`
	Priority   uint8  `json:"priority,omitempty"`
	Persistent bool   `json:"persistent"`
	// Redelivered reports that it was delivered before, if only to a person who looked.
	Redelivered bool `json:"redelivered"`
}

// View is a message as a person may see it: decoded and redacted. Filters, groups and all
// outputs read only views.
type View struct {
	Queue    string
	Position int
	Handle   Handle
	Copy     int
	Facts
	Properties
	Headers map[string]any
	// Body is zero in a view that [Reader.Head] returned.
	Body decode.Document
	// Bytes is the size of the body as it was published. It is -1 where rules mask a part of the
	// body: the rest of it is shown, and the size would tell the length of that part.
	Bytes int
	// Masked reports that rules mask a part of the message.
	Masked bool

	countHeader string
}

// Name returns the handle of the message, and the number of its copy from the second on.
func (v View) Name() string { return NameOf(v.Handle, v.Copy) }
