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
// the framework that wrote them. A field that nothing tells is zero.
type Facts struct {
	// Cause is why the message died last: rejected, expired, maxlen or delivery_limit, as
	// RabbitMQ says, unroutable, as the processor says, or failed and skipped, if a framework
	// moved the message after an exception, or because it has no handler for it.
	Cause string
	// Error is the text of the error, of the processor or of the framework. ErrorType is its
	// type and Stack its stack trace, where a framework tells.
	Error, ErrorType, Stack string
	// Framework is the framework whose headers the message has, as "NServiceBus".
	Framework string
	// Job is the type of the message as the headers of a framework name it.
	Job string
	// Attempts is how many deliveries failed; -1 is unknown.
	Attempts int
	// WorkQueue is the queue in which the message failed. Empty is unknown, and Doubt then
	// says why if there are several candidates.
	WorkQueue string
	Doubt     string
	// Exchange and Key are where the publisher sent the message.
	Exchange, Key string
	// FirstFailed and LastFailed are times in UTC; zero is unknown.
	FirstFailed, LastFailed time.Time
	// Replays counts how often a desk has sent the message before, and Run names the last run.
	Replays int
	Run     string
	// FromProcessor reports that the headers are those of a processor of dlxctl.
	FromProcessor bool
	// Hops is the way of the message, oldest first, as far as the headers tell.
	Hops []Hop
}

// Hop is one death on the way of a message.
type Hop struct {
	Queue, Reason string
	// Count is how often it died there for that reason; 0 is unknown.
	Count int64
	// Time is when it died there for the first time; zero is unknown.
	Time     time.Time
	Exchange string
	Keys     []string
	// Assumed reports that no header tells of the hop: the message must have waited in a tier,
	// as the topology is today.
	Assumed bool
}

// View is a message as a person may see it: decoded and redacted. Filters, groups and all
// outputs read only views.
type View struct {
	Queue    string
	Position int
	Handle   Handle
	Copy     int
	Facts
	MessageID string
	// Type is the type of the message, as its property, its body or its framework names it.
	Type                                  string
	ContentType, ContentEncoding          string
	CorrelationID, ReplyTo, AppID, UserID string
	// Expiration is the time to live in milliseconds, as the property has it.
	Expiration string
	Priority   uint8
	Persistent bool
	// Published is the timestamp of the message; zero is unknown.
	Published time.Time
	Headers   map[string]any
	// Body is zero in a view that [Reader.Head] returned.
	Body decode.Document
	// Bytes is the size of the body as it was published. It is -1 where rules mask a part of the
	// body: the rest of it is shown, and the size would tell the length of that part.
	Bytes int
	// Masked reports that rules mask a part of the message.
	Masked bool
	// Redelivered reports that the message was delivered before, if only to a person who looked.
	Redelivered bool

	countHeader string
}

// Name returns the handle of the message, and the number of its copy from the second on.
func (v View) Name() string { return NameOf(v.Handle, v.Copy) }
