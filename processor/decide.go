package processor

import (
	"fmt"
	"maps"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// Outcome is what becomes of a failed message. There is no zero outcome.
type Outcome string

// The outcomes.
const (
	Retried      Outcome = "retried"       // it waits in a tier
	DeadLettered Outcome = "dead-lettered" // it rests in its dead-letter queue
	Parked       Outcome = "parked"        // it rests in the unroutable queue
)

// Cause is why a message is parked, in a word for metrics.
type Cause string

// The causes.
const (
	NoAddress       Cause = "no_address"        // its routing key names no queue
	UnknownQueue    Cause = "unknown_queue"     // the topology and the virtual host have no such queue
	HeadersTooLarge Cause = "headers_too_large" // with its history they would not fit a frame
	Refused         Cause = "refused"           // the broker would not take it, again and again
)

// Decision says what becomes of a failed message, and why.
type Decision struct {
	Outcome  Outcome
	Exchange string
	Key      string
	Message  amqp.Publishing

	// Queue is the work queue that the message failed in. Empty if it names none.
	Queue string
	// Step is where it waits. Zero unless it is retried.
	Step topology.Step
	// Reason is why the broker dead-lettered it the last time.
	Reason topology.Reason
	// Attempts is how often it was delivered to its queue and failed.
	Attempts int64
	// FirstFailedAt is the time of the first failure, as in the header.
	FirstFailedAt string
	// Error is why it is parked, and Cause the same in a word. Empty if it is not.
	Error string
	Cause Cause
	// At is when it was decided.
	At time.Time
}

// Headers of our own. They begin with retry-, so that a headers exchange could
// be bound by them; names that begin with x- it would skip.
const (
	headerQueue         = "retry-queue"
	headerExchange      = "retry-exchange"
	headerRoutingKey    = "retry-routing-key"
	headerFirstFailedAt = "retry-first-failed-at"
	headerLastFailedAt  = "retry-last-failed-at"
	headerReason        = "retry-reason"
	headerAttempts      = "retry-attempts"
	headerError         = "retry-error"
	headerCount         = "retry-original-count"
	headerCC            = "retry-cc"
	headerBCC           = "retry-bcc"
	headerUserID        = "retry-user-id"
	headerExpiration    = "retry-expiration"

	headerDeath = "x-death"
	// By these a publisher names more routing keys. A value that is no list, as
	// messages of other protocols may have it, the broker refuses.
	cc  = "CC"
	bcc = "BCC"
	// timeFormat is RFC 3339 with milliseconds; times are in UTC.
	timeFormat = "2006-01-02T15:04:05.000Z"
	// brokersRoom is how many bytes are left for what the broker adds on the way
	// back: x-death, x-first-death-*, x-last-death-* and the counts of deliveries,
	// some 2,400 bytes where queues, exchanges and keys have names of 255. It does
	// not look at the size, and a consumer that gets more than a frame holds loses
	// its connection, again and again.
	brokersRoom = 2560
	// absurdCount is beyond any count that a topology can bring about.
	absurdCount = 1_000_000
	// longestKey is how many bytes a routing key may have. A header may be longer,
	// and the library ends the connection over a key that is: the message would come
	// again, for ever.
	longestKey = 255
)

// ownHeaders are the headers that a first failure replaces or takes away: what
// a publisher set under these names means nothing.
func ownHeaders() []string {
	return []string{
		headerQueue, headerExchange, headerRoutingKey, headerFirstFailedAt, headerLastFailedAt, headerReason,
		headerAttempts, headerError, headerCount, headerCC, headerBCC, headerUserID, headerExpiration,
	}
}

// Rules decide about the messages of one failed queue. They are read only.
type Rules struct {
	topology topology.Topology
	loop     topology.Loop
	works    map[string]bool
	frameMax int
	// exists reports whether the virtual host has a queue that the topology does not
	// know. Nil: there is none.
	exists func(queue string) bool
}

// NewRules gives the rules of a loop of t. frameMax is the size of the largest
// content header that the broker takes, in bytes; zero is any.
func NewRules(t topology.Topology, l topology.Loop, frameMax int) Rules {
	r := Rules{topology: t, loop: l, works: make(map[string]bool, len(t.Works)), frameMax: frameMax}
	for _, w := range t.Works {
		r.works[w.Queue] = true
	}
	return r
}

// Including gives rules by which queues that the topology does not know are retried
// too, by the rules of the loop, if exists says so: they were bound to its exchanges
// by a newer file than this one.
func (r Rules) Including(exists func(queue string) bool) Rules {
	r.exists = exists
	return r
}

// Decide says what becomes of a message from the failed queue. It leaves d as it is,
// and reads no clock; but for Including it is a pure function.
func (r Rules) Decide(d amqp.Delivery, now time.Time) Decision {
	origin, addressed := strings.CutPrefix(d.RoutingKey, topology.AddressKey(""))
	f := r.read(d, origin, now)
	switch {
	case !addressed || origin == "":
		return r.Park(d, Decision{Cause: NoAddress}, fmt.Sprintf("the routing key %q names no work queue", d.RoutingKey), now)
	case !r.works[origin] && (r.exists == nil || !r.exists(origin)):
		return r.Park(d, Decision{Queue: origin, Reason: f.reason, Cause: UnknownQueue}, fmt.Sprintf("the topology %q has no work queue %q", r.topology.Name, origin), now)
	}
	out := Decision{
		Outcome: DeadLettered, Exchange: r.loop.Exchange, Queue: origin, Reason: f.reason,
		Attempts: f.attempt, FirstFailedAt: f.first, At: now,
	}
	count := topology.DeadCount
	if f.attempt <= int64(len(r.loop.Steps)) && r.loop.Retries(f.reason) {
		out.Outcome, out.Step, count = Retried, r.loop.Steps[f.attempt-1], f.attempt
	}
	headers := f.headers(r, d, now)
	// As an int32: pika reads an int64 as unsigned, and -1 as 18446744073709551615.
	// Bindings match an integer of any width. No ladder is as long as that.
	headers[r.topology.CountHeader] = int32(count) //nolint:gosec // at most the number of steps
	out.Key = address(headers, f.key, origin, f.known)
	out.Message = publishing(d, headers)
	if size := relay.HeaderSize(out.Message); r.frameMax > 0 && size+brokersRoom > r.frameMax {
		out.Cause = HeadersTooLarge
		return r.Park(d, out, fmt.Sprintf("its headers would have %d bytes, and the broker adds its own: more than the %d that fit a frame", size, r.frameMax), now)
	}
	return out
}

// address gives the routing key to publish with, and sets CC. The message keeps
// the publisher's key, and CC leads it back to its queue. A publisher's key that
// looks like an address could lead it to another queue as well, and one that is too
// long to be a key nobody published with: such a message travels under the address
// of its own queue alone.
func address(headers amqp.Table, key, origin string, known bool) string {
	own := topology.AddressKey(origin)
	unaddressed(headers)
	if !known || len(key) > longestKey || strings.HasPrefix(key, topology.AddressKey("")) {
		return own
	}
	headers[cc] = []any{own}
	return key
}

// unaddressed takes away the headers by which the broker would route the message
// elsewhere too, or refuse it.
func unaddressed(headers amqp.Table) {
	delete(headers, cc)
	delete(headers, bcc)
}

// keepAddresses notes what a publisher had set in these headers.
func keepAddresses(h amqp.Table, d amqp.Delivery) {
	if v, ok := d.Headers[cc]; ok {
		h[headerCC] = v
	}
	if v, ok := d.Headers[bcc]; ok {
		h[headerBCC] = v
	}
}

// failure is what a message tells about how it failed.
type failure struct {
	origin  string
	reason  topology.Reason
	attempt int64
	trusted bool // it has been through a retry queue of ours; its own headers hold
	// exchange and key are where the publisher sent it; known says whether the
	// message tells that at all.
	exchange string
	key      string
	known    bool
	cc       []any // what else the publisher addressed it to
	first    string
	// expiration is what the publisher had set, which the broker has taken away.
	expiration string
}

// read finds out how d failed in the queue origin.
func (r Rules) read(d amqp.Delivery, origin string, now time.Time) failure {
	f := failure{origin: origin, reason: topology.ReasonUnknown, attempt: 1, first: now.UTC().Format(timeFormat)}
	retried := false
	for _, death := range deaths(d.Headers) {
		queue, _ := death["queue"].(string)
		retried = retried || topology.IsRetryQueueName(r.topology.Name, queue)
		if queue != origin || f.known {
			continue
		}
		f.known = true // the newest is the first
		if reason, ok := death["reason"].(string); ok {
			f.reason = topology.Reason(reason)
		}
		f.exchange, _ = death["exchange"].(string)
		f.expiration, _ = death["original-expiration"].(string)
		if keys, _ := death["routing-keys"].([]any); len(keys) > 0 {
			f.key, _ = keys[0].(string)
			f.cc = keys[1:]
		}
	}
	if list, ok := d.Headers[cc].([]any); ok {
		f.cc = list
	}
	count, ok := integer(d.Headers[r.topology.CountHeader])
	f.trusted = ok && count > 0 && count <= absurdCount && retried && d.Headers[headerQueue] == origin
	if f.trusted {
		f.attempt = count + 1
		if first, ok := d.Headers[headerFirstFailedAt].(string); ok {
			f.first = first
		}
		if key, ok := d.Headers[headerRoutingKey].(string); ok && f.known && len(key) <= longestKey {
			f.key = key
		}
	}
	return f
}

// headers gives the headers of d without the broker's own, and with the history.
func (f failure) headers(r Rules, d amqp.Delivery, now time.Time) amqp.Table {
	h := stripped(d.Headers)
	delete(h, headerError)
	if !f.trusted {
		f.begin(h, r.topology.CountHeader, d)
	}
	if d.UserId != "" {
		h[headerUserID] = d.UserId
	}
	if d.Expiration != "" {
		h[headerExpiration] = d.Expiration
	} else if !f.trusted && f.expiration != "" {
		h[headerExpiration] = f.expiration
	}
	h[headerReason] = string(f.reason)
	h[headerAttempts] = f.attempt
	h[headerLastFailedAt] = now.UTC().Format(timeFormat)
	return h
}

// begin sets what a first failure sets, in place of whatever the publisher had
// under these names.
func (f failure) begin(h amqp.Table, countHeader string, d amqp.Delivery) {
	own := ownHeaders()
	for _, name := range own {
		delete(h, name)
	}
	if v, ok := d.Headers[countHeader]; ok {
		h[headerCount] = v
	}
	if len(f.cc) > 0 { // from x-death, which has it even where the broker took the header away
		h[headerCC] = f.cc
	}
	keepAddresses(h, d)
	h[headerQueue] = f.origin
	h[headerExchange] = f.exchange
	h[headerRoutingKey] = f.key
	h[headerFirstFailedAt] = f.first
}

// Park gives the decision that puts d into the unroutable queue, as it is but
// for the reason. tried is what was decided before, if anything was, with the
// cause.
func (r Rules) Park(d amqp.Delivery, tried Decision, why string, now time.Time) Decision {
	out := tried
	out.Outcome, out.Error, out.Step, out.At = Parked, why, topology.Step{}, now
	out.Exchange, out.Key = topology.UnroutableName(r.topology.Name), d.RoutingKey
	h := stripped(d.Headers)
	unaddressed(h)
	keepAddresses(h, d)
	h[headerError] = why
	h[headerLastFailedAt] = now.UTC().Format(timeFormat)
	if out.Reason != "" {
		h[headerReason] = string(out.Reason)
	}
	if d.UserId != "" {
		h[headerUserID] = d.UserId
	}
	if d.Expiration != "" {
		h[headerExpiration] = d.Expiration
	}
	out.Message = publishing(d, h)
	// No room for the reason either: the message matters more than its history. What
	// CC and BCC held comes last, and may have to go too: under its own name it fitted,
	// and ours are longer.
	for _, name := range []string{headerError, headerLastFailedAt, headerReason, headerExpiration, headerUserID, headerBCC, headerCC} {
		if r.frameMax == 0 || relay.HeaderSize(out.Message) <= r.frameMax {
			break
		}
		delete(h, name)
	}
	return out
}

// publishing gives d again with other headers. It has no user-id, since the
// broker takes that from its own user alone, and no expiration, since it would
// expire where it must rest; both stand in headers.
func publishing(d amqp.Delivery, h amqp.Table) amqp.Publishing {
	return amqp.Publishing{
		Headers: h, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: d.DeliveryMode, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type,
		AppId: d.AppId, Body: d.Body,
	}
}

// stripped gives a copy of h without what the broker writes about deaths and
// deliveries. Kept, it would make RabbitMQ before 4.0 drop the message as a
// cycle, and it would claim deaths that are not this message's.
func stripped(h amqp.Table) amqp.Table {
	out := maps.Clone(h)
	if out == nil {
		out = amqp.Table{}
	}
	maps.DeleteFunc(out, func(name string, _ any) bool {
		return name == headerDeath || name == "x-delivery-count" || name == "x-acquired-count" ||
			strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
	})
	return out
}

// deaths gives the entries of x-death, the newest first.
func deaths(h amqp.Table) []amqp.Table {
	list, _ := h[headerDeath].([]any)
	out := make([]amqp.Table, 0, len(list))
	for _, v := range list {
		if death, ok := v.(amqp.Table); ok {
			out = append(out, death)
		}
	}
	return out
}

// integer gives an integer of any width.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	default:
		return 0, false
	}
}
