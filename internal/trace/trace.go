// Package trace predicts the way of one message: which queues get it and through which bindings,
// and for each of them what follows when consumers fail: when it is delivered again, with which
// headers, where it ends, and whether it is lost.
//
// It works on the objects of a virtual host, wherever they come from: a topology file, a file of
// definitions, or a broker. Package route says what the broker does, and package retry what the
// processor does. A property test holds the result equal to brokers with a running processor.
//
// The package is pure.
package trace

import (
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// Always is a number of failures that has no end.
const Always = -1

// Cause is how consumers fail.
type Cause string

// The causes.
const (
	// Rejected: consumers reject the message without requeue. They requeue it in a queue with a native
	// backoff of a file that is in effect.
	Rejected Cause = "rejected"
	// Expired: no consumer takes the message before its TTL is over.
	Expired Cause = "expired"
	// Crash: each delivery ends with the death of the consumer, so that the broker delivers the
	// message again, up to the delivery limit of the queue.
	Crash Cause = "crash"
	// Refused and Nacked are for queues with a native backoff. Refused: consumers reject the message
	// without requeue. Nacked: they requeue it by basic.nack, which RabbitMQ delays and never counts.
	Refused Cause = "refused"
	Nacked  Cause = "nacked"
)

// Causes returns the causes that a queue with any backoff has.
func Causes() []Cause { return []Cause{Rejected, Expired, Crash} }

// Input is a message, and what it meets.
type Input struct {
	// State has the objects of the virtual host. Its version decides between the rules of
	// RabbitMQ's lines; empty is the newest one.
	State topology.State
	// Live: State was read from a broker, so that the consumers of queues are known.
	Live bool
	// Files are the topology files by which processors decide.
	Files []topology.Compiled
	// Place tells where a file declares an object, empty for an object without a place. Nil:
	// no object has a place.
	Place func(topology.Key) string

	Exchange, Key string
	Headers       map[string]any
	// Expiration is the TTL that the publisher sets. Nil: none.
	Expiration *time.Duration

	// Failures is how many times in a row the message fails in each queue: a failure is what
	// makes the queue dead-letter it. [Always] has no end. QueueFailures overrides it by queue.
	Failures      int
	QueueFailures map[string]int
	Cause         Cause
}

// Report is the way of a message.
type Report struct {
	Input Input
	// ExchangeType is the type of the exchange, empty if it does not exist.
	ExchangeType string
	// Journeys are the ways of the copies, one for each queue that gets the message from its
	// publisher, sorted by the queue.
	Journeys []Journey
	// Ends are copies of the publisher that reach no queue.
	Ends []End
	// Missed are the queues of the files, and those that the exchange leads to, that the message
	// never reaches, sorted.
	Missed []Missed
}

// Missed is a queue that the message does not reach.
type Missed struct {
	Queue string `json:"queue"`
	// Bindings lead to the queue and do not match.
	Bindings []string `json:"bindings"`
}

// Journey is the way of one copy.
type Journey struct {
	// Queue is the first queue, and Path how the message came there.
	Queue string
	Path  []route.Step
	// Stops are the queues that the copy comes to, in order: a stop stands behind the one from
	// which the message came.
	Stops []Stop
}

// Event is what happens to a message in a queue.
type Event string

// The events.
const (
	// Acknowledged: a consumer acknowledges it.
	Acknowledged Event = "acknowledged"
	// Failed: consumers fail, by the cause of the input.
	Failed Event = "failed"
	// Waited: it expires after the TTL.
	Waited Event = "waited"
	// Counted: the processor takes it and publishes it again.
	Counted Event = "counted"
	// Kept: it stays.
	Kept Event = "kept"
)

// Stop is a message in a queue.
type Stop struct {
	// From is the index of the stop from which the message came, -1 for the first one.
	From  int    `json:"from"`
	Queue string `json:"queue"`
	// Role is what a file has the queue for, empty for a queue that no file knows.
	Role topology.Role `json:"role"`
	// At is the time since the publish, at the earliest.
	At time.Duration `json:"at"`
	// Path is how the message came to the queue from the exchange of its publisher, of its last
	// queue, or of the processor.
	Path []route.Step `json:"-"`
	// Exchange, Key and Headers are those that a consumer sees: without what the broker counts
	// by delivery. Deaths have no time.
	Exchange string         `json:"exchange"`
	Key      string         `json:"key"`
	Headers  map[string]any `json:"-"`
	Deaths   []route.Death  `json:"-"`

	// Event is what happens to the message in the queue.
	Event Event `json:"event"`
	// Delivery is the number of the delivery to consumers of this queue, from 1.
	Delivery int `json:"delivery"`
	// Returned is how many times the broker delivers it again before it gives up; only a crash does
	// that.
	Returned int `json:"returned"`
	// Wait is how long the message stays in the queue.
	Wait time.Duration `json:"wait"`
	// Reason is why the message leaves the queue as a dead letter. Empty: it does not.
	Reason route.Reason `json:"reason"`
	// AtMostOnce reports that the broker may lose the message as it leaves this queue, if a node
	// fails just then or the next queue is not available.
	AtMostOnce bool `json:"atMostOnce"`
	// Count is what the processor sets, such as count=1. Empty if it does not take the message.
	Count string `json:"count"`
	// InOutage is the queue in which the message would wait if its work queue were in outage, where
	// the processor makes it a dead letter. Empty: none.
	InOutage string `json:"inOutage,omitempty"`
	// Ends are the copies that end here, or on the way out.
	Ends []End `json:"ends"`
}

// EndKind is how the way of a copy ends.
type EndKind string

// The ends.
const (
	// Done: a consumer has acknowledged it.
	Done EndKind = "acknowledged"
	// DeadLetter: it stays in a dead-letter queue.
	DeadLetter EndKind = "dead-letter"
	// Unroutable: it stays in the unroutable queue.
	Unroutable EndKind = "unroutable"
	// Stays: it stays in a queue that nothing is known to consume.
	Stays EndKind = "stays"
	// Endless: it goes round, or is delivered again, without end.
	Endless EndKind = "endless"
	// Stuck: it cannot leave its queue, in which no consumer sees it.
	Stuck EndKind = "stuck"
	// Lost: it is gone.
	Lost EndKind = "lost"
	// Unknown: the objects do not tell.
	Unknown EndKind = "unknown"
)

// End is the end of a copy.
type End struct {
	Kind EndKind `json:"kind"`
	// Why says more in words, empty where the kind says all. For [Lost] it is always set.
	Why string `json:"why"`
}

// Lost reports whether a copy is lost anywhere.
func (r Report) Lost() bool {
	return hasLost(r.Ends) || slices.ContainsFunc(r.Journeys, Journey.Lost)
}

// Lost reports whether a copy is lost on this journey.
func (j Journey) Lost() bool {
	return slices.ContainsFunc(j.Stops, func(s Stop) bool { return hasLost(s.Ends) })
}

func hasLost(ends []End) bool {
	return slices.ContainsFunc(ends, func(e End) bool { return e.Kind == Lost })
}
