package processor

import (
	"context"
	"log/slog"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// handler lets the rules decide, and records what was done.
type handler struct {
	rules    rules
	backoff  string
	topology topology.Compiled
	log      *slog.Logger
	trouble  *slog.Logger     // log, which limits lines of the same text
	probe    *monitor.Probe   // nil: nothing is recorded
	notifier *notify.Notifier // nil: no notices are sent
	show     func(notify.Message) notify.Shown
}

// Move decides about a failed message.
func (h *handler) Move(d amqp091.Delivery) relay.Move {
	h.probe.Taken()
	return move(h.rules.decide(d, time.Now()))
}

// Refused moves a message that the broker did not accept to the unroutable queue. That
// queue accepts everything; if it does not, that is logged, and the message is
// published there anyway, with the error that it had.
func (h *handler) Refused(d amqp091.Delivery, m relay.Move, reason string) relay.Move {
	tried, _ := m.Note.(decision)
	h.probe.Active()
	if tried.Outcome == unroutable {
		describe(h.trouble, tried).ErrorContext(context.Background(),
			"unroutable queue does not accept the message, which waits; 'dlxctl plan' shows what is missing",
			"unroutable_queue", topology.UnroutableName(h.topology.Name), "error", reason)
		return m
	}
	tried.Cause = refused
	return move(h.rules.toUnroutable(d, tried, reason, time.Now()))
}

func move(d decision) relay.Move {
	return relay.Move{Exchange: d.Exchange, Key: d.Key, Message: d.Message, Note: d}
}

// Moved records a message whose copy is confirmed. It logs what is no longer retried:
// one line for each dead letter, with its owner, and never the body.
func (h *handler) Moved(_ amqp091.Delivery, m relay.Move) {
	d, _ := m.Note.(decision)
	ctx := context.Background() // the message is moved, whatever ends now
	switch d.Outcome {
	case deadLettered:
		h.probe.DeadLettered(d.Queue, d.Reason, d.At)
		work := h.rules.workQueue(d.Queue)
		h.notify("dead_letter", d, work.DeadLetterQueue)
		describe(h.log, d).WarnContext(ctx, "dead-lettered message",
			"dead_letter_queue", work.DeadLetterQueue, "owner", work.Owner, "severity", work.Severity)
	case unroutable:
		h.probe.Unroutable(d.Queue, string(d.Cause), d.At)
		h.notify("unroutable", d, topology.UnroutableName(h.topology.Name))
		describe(h.trouble, d).ErrorContext(ctx, "moved message to the unroutable queue",
			"unroutable_queue", topology.UnroutableName(h.topology.Name), "error", d.Error)
	case retried:
		h.probe.Retried(d.Queue, d.Tier.Delay, d.At)
		if h.log.Enabled(ctx, slog.LevelDebug) {
			describe(h.log, d).DebugContext(ctx, "retried message",
				"tier", topology.FormatDelay(d.Tier.Delay), "backoff", h.backoff)
		}
	}
}

// notify sends a notice of a message that is no longer retried. It does not wait, and
// what becomes of the notice changes nothing for the message.
func (h *handler) notify(event string, d decision, destination string) {
	if h.notifier == nil {
		return
	}
	work, reason := h.rules.workQueue(d.Queue), monitor.ReasonLabel(d.Reason)
	if d.Cause != "" {
		work, reason = h.rules.workQueues[d.Queue], string(d.Cause) // the zero value for a name that a message made up
	}
	headers := d.Message.Headers
	key, _ := headers[headerRoutingKey].(string)
	h.notifier.NotifyShown(notify.Notice{
		Event: event, Topology: h.topology.Name, Queue: d.Queue, MovedTo: destination, MessageID: d.Message.MessageId,
		Reason: reason, Attempts: d.Attempts, FirstFailure: d.FirstFailedAt,
		Owner: work.Owner, Severity: work.Severity, Error: d.Error,
	}, notify.Message{
		Queue: d.Queue, Key: key, ContentType: d.Message.ContentType, ContentEncoding: d.Message.ContentEncoding,
		Type: d.Message.Type, Headers: headers, Body: d.Message.Body,
	}, h.show)
}

// describe returns a logger that names a message.
func describe(log *slog.Logger, d decision) *slog.Logger {
	return log.With("queue", d.Queue, "message_id", d.Message.MessageId, "reason", string(d.Reason),
		"attempts", d.Attempts, "first_failure", d.FirstFailedAt)
}
