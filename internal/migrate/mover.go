package migrate

import (
	"fmt"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// mover moves the messages of a legacy queue to its successor. It publishes them to an
// exchange that routes only there, with their own routing key, so that consumers see the
// key that the publisher used.
type mover struct {
	to string // the exchange
	// safe is when the queue is old enough to keep its messages if its node is killed, see
	// amqp.SafeAge. Before, no message is acknowledged: it stays where it came from as well.
	safe      time.Time
	frame     int // the size of the largest content header that the broker accepts, in bytes; zero: any
	taken     atomic.Int64
	passes    atomic.Int64 // how often a drain has begun on a new connection
	moved     atomic.Int64
	again     int64                     // how many had been delivered before
	ids       []string                  // the message-ids of the first of those
	shortened int64                     // how many lost the history that made their headers too large
	malformed int64                     // how many had a history that RabbitMQ did not write
	doubled   int64                     // how many may have been doubled, at most, in all
	unbound   atomic.Int64              // how many were moved before the queue was last seen without bindings
	deleted   bool                      // migrate has deleted the queue
	refused   atomic.Pointer[string]    // why the broker last refused a message
	crowded   atomic.Int64              // when the successor was last full, in milliseconds of Unix time
	first     atomic.Pointer[time.Time] // when the successor had confirmed the first. Nil: none yet
	last      atomic.Int64              // when a message was last moved, in milliseconds of Unix time
	step      func()                    // is called for each message that was moved
	watched   *byNameWatch              // nil: messages of publishers by name are not noted
	unnoted   atomic.Pointer[error]     // why such a message cannot be noted
}

// begin prepares for a relay. frame is the size of the largest content header that the
// broker accepts.
func (h *mover) begin(frame int) {
	h.frame = frame
	h.passes.Add(1)
	h.taken.Store(h.moved.Load())
	h.unnoted.Store(nil)
	h.last.Store(time.Now().UnixMilli())
}

// Move returns the message unchanged, but without the broker's counts, and without a
// user-id: the broker accepts only that of the connection. If the broker's own history has
// made the headers larger than the broker accepts, the history is left out. A history that
// a publisher made up moves to another header: see asBrokerWrites.
func (h *mover) Move(d amqp091.Delivery) relay.Move {
	h.taken.Add(1)
	m := relay.Republish(d, amqp091.Table{})
	m.Expiration = d.Expiration
	for name, v := range d.Headers {
		_, isList := v.([]any)
		switch {
		case topology.IsDeliveryCount(name):
		case (name == topology.CC || name == topology.BCC) && !isList:
			// Messages of other protocols may have such a header. The broker does not
			// accept it in a publish.
			m.Headers[topology.SetAside(name)] = v
		default:
			m.Headers[name] = v
		}
	}
	if d.UserId != "" {
		m.Headers[topology.HeaderUserID] = d.UserId
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	if !asBrokerWrites(m.Headers) {
		if v, ok := m.Headers[topology.HeaderDeath]; ok {
			m.Headers[topology.SetAside(topology.HeaderDeath)] = v
		}
		withoutHistory(m.Headers)
		h.malformed++
	}
	if h.frame > 0 && relay.HeaderSize(m) > h.frame {
		withoutHistory(m.Headers)
		h.shortened++
	}
	return relay.Move{Exchange: h.to, Key: d.RoutingKey, Message: m}
}

// hold returns a relay's Hold that holds back what next holds back, and a message of which the
// broker must know first that it came by the queue's name. Nothing is lost: the message is not
// acknowledged, and the drain ends.
func (h *mover) hold(next func(amqp091.Delivery, relay.Move) bool) func(amqp091.Delivery, relay.Move) bool {
	return func(d amqp091.Delivery, m relay.Move) bool {
		if next(d, m) {
			return true
		}
		if h.watched == nil {
			return false
		}
		if err := h.watched.notes(d); err != nil {
			h.unnoted.Store(&err)
			return true
		}
		return false
	}
}

// Refused lets the message wait: it is safe in the legacy queue, and has no other
// destination. A full successor has room again when its consumers have read messages.
func (h *mover) Refused(_ amqp091.Delivery, m relay.Move, reason string) relay.Move {
	h.refused.Store(&reason)
	return m
}

// Moved counts a message. One that was delivered before may have been moved before, by a
// run that was killed.
func (h *mover) Moved(d amqp091.Delivery, _ relay.Move) {
	if h.first.Load() == nil {
		h.first.Store(new(time.Now()))
	}
	if young := time.Until(h.safe); young > 0 {
		<-time.After(young) // the relay acknowledges it afterwards
	}
	h.moved.Add(1)
	h.step()
	h.last.Store(time.Now().UnixMilli())
	if d.Redelivered {
		h.again++
		if d.MessageId != "" && len(h.ids) < mostIDs {
			h.ids = append(h.ids, d.MessageId)
		}
	}
}

// report keeps why a message stays in the legacy queue.
func (h *mover) report(f relay.Finding) {
	why := f.Err.Error()
	if f.Delivery.MessageId != "" {
		why = fmt.Sprintf("message %q: %s", f.Delivery.MessageId, why)
	}
	h.refused.Store(&why)
}

// stuck returns the error of a drain that does not make progress.
func (h *mover) stuck(m Move) error {
	why := "the broker sends no confirm"
	if reason := h.refused.Load(); reason != nil {
		why = *reason
	}
	return fmt.Errorf("%w: %s does not accept the messages of %s, which stay there: %s; fix that and run the command again",
		ErrWaiting, m.New, m.Legacy, why)
}

// messages returns a number of messages as text: "50,000 messages".
func messages(n int64) string { return text.Grouped(n) + " " + text.Plural(n, "message") }

// mostIDs is how many message-ids are named.
const mostIDs = 10

// listIDs names the first of n messages, behind a colon. It is empty if they have no message-ids.
func listIDs(ids []string, n int64) string {
	if len(ids) == 0 {
		return ""
	}
	return ": " + text.More(ids, int(n))
}
