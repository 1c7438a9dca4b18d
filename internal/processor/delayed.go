package processor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/topology"
)

// delayHandler lets the rules of a delay decide about the messages of its queues.
type delayHandler struct {
	rules    retry.DelayRules
	delay    topology.Delay
	topology topology.Compiled
	trouble  *slog.Logger               // limits lines of the same text
	probe    *monitor.Probe             // nil: nothing is recorded
	unbound  func(exchange string) bool // it may lack bindings for now
	refused  *refusals
	tell     func(notify.Notice, notify.Message) // nil: no notices are sent
	alike    func(problem string) string         // equal for errors that differ in numbers alone
	show     func(notify.Message) notify.Shown
}

// Move decides about a message.
func (h *delayHandler) Move(d amqp091.Delivery) relay.Move {
	h.probe.Taken()
	return h.move(d, h.rules.Decide(delayedMessage(d), time.Now()))
}

// delayedMessage returns what the rules look at of a message of a delay.
func delayedMessage(d amqp091.Delivery) retry.Message {
	m := failure(d)
	m.Texts = []string{d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.MessageId, d.Type, d.AppId}
	m.Timestamp = d.Timestamp
	return m
}

func (h *delayHandler) move(d amqp091.Delivery, made retry.DelayDecision) relay.Move {
	m := relay.Republish(d, made.Headers)
	m.Expiration = made.Expiration
	return relay.Move{Exchange: made.Exchange, Key: made.Key, Message: m, Note: made}
}

// Refused says where a message goes that the broker did not accept. What no queue behind the
// exchange of the delay takes goes to the unroutable queue, unless apply has just created the
// exchange, and may bind it yet. All else waits: it is decided anew, as time has passed, with a
// shorter level where the broker does not have the level, or that is full or without a leader.
func (h *delayHandler) Refused(d amqp091.Delivery, m relay.Move, reason string) relay.Move {
	tried, _ := m.Note.(retry.DelayDecision)
	h.probe.Active()
	now := time.Now()
	switch {
	case tried.Outcome == retry.NotTaken:
		seen := h.shown(d, reason)
		h.refused.again(h.describe(seen), d.DeliveryTag, errorOf(seen))
		return m
	case h.unbound(m.Exchange), tried.Outcome == retry.Waits:
		if tried.Level == 0 { // it is due, or no level accepts it
			h.refused.waits(d.DeliveryTag)
		}
		if tried.Outcome == retry.Waits && tried.Level == 0 {
			seen := h.shown(d, reason)
			h.describe(seen).With("error", errorOf(seen)).ErrorContext(context.Background(),
				"no level of the delay accepts the message, which waits; 'dlxctl plan' shows what is missing")
		}
		return h.move(d, h.rules.Again(delayedMessage(d), tried, now))
	default:
		return h.move(d, h.rules.ToUnroutable(failure(d), retry.Refused, reason, now))
	}
}

// Moved records how late a message came that was due, and logs and tells of one that is in the
// unroutable queue now.
func (h *delayHandler) Moved(d amqp091.Delivery, m relay.Move) {
	h.probe.Passed()
	h.refused.over(d.DeliveryTag)
	made, _ := m.Note.(retry.DelayDecision)
	if made.Outcome == retry.Due && made.Timed {
		h.probe.Late(time.Since(made.DueAt))
	}
	if made.Outcome == retry.NotTaken {
		h.probe.NotDelayed(string(made.Cause))
		seen := h.shown(d, made.Error)
		h.describe(seen).With("error", errorOf(seen)).ErrorContext(context.Background(),
			"moved message to the unroutable queue", "unroutable_queue", topology.UnroutableName(h.topology.Name))
		if h.tell != nil {
			about := noticed(m.Message, "", d.RoutingKey)
			about.Alike = string(made.Cause) + ": " + h.alike(made.Error)
			h.tell(notify.Notice{
				Event: "unroutable", Topology: h.topology.Name, MovedTo: topology.UnroutableName(h.topology.Name),
				MessageID: d.MessageId, Messages: 1, Reason: string(made.Cause), Error: made.Error,
			}, about)
		}
	}
}

// shown returns what a log shows of a message with an error, when a line is written.
func (h *delayHandler) shown(d amqp091.Delivery, problem string) func() notify.Shown {
	return sync.OnceValue(func() notify.Shown {
		m := delivered(d)
		m.Error = problem
		return h.show(m)
	})
}

// delivered returns what a log may show of a message as it was delivered.
func delivered(d amqp091.Delivery) notify.Message {
	m := noticed(relay.Republish(d, d.Headers), "", d.RoutingKey)
	m.ID = d.MessageId
	return m
}

// describe returns a logger that names a message.
func (h *delayHandler) describe(seen func() notify.Shown) *slog.Logger {
	return h.trouble.With("delay", h.delay.Name, "message_id", idOf(seen), "routing_key", keyShown(seen))
}
