package processor

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// closedTime is for how long nothing waits for the end of an outage once the queue for it did not
// take a message.
const closedTime = time.Minute

// longestSaid is how many columns of an error a line of the log has.
const longestSaid = 200

// handler lets the rules decide, and records what was done.
type handler struct {
	rules    retry.Rules
	knowing  retry.Rules // rules, which know about outages
	backoff  topology.Backoff
	topology topology.Compiled
	log      *slog.Logger
	trouble  *slog.Logger                        // log, which limits lines of the same text
	dead     *slog.Logger                        // log, which limits lines about dead letters of the same queue
	probe    *monitor.Probe                      // nil: nothing is recorded
	tell     func(notify.Notice, notify.Message) // nil: no notices are sent
	alike    func(problem string) string         // equal for errors that differ in numbers alone
	show     func(notify.Message) notify.Shown
	outages  *outages                   // nil: there are none
	absent   func(exchange string) bool // nothing can be published to it
	closed   time.Time                  // until when nothing waits for the end of an outage: see closedTime
	refused  *refusals
}

// Move decides about a failed message.
func (h *handler) Move(d amqp091.Delivery) relay.Move {
	h.probe.Taken()
	made := decide(h.knowing, d, time.Now())
	h.outages.failed(made.Decision, h.backoff)
	if h.waits(made) {
		// The broker reads the time of each message in milliseconds. Nothing is lost by it: the
		// exchange leads to the queue that dead-letters what expires, and nowhere else. A message that
		// this queue does not take comes to Refused, as its copy expires nowhere.
		made.Message.Expiration = strconv.FormatInt(h.outages.wait(made.Decision, made.At).Milliseconds(), 10)
	}
	return move(made)
}

// state returns what is known about a work queue, as [retry.Rules.Knowing] says. While nothing can
// wait, none is in outage.
func (h *handler) state(queue string) (retry.State, time.Time) {
	if time.Now().Before(h.closed) || h.absent(h.backoff.Outage.Exchange()) {
		return retry.Working, time.Time{}
	}
	return h.outages.state(queue)
}

// waits reports whether a message waits for the end of an outage.
func (h *handler) waits(d decision) bool {
	return h.outages != nil && d.Exchange == h.backoff.Outage.Exchange()
}

// Refused moves a message that the broker did not accept to the unroutable queue. That
// queue accepts everything; if it does not, that is logged, and the message is
// published there anyway, with the error that it had. A message that cannot wait for the end
// of an outage, as another file has removed the queue for it, is decided without.
func (h *handler) Refused(d amqp091.Delivery, m relay.Move, reason string) relay.Move {
	tried, _ := m.Note.(decision)
	h.probe.Active()
	if h.waits(tried) {
		h.closed = time.Now().Add(closedTime)
		return move(decide(h.rules, d, time.Now()))
	}
	if tried.Outcome == retry.Unroutable {
		seen := h.shown(tried, "", reason)
		h.refused.again(h.describe(h.trouble, tried, seen), d.DeliveryTag, errorOf(seen))
		return m
	}
	tried.Cause = retry.Refused
	return move(decided(d, h.rules.ToUnroutable(failure(d), tried.Decision, reason, time.Now())))
}

// decision is what becomes of a failed message, and the message to publish.
type decision struct {
	retry.Decision
	Message amqp091.Publishing
}

// decide lets the rules decide about a failed message, and leaves it as it is.
func decide(rules retry.Rules, d amqp091.Delivery, now time.Time) decision {
	return decided(d, rules.Decide(failure(d), now))
}

// failure returns what the rules look at.
func failure(d amqp091.Delivery) retry.Message {
	return retry.Message{
		Exchange: d.Exchange, Key: d.RoutingKey, Headers: d.Headers, UserID: d.UserId, Expiration: d.Expiration,
		Size:  func(headers map[string]any) int { return relay.HeaderSize(relay.Republish(d, headers)) },
		Table: func(t map[string]any) any { return amqp091.Table(t) },
	}
}

// decided returns a decision with the message to publish.
func decided(d amqp091.Delivery, made retry.Decision) decision {
	return decision{Decision: made, Message: relay.Republish(d, made.Headers)}
}

func move(d decision) relay.Move {
	return relay.Move{
		Exchange: d.Exchange, Key: d.Key, Message: d.Message, Drop: d.Outcome == retry.Dropped, Note: d,
	}
}

// Moved records a message whose copy is confirmed, or that is dropped. It logs what is no longer
// retried: one line for each dead letter, unless there are too many, with its owner, and never the
// body.
func (h *handler) Moved(delivery amqp091.Delivery, m relay.Move) {
	d, _ := m.Note.(decision)
	h.refused.over(delivery.DeliveryTag)
	ctx := context.Background() // the message is moved, whatever ends now
	if d.Outcome != retry.Unroutable && h.rules.Covers(d.Queue) {
		h.probe.Adopt(h.rules.WorkQueue(d.Queue))
	}
	switch d.Outcome {
	case retry.DeadLettered:
		work := h.rules.WorkQueue(d.Queue)
		work.Severity = retry.Severity(work, d.Headers)
		h.probe.DeadLettered(d.Queue, work.Severity, d.Reason, d.At)
		h.notify("dead_letter", d, work, work.DeadLetterQueue)
		seen := h.shown(d, d.Said.Type, d.Said.Error)
		h.describe(h.dead, d, seen).With(h.said(d, seen)...).WarnContext(ctx, "dead-lettered message",
			"dead_letter_queue", work.DeadLetterQueue, "owner", work.Owner, "severity", work.Severity)
	case retry.Unroutable:
		work := topology.WorkQueue{}
		if h.rules.Names(d.Queue) { // else a message made the name up
			work = h.rules.WorkQueue(d.Queue)
			work.Severity = retry.Severity(work, d.Headers)
		}
		h.probe.Unroutable(d.Queue, work.Severity, string(d.Cause), d.At)
		h.notify("unroutable", d, work, topology.UnroutableName(h.topology.Name))
		seen := h.shown(d, "", d.Error)
		h.describe(h.trouble, d, seen).With("error", errorOf(seen)).ErrorContext(ctx,
			"moved message to the unroutable queue", "unroutable_queue", topology.UnroutableName(h.topology.Name))
	case retry.Dropped:
		h.probe.Dropped(d.Queue)
		if h.log.Enabled(ctx, slog.LevelDebug) {
			h.describe(h.log, d, h.shown(d, "", "")).DebugContext(ctx,
				"dropped message, as its time is over", "backoff", h.backoff.Name)
		}
	case retry.Retried:
		if h.waits(d) {
			h.probe.Outlasts(d.Queue, d.At)
		} else {
			h.probe.Retried(d.Queue, d.Tier.Delay, d.At)
		}
		if d.Said.Unread != "" {
			seen := h.shown(d, d.Said.Type, d.Said.Error)
			h.describe(h.trouble, d, seen).With(h.said(d, seen)...).WarnContext(ctx, "ignored a retry-after that is not a time")
		}
		if h.log.Enabled(ctx, slog.LevelDebug) {
			h.describe(h.log, d, h.shown(d, "", "")).DebugContext(ctx, "retried message",
				"tier", text.Duration(d.Tier.Delay), "backoff", h.backoff.Name)
		}
	}
}

// notify sends a notice of a message that is no longer retried, with the severity that work has. It
// does not wait, and what becomes of the notice changes nothing for the message.
func (h *handler) notify(event string, d decision, work topology.WorkQueue, destination string) {
	if h.tell == nil {
		return
	}
	reason := monitor.ReasonLabel(d.Reason)
	if d.Cause != "" {
		reason = string(d.Cause)
	}
	problem, kind := d.Said.Error, d.Said.Type
	if d.Error != "" { // of an unroutable message that of the processor
		problem, kind = d.Error, ""
	}
	m := noticed(d.Message, d.Queue, keyOf(d))
	m.Alike = cmp.Or(kind, reason) + ": " + h.alike(problem)
	h.tell(notify.Notice{
		Event: event, Topology: h.topology.Name, Queue: d.Queue, MovedTo: destination, MessageID: d.Message.MessageId,
		Messages: 1, Reason: reason, Attempts: d.Attempts, FirstFailure: d.FirstFailedAt,
		Owner: work.Owner, Severity: work.Severity, Error: problem, ErrorType: kind,
	}, m)
}

// keyOf returns the routing key of the publisher.
func keyOf(d decision) string {
	headers := d.Headers
	key, _ := headers[topology.HeaderRoutingKey].(string)
	return key
}

// noticed returns what a notice or a log may show of a message.
func noticed(m amqp091.Publishing, queue, key string) notify.Message {
	return notify.Message{
		Queue: queue, Key: key, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		Type: m.Type, Headers: m.Headers, Body: m.Body,
	}
}

// said returns the beginning of what the consumer said about the failure, for a log, masked by the
// rules of its queue. What may be the publisher's has names of its own.
func (h *handler) said(d decision, seen func() notify.Shown) []any {
	var out []any
	if d.Said.Error != "" || d.Said.Type != "" || d.Said.Unread != "" {
		out = append(out, "error_type", typeOf(seen), "error", beginOf(seen))
	}
	if d.Annotated != (retry.Annotated{}) {
		annotated := h.shown(d, d.Annotated.Type, d.Annotated.Error)
		out = append(out, "annotated_error_type", typeOf(annotated), "annotated_error", beginOf(annotated))
	}
	if d.Said.Unread != "" {
		out = append(out, "retry_after_unread", beginOf(h.shown(d, "", d.Said.Unread)))
	}
	return out
}

// begin returns the beginning of the first line of an error.
func begin(problem string) string {
	line, _, _ := strings.Cut(problem, "\n")
	return text.Fit(line, longestSaid)
}

// shown returns what a log shows of a message with an error and its type. It masks once, when a
// line is written: rules may need the body.
func (h *handler) shown(d decision, kind, problem string) func() notify.Shown {
	return sync.OnceValue(func() notify.Shown {
		m := noticed(d.Message, d.Queue, keyOf(d))
		m.ID, m.Error, m.ErrorType = d.Message.MessageId, problem, kind
		return h.show(m)
	})
}

// masked is a text of the log that is masked when its line is written.
type masked func() string

// LogValue masks the text.
func (m masked) LogValue() slog.Value { return slog.StringValue(m()) }

func errorOf(seen func() notify.Shown) masked { return func() string { return seen().Error } }

func beginOf(seen func() notify.Shown) masked { return func() string { return begin(seen().Error) } }

func typeOf(seen func() notify.Shown) masked { return func() string { return seen().ErrorType } }

func keyShown(seen func() notify.Shown) masked { return func() string { return seen().Key } }

func idOf(seen func() notify.Shown) masked { return func() string { return seen().ID } }

// describe returns a logger that names a message.
func (h *handler) describe(log *slog.Logger, d decision, seen func() notify.Shown) *slog.Logger {
	var queue any = d.Queue
	if d.Outcome == retry.Unroutable && !h.rules.Names(d.Queue) { // a message may have made it up
		queue = masked(func() string { return seen().Queue })
	}
	return log.With("queue", queue, "message_id", idOf(seen),
		"reason", string(d.Reason), "attempts", d.Attempts, "first_failure", d.FirstFailedAt)
}
