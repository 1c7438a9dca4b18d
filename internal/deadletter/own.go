package deadletter

import (
	"cmp"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// HeaderParkedFrom names, in the queue of parked messages, the queue from which one was taken.
const HeaderParkedFrom = parkedPrefix + "from"

// parkedPrefix is how the headers of a parked message begin.
const parkedPrefix = deskPrefix + "parked-"

// fromProcessor reports whether the headers of a message are those of a processor.
func fromProcessor(h fields) bool {
	_, counted := topology.Integer(h[topology.HeaderAttempts])
	return h.text(topology.HeaderQueue) != "" && counted
}

// SaysFailure reports whether a message has headers in which a processor or a consumer tells of a
// failure. A new try begins without them.
func SaysFailure(headers map[string]any) bool {
	h := fields(headers)
	return fromProcessor(h) || slices.ContainsFunc([]string{
		topology.HeaderLastFailedAt, topology.HeaderError, topology.HeaderErrorType, topology.HeaderErrorStack,
		topology.HeaderPermanent, topology.HeaderAfter,
	}, h.has)
}

// own reads the headers of the processor.
func (r *reading) own(h fields, exchange, queue string) {
	f := &r.facts
	problem := h.text(topology.HeaderError)
	unroutable := problem != "" && r.known.isUnroutable(h, queue)
	f.FromProcessor = fromProcessor(h) && !r.known.untouched(h, exchange) || unroutable
	if !f.FromProcessor {
		return
	}
	r.candidate(h.text(topology.HeaderQueue), topology.HeaderQueue)
	f.FirstQueue = h.text(topology.HeaderFirstQueue)
	if f.Cause = h.text(topology.HeaderReason); f.Cause == string(topology.ReasonUnknown) {
		f.Cause = ""
	}
	if unroutable { // the error of the consumer gave way to that of the processor
		f.Cause, f.Error = causeUnroutable, problem
	}
	pulled := f.Cause == string(topology.ReasonPulled) // perhaps before its first attempt
	if attempts, ok := topology.Integer(h[topology.HeaderAttempts]); ok && (attempts > 0 || pulled && attempts == 0) {
		f.Attempts = int(attempts)
	}
	first, last := timestamp(h.text(topology.HeaderFirstFailedAt)), timestamp(h.text(topology.HeaderLastFailedAt))
	if first.IsZero() {
		first = last
	}
	r.times(first, last)
	r.tell(publishedTo(h))
	r.past = past(h)
}

// past returns the failures that the processor has noted, the oldest first. Only those of a message
// that went from one work queue to another have their queue.
func past(h fields) []Hop {
	const most = 20 // as many as a processor notes
	list, _ := h[topology.HeaderHistory].([]any)
	var hops []Hop
	for _, v := range list[max(0, len(list)-most):] {
		entry := table(v)
		attempt, ok := topology.Integer(entry[topology.HistoryAttempt])
		if !ok || attempt < 1 {
			continue
		}
		kind, annotated := entry.text(topology.HistoryErrorType), entry.text(topology.HistoryAnnotated)
		hops = append(hops, Hop{
			Queue:  entry.text(topology.HistoryQueue),
			Reason: entry.text(topology.HistoryReason), Count: 1, Time: timestamp(entry.text(topology.HistoryAt)),
			Attempt: int(attempt), ErrorType: cmp.Or(kind, annotated), Annotated: kind == "" && annotated != "",
			Tier: entry.text(topology.HistoryTier),
		})
	}
	for i := range hops[:max(0, len(hops)-1)] {
		if hops[i].early(hops[i+1]) {
			hops[i].Tier = ""
		}
	}
	return hops
}

// early reports whether the next failure came before the tier of a hop was over: the processor had
// an older file, of which the tier has another delay now. RabbitMQ may round times to seconds.
func (h Hop) early(next Hop) bool {
	delay, err := topology.ParseDelay(h.Tier)
	return err == nil && !h.Time.IsZero() && !next.Time.IsZero() && next.Time.Sub(h.Time)+time.Second < delay
}

// publishedTo returns where the publisher sent a message, as the processor or a consumer notes it.
func publishedTo(h fields) told {
	exchange, key := h.text(topology.HeaderExchange), h.text(topology.HeaderRoutingKey)
	return told{exchange: exchange, key: key, addressed: exchange != "" || key != ""}
}

// cameBy returns where the publisher sent a message that came by an exchange with a key. What a
// desk has sent to its queue alone came by the exchange NAME.return, and the desk has noted where
// the publisher sent it.
func (r *reading) cameBy(h fields, exchange, key string) told {
	if noted := publishedTo(h); noted.addressed && r.known.returns(exchange) {
		return noted
	}
	return told{exchange: exchange, key: key, addressed: exchange != "" || key != ""}
}

// consumer reads what a consumer says of its failure. The processor keeps it. Without a backoff no
// processor has seen the message, and only a queue of dlxctl proves that no publisher wrote it:
// elsewhere the texts are shown as those of frameworks are, and decide nothing. Where a consumer
// failed later and said nothing, or the message died in a work queue without a processor, the
// headers are older than its death.
func (r *reading) consumer(h fields, d amqp091.Delivery, queue string) {
	f := &r.facts
	t := told{
		problem: h.text(topology.HeaderError), problemType: h.text(topology.HeaderErrorType),
		stack: h.text(topology.HeaderErrorStack),
	}
	permanent := h[topology.HeaderPermanent] == true
	if f.Cause == causeUnroutable || t.problem+t.problemType+t.stack == "" && !permanent {
		return
	}
	if slices.ContainsFunc(r.later, func(hop Hop) bool {
		return hop.failed() || !f.FromProcessor && r.known.isWork(hop.Queue)
	}) {
		return
	}
	known := r.told
	switch {
	case f.FromProcessor:
	case r.known.isWork(queue):
		return // of its publisher, as yet
	case r.known.isGenerated(queue):
		at := publishedTo(h)
		t.exchange, t.key, t.addressed, known = at.exchange, at.key, at.addressed, true
		t.cause = string(topology.ReasonRejected)
		if permanent {
			t.cause = string(topology.ReasonPermanent)
		}
		if work, addressed := strings.CutPrefix(d.RoutingKey, topology.AddressKey("")); addressed && r.known.isWork(work) {
			t.queue, t.by = work, "its routing key"
		}
	}
	r.tell(t)
	r.told = known // elsewhere the delivery tells where it was published
}

// Problem returns the error with its type in front, unless the error names the type itself.
func (f Facts) Problem() string {
	switch {
	case f.ErrorType == "" || strings.Contains(f.Error, f.ErrorType):
		return f.Error
	case f.Error == "":
		return f.ErrorType
	default:
		return f.ErrorType + ": " + f.Error
	}
}
