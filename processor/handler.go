package processor

import (
	"context"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/notify"
	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// handler lets the rules decide, and tells what was done.
type handler struct {
	rules    Rules
	backoff  string
	topology topology.Topology
	log      *slog.Logger
	trouble  *slog.Logger // says the same only so often
	probe    *probe
	notifier *notify.Notifier // nil: nobody is told
}

// Move decides about a failed message.
func (h *handler) Move(d amqp.Delivery) relay.Move {
	h.probe.took()
	return move(h.rules.Decide(d, time.Now()))
}

// Refused parks a message that its place would not take. The unroutable queue
// takes everything; if it does not, that is said, and the message goes there all
// the same, for the reason that it had.
func (h *handler) Refused(d amqp.Delivery, m relay.Move, reason string) relay.Move {
	tried, _ := m.Note.(Decision)
	h.probe.touch()
	if tried.Outcome == Parked {
		describe(h.trouble, tried).ErrorContext(context.Background(), "the unroutable queue does not take the message, which waits; 'dlxctl plan' shows what is missing",
			"unroutable_queue", topology.UnroutableName(h.topology.Name), "error", reason)
		return m
	}
	tried.Cause = Refused
	return move(h.rules.Park(d, tried, reason, time.Now()))
}

func move(d Decision) relay.Move {
	return relay.Move{Exchange: d.Exchange, Key: d.Key, Message: d.Message, Note: d}
}

// Moved logs what is no longer retried: one line for each dead letter, with
// whom to call, and never the body.
func (h *handler) Moved(_ amqp.Delivery, m relay.Move) {
	d, _ := m.Note.(Decision)
	h.probe.moved(d)
	ctx := context.Background() // the message is moved, whatever ends now
	switch d.Outcome {
	case DeadLettered:
		work := h.probe.work(d.Queue)
		h.notify("dead_letter", d, work.Dead)
		describe(h.log, d).WarnContext(ctx, "dead letter", "dead_letter_queue", work.Dead, "owner", work.Owner, "severity", work.Severity)
	case Parked:
		h.notify("unroutable", d, topology.UnroutableName(h.topology.Name))
		describe(h.trouble, d).ErrorContext(ctx, "parked, as it fits nowhere", "unroutable_queue", topology.UnroutableName(h.topology.Name), "error", d.Error)
	case Retried:
		if h.log.Enabled(ctx, slog.LevelDebug) {
			describe(h.log, d).DebugContext(ctx, "retry", "tier", topology.FormatDelay(d.Step.Delay), "backoff", h.backoff)
		}
	}
}

// notify tells of a message that is no longer retried. It does not wait, and what
// becomes of the notice changes nothing for the message.
func (h *handler) notify(event string, d Decision, restsIn string) {
	if h.notifier == nil {
		return
	}
	work, reason := h.probe.work(d.Queue), reasonLabel(d.Reason)
	if d.Cause != "" {
		work, reason = h.probe.works[d.Queue], string(d.Cause) // none for a name that a message made up
	}
	h.notifier.Notify(notify.Notice{
		Event: event, Topology: h.topology.Name, Queue: d.Queue, RestsIn: restsIn, MessageID: d.Message.MessageId,
		Reason: reason, Attempts: d.Attempts, FirstFailure: d.FirstFailedAt,
		Owner: work.Owner, Severity: work.Severity, Error: d.Error,
	}, d.Message.Body)
}

// describe gives a logger that names a message.
func describe(log *slog.Logger, d Decision) *slog.Logger {
	return log.With("queue", d.Queue, "message_id", d.Message.MessageId, "reason", string(d.Reason),
		"attempts", d.Attempts, "first_failure", d.FirstFailedAt)
}
