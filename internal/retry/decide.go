// Package retry decides what becomes of a failed message: in which tier it waits, or whether it
// is a dead letter, and which headers it gets.
//
// The package is pure. The processor does what it decides, and trace shows it beforehand. It does
// not know an AMQP library: headers are values of any types, as the library of the caller has
// them.
package retry

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// Message is what decides about a message from a failed queue.
type Message struct {
	// Exchange and Key are the exchange and the routing key with which it came to the failed queue.
	// Without a retry exchange in Exchange, the message has failed.
	Exchange, Key string
	// Headers are never changed in place.
	Headers map[string]any
	// UserID and Expiration are the properties of these names.
	UserID, Expiration string
	// Texts are the other properties that are texts, and Timestamp is the one of this name. Only the
	// rules of a delay with a timer look at them.
	Texts     []string
	Timestamp time.Time
	// Size returns how large the content header of the message is with other headers, in bytes.
	// Nil: any size fits.
	Size func(headers map[string]any) int
	// Table returns a table inside a header in the type of the library. Nil: as it is.
	Table func(map[string]any) any

	pulled bool // a person took it out of its work queue, see [Rules.Pull]
}

// Outcome is what becomes of a failed message. There is no zero outcome.
type Outcome string

// The outcomes.
const (
	Retried      Outcome = "retried"       // it waits in a tier
	DeadLettered Outcome = "dead-lettered" // it stays in its dead-letter queue
	Unroutable   Outcome = "unroutable"    // it stays in the unroutable queue
	Dropped      Outcome = "dropped"       // it is deleted, as its time is over and the file says so
)

// Cause is why a message goes to the unroutable queue, in a word for metrics.
type Cause string

// The causes.
const (
	NoAddress       Cause = "no_address"        // its routing key names no queue
	UnknownQueue    Cause = "unknown_queue"     // the topology and the virtual host have no such queue
	HeadersTooLarge Cause = "headers_too_large" // with its history they would not fit a frame
	Refused         Cause = "refused"           // the broker did not accept it, again and again
)

// Decision says what becomes of a failed message, and why.
type Decision struct {
	Outcome Outcome
	// Exchange and Key are where the processor publishes it, and Headers those that it then has. One
	// that is dropped is published nowhere.
	Exchange string
	Key      string
	Headers  map[string]any

	// Queue is the work queue that the message failed in. Empty if it names none.
	Queue string
	// Tier is where it waits. Zero unless it is retried.
	Tier topology.Tier
	// Wait is how long it waits there; with a rate, for the end of an outage maybe longer. Zero unless
	// it is retried.
	Wait time.Duration
	// Reason is why the broker dead-lettered it the last time.
	Reason topology.Reason
	// Attempts is how often it was delivered to its queue and failed.
	Attempts int64
	// FirstFailedAt is the time of the first failure, as in the header.
	FirstFailedAt string
	// Said is what the consumer said about the failure.
	Said Said
	// Annotated is what its consumer or its publisher says.
	Annotated Annotated
	// Evidence is what the message tells about its work queue.
	Evidence Evidence
	// Error is why it goes to the unroutable queue, and Cause the same in a word.
	// Empty if it does not go there.
	Error string
	Cause Cause
	// At is the time of the decision.
	At time.Time
}

const (
	// brokerHeaders is how many bytes are left for what the broker adds when the
	// message returns: x-death, x-first-death-*, x-last-death-* and the counts of
	// deliveries, some 2,400 bytes where queues, exchanges and keys have names of 255.
	// The broker does not check the size, and a consumer that gets more than a frame
	// holds loses its connection, again and again.
	brokerHeaders = 2560
	// countHeaders is how many bytes are left in the unroutable queue for what the broker adds when
	// it delivers a message: x-delivery-count and x-acquired-count, 26 bytes each. RabbitMQ 3.10
	// adds the first to each answer to basic.get on a quorum queue (TestSoak).
	countHeaders = 52
	// absurdCount is more than any count that a topology can bring about.
	absurdCount = 1_000_000
	// longestKey is how many bytes a routing key may have. A header may be longer,
	// and the library ends the connection over a key that is: the message would be
	// delivered again and again, without end.
	longestKey = 255
)

// Rules decide about the messages of one failed queue. They are read only.
type Rules struct {
	topology   topology.Compiled
	backoff    topology.Backoff
	workQueues map[string]topology.WorkQueue
	matches    []match
	frameMax   int
	// exists reports whether the virtual host has a queue that the topology does not
	// name. Nil: there is none.
	exists func(queue string) bool
	// unsure is how long statistics must show no outage before a message is dead.
	unsure time.Duration
	// state is what is known about outages of work queues, and since when there have been statistics
	// that show none. Nil: there are none.
	state func(queue string) (State, time.Time)
	// queued is what Behind has set.
	queued func() time.Duration
}

// NewRules returns the rules of a backoff of t. frameMax is the size of the largest
// content header that the broker accepts, in bytes; zero means any size.
func NewRules(t topology.Compiled, b topology.Backoff, frameMax int) Rules {
	queues := make(map[string]topology.WorkQueue, len(t.WorkQueues))
	r := Rules{topology: t, backoff: b, workQueues: queues, frameMax: frameMax}
	for _, w := range t.WorkQueues {
		r.workQueues[w.Name] = w
	}
	r.matches = matchesOf(t)
	return r
}

// Including returns rules that also retry queues which the topology does not name, if
// exists reports them: a newer file than this one bound them to the exchanges of the
// backoff.
func (r Rules) Including(exists func(queue string) bool) Rules {
	r.exists = exists
	return r
}

// WorkQueue returns a work queue, and a substitute for one that the file does not name.
func (r Rules) WorkQueue(queue string) topology.WorkQueue {
	if w, ok := r.workQueues[queue]; ok {
		return w
	}
	if m, ok := r.covering(queue); ok {
		return m.WorkQueue(queue)
	}
	return topology.WorkQueue{Name: queue, Severity: topology.SeverityTicket}
}

// Names reports whether the topology names that work queue, or a match covers its name. A queue of
// such a name may not exist.
func (r Rules) Names(queue string) bool {
	_, named := r.workQueues[queue]
	return named || r.Covers(queue)
}

// knows reports whether messages of that queue are retried.
func (r Rules) knows(queue string) bool {
	_, named := r.workQueues[queue]
	return named || r.exists != nil && topology.Addressable(queue) && r.exists(queue)
}

// Decide says what becomes of a message from the failed queue. It reads no clock. It is a pure
// function, but for the answers of exists.
func (r Rules) Decide(d Message, now time.Time) Decision {
	origin, addressed := strings.CutPrefix(r.addressOf(d), topology.AddressKey(""))
	f := r.read(d, origin, now)
	next := r.next(d, f, now)
	over := r.over(d, f, next, now)
	switch {
	case d.Key == topology.UnnamedAddress && origin != "" && !r.Names(origin) && !r.knows(origin):
		why := fmt.Sprintf("it failed in %s, which no match of the topology %q covers", origin, r.topology.Name)
		return r.ToUnroutable(d, Decision{Queue: origin, Reason: f.reason, Cause: UnknownQueue}, why, now)
	case !addressed || origin == "":
		why := fmt.Sprintf("the routing key %q names no work queue", d.Key)
		return r.ToUnroutable(d, Decision{Cause: NoAddress}, why, now)
	case !r.knows(origin):
		why := fmt.Sprintf("the topology %q has no work queue %q", r.topology.Name, origin)
		return r.ToUnroutable(d, Decision{Queue: origin, Reason: f.reason, Cause: UnknownQueue}, why, now)
	case f.twice:
		why := fmt.Sprintf("the exchange %s has no binding for the dead letters, which have %s=%d; run 'dlxctl apply'",
			r.backoff.RetryExchange, r.topology.CountHeader, topology.DeadLetterCount)
		tried := Decision{Queue: origin, Reason: f.reason, Attempts: f.attempt, FirstFailedAt: f.first, Cause: Refused}
		return r.ToUnroutable(d, tried, why, now)
	}
	out := Decision{
		Outcome: DeadLettered, Exchange: r.backoff.RetryExchange, Queue: origin, Reason: f.reason,
		Attempts: f.attempt, FirstFailedAt: f.first, Said: f.said, Annotated: f.annotated(d),
		At: now, Evidence: r.evidence(f),
	}
	if next.waits {
		out.Outcome, out.Tier, out.Wait = Retried, r.tier(next.count), r.wait(next)
		if r.outlasts(next.count) {
			out.Exchange = r.backoff.Outage.Exchange()
		}
	}
	if over {
		out.Reason = topology.ReasonExpired // the history keeps why it failed
		next = step{count: topology.DeadLetterCount, attempts: next.attempts}
		out.Outcome, out.Tier, out.Wait, out.Exchange = DeadLettered, topology.Tier{}, 0, r.backoff.RetryExchange
		if r.backoff.AfterExpiry == topology.ExpiryDropped {
			out.Outcome = Dropped
		}
	}
	headers := f.headers(r, d, now)
	headers[topology.HeaderReason], headers[topology.HeaderAttempts] = string(out.Reason), next.attempts
	next.mark(headers)
	to := r.addressee(f, next)
	r.pass(f, next, to, headers)
	// As an int32: pika reads an int64 as unsigned, and -1 as 18446744073709551615.
	// Bindings match an integer of any width. No backoff has that many tiers.
	headers[r.topology.CountHeader] = int32(next.count) //nolint:gosec // at most the number of tiers and 1
	out.Key = address(headers, f.key, to, f.known)
	out.Headers = headers
	f.record(d, headers, out.Tier, now)
	if out.Outcome != Dropped && r.tooLarge(d, headers) && !r.giveWay(d, headers) {
		out.Cause = HeadersTooLarge
		why := fmt.Sprintf("its headers would have %d bytes, and the broker adds its own: more than the %d that fit in a frame",
			r.size(d, headers), r.frameMax)
		return r.ToUnroutable(d, out, why, now)
	}
	return out
}

// giveWay removes what was said about failures from headers, until they fit: attempts are worth
// more. It reports whether they fit.
func (r Rules) giveWay(d Message, headers map[string]any) bool {
	for _, name := range []string{
		topology.HeaderErrorStack, topology.HeaderHistory, topology.HeaderAfter, topology.HeaderError,
		topology.HeaderErrorType,
	} {
		for name == topology.HeaderHistory && shorten(headers) {
			if !r.tooLarge(d, headers) {
				return true
			}
		}
		delete(headers, name)
		if !r.tooLarge(d, headers) {
			return true
		}
	}
	return false
}

// addressee returns the queue in whose address a message is published: its work queue, or the one
// to which that retries, or, as a dead letter of a queue that a match covers, the dead-letter queue
// of that match. No apply may know such a work queue yet. What has only returned keeps its address:
// it was decided when it failed, whatever the file says now.
func (r Rules) addressee(f failure, next step) string {
	w := r.WorkQueue(f.origin)
	switch {
	case w.Match != "" && !next.waits:
		return w.DeadLetterQueue
	case w.RetryTo != "" && next.waits && !f.returned:
		return w.RetryTo
	default:
		return f.origin
	}
}

// pass notes in headers that a message that waits belongs to another queue from now on. Its
// attempts go on to count there, so that it is dead in the end, wherever the queues retry to.
func (r Rules) pass(f failure, next step, to string, headers map[string]any) {
	if !next.waits || to == f.origin {
		return
	}
	headers[topology.HeaderQueue] = to
	if headers[topology.HeaderFirstQueue] == nil {
		headers[topology.HeaderFirstQueue] = f.origin
	}
}

// address returns the routing key to publish with, and sets CC. The message keeps
// the publisher's key, and CC leads it back to its queue. A publisher's key that
// looks like an address could lead it to another queue as well, and no publisher used
// one that is too long for a key: such a message is routed by the address of its own
// queue alone.
func address(headers map[string]any, key, queue string, known bool) string {
	own := topology.AddressKey(queue)
	unaddressed(headers)
	if !known || len(key) > longestKey || strings.HasPrefix(key, topology.AddressKey("")) {
		return own
	}
	headers[topology.CC] = []any{own}
	return key
}

// unaddressed removes the headers by which the broker would route the message
// elsewhere too, or refuse it.
func unaddressed(headers map[string]any) {
	delete(headers, topology.CC)
	delete(headers, topology.BCC)
}

// keepAddresses keeps what a publisher had set in CC and BCC, under other names.
func (f failure) keepAddresses(h map[string]any, d Message) {
	if len(f.cc) > 0 { // from x-death, which has it even where the broker removed the header
		h[topology.HeaderCC] = f.cc
	}
	if v, ok := d.Headers[topology.CC]; ok {
		h[topology.HeaderCC] = v
	}
	if v, ok := d.Headers[topology.BCC]; ok {
		h[topology.HeaderBCC] = v
	}
}

// failure is what a message says about how it failed.
type failure struct {
	origin  string
	reason  topology.Reason
	attempt int64
	// trusted: it has been through a retry queue or a retry exchange of the topology, so its retry
	// headers are true.
	trusted bool
	// twice: it was a dead letter of these rules already. The exchange has no binding for those, or
	// has one for another count header, and would return the next one too, or lead it to a tier by the
	// other header.
	twice bool
	// returned: it has not failed again, see [Rules.returned].
	returned bool
	// exchange and key are where the publisher sent it; known is whether the message
	// says so at all.
	exchange string
	key      string
	known    bool
	cc       []any // what else the publisher addressed it to
	first    string
	// expiration is what the publisher had set, which the broker has removed.
	expiration string
	// pulled: it has not failed, see [Rules.Pull].
	pulled bool
	// said is what the consumer said about it, and told that it published the message for that.
	said Said
	told bool
	// past are the failures before it.
	past []any
	// previous is when it failed before, and unsure since when it waits as nothing is known about an
	// outage. Empty: it has not.
	previous, unsure string
}

// read finds out how d failed in the queue origin.
func (r Rules) read(d Message, origin string, now time.Time) failure {
	if r.returned(d) {
		return r.readReturned(d, origin, now)
	}
	f := failure{origin: origin, reason: topology.ReasonUnknown, attempt: 1, first: now.UTC().Format(topology.HeaderTime)}
	retried := false
	all := deaths(d.Headers)
	// What waits in the hold while the queue is replaced under its name can die there too, by expiry.
	hold := topology.ReplacementHoldName(r.topology.Name, origin)
	for _, death := range all {
		queue, _ := death["queue"].(string)
		retried = retried || topology.IsRetryQueueName(r.topology.Name, queue)
		if queue != origin && queue != hold || f.known {
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
		if f.exchange == topology.ReturnExchangeName(r.topology.Name) {
			f.sentAgain(d.Headers)
		}
	}
	// Or dead-lettered by the broker otherwise.
	rejected := len(all) > 0 && (all[0]["queue"] == origin || all[0]["queue"] == hold)
	if !rejected || d.pulled { // what was pulled may have come back since it was rejected
		f.told = d.Exchange == topology.FailedExchangeName(r.topology.Name) && r.copied(all)
		f.hear(d.Headers, f.told)
	}
	if list, ok := d.Headers[topology.CC].([]any); ok {
		f.cc = list
	}
	count, ok := topology.Integer(d.Headers[r.topology.CountHeader])
	// RabbitMQ keeps an x-death of the publisher below its own entries: the newest one says by which
	// exchange the message came (before 4.0, the publisher may have written that one too).
	retried = retried && (!rejected || all[0]["exchange"] == topology.ReturnExchangeName(r.topology.Name))
	retried = retried && text(d.Headers[topology.HeaderQueue]) == origin
	f.trusted = ok && count > 0 && count <= absurdCount && retried
	f.twice = ok && count == topology.DeadLetterCount && retried // what is published again has no x-death
	if f.trusted {
		f.attempt = count + 1
		if n, ok := attempts(d.Headers); ok { // a consumer that asked for a wait chose the tier, and so the count
			f.attempt = n + 1
		}
		if first, ok := d.Headers[topology.HeaderFirstFailedAt].(string); ok {
			f.first = first
		}
		f.past = pastOf(d.Headers)
		f.previous, f.unsure = text(d.Headers[topology.HeaderLastFailedAt]), text(d.Headers[topology.HeaderUnsureSince])
		if failedElsewhere(f.past, origin) { // no delivery of this queue
			f.previous = ""
		}
		if key, ok := d.Headers[topology.HeaderRoutingKey].(string); ok && f.known && len(key) <= longestKey {
			f.key = key // that of a consumer is heard already
		}
	}
	if d.pulled {
		f.pulled, f.reason = true, topology.ReasonPulled
		f.attempt-- // the one that has not been made
	}
	return f
}

// sentAgain reads where the publisher sent a message that came by the exchange NAME.return: a desk
// has sent it to its queue alone, and kept that. Only who may write to that exchange is believed,
// as with a retry.
func (f *failure) sentAgain(h map[string]any) {
	if key, ok := h[topology.HeaderRoutingKey].(string); ok && len(key) <= longestKey {
		f.exchange, f.key = text(h[topology.HeaderExchange]), key
	}
}

// within reports whether now is less than a time after the first failure. A time that cannot be
// read is long ago.
func (f failure) within(limit time.Duration, now time.Time) bool {
	first, err := time.Parse(topology.HeaderTime, f.first)
	return err == nil && now.Sub(first) < limit
}

// headers returns the headers of d without the broker's own, and with the history.
func (f failure) headers(r Rules, d Message, now time.Time) map[string]any {
	h := stripped(d.Headers)
	if !f.trusted {
		f.begin(h, r.topology.CountHeader, d)
	}
	f.said.write(h)
	f.keepProperties(h, d)
	h[topology.HeaderReason] = string(f.reason)
	if !f.returned || !f.trusted {
		h[topology.HeaderLastFailedAt] = now.UTC().Format(topology.HeaderTime)
	}
	return h
}

// keepProperties keeps the properties of a publisher that no copy can have, in headers.
func (f failure) keepProperties(h map[string]any, d Message) {
	if d.UserID != "" {
		h[topology.HeaderUserID] = d.UserID
	}
	if expiration := f.expires(d); expiration != "" {
		h[topology.HeaderExpiration] = expiration
	}
}

// expires returns the expiration that d has, or had before its first failure. Empty: none.
func (f failure) expires(d Message) string {
	switch {
	case d.Expiration != "":
		return d.Expiration
	case f.trusted:
		return text(d.Headers[topology.HeaderExpiration])
	default:
		return f.expiration
	}
}

// begin sets what a first failure sets, in place of what the publisher had under
// these names.
func (f failure) begin(h map[string]any, countHeader string, d Message) {
	for _, name := range topology.RetryHeaders() {
		delete(h, name)
	}
	if v, ok := d.Headers[countHeader]; ok {
		h[topology.HeaderOriginalCount] = v
	}
	f.keepAddresses(h, d)
	h[topology.HeaderQueue] = f.origin
	h[topology.HeaderExchange] = f.exchange
	h[topology.HeaderRoutingKey] = f.key
	h[topology.HeaderFirstFailedAt] = f.first
}

// originOf returns the queue in which d failed: that of its address, or else that of its latest
// death in no queue of the topology for retries. Empty: d does not tell.
func (r Rules) originOf(d Message) string {
	if origin, ok := strings.CutPrefix(r.addressOf(d), topology.AddressKey("")); ok {
		return origin
	}
	for _, death := range deaths(d.Headers) {
		queue, _ := death["queue"].(string)
		_, failed := topology.FailedBackoff(r.topology.Name, queue)
		if !failed && !topology.IsRetryQueueName(r.topology.Name, queue) {
			return queue
		}
	}
	return ""
}

// tooLarge reports whether d with other headers, and those of the broker, would not fit in a frame.
func (r Rules) tooLarge(d Message, headers map[string]any) bool {
	size := r.size(d, headers)
	return size > 0 && size+brokerHeaders > r.frameMax
}

// size returns the size of the content header of d with other headers, 0 if any size fits.
func (r Rules) size(d Message, headers map[string]any) int {
	if r.frameMax == 0 || d.Size == nil {
		return 0
	}
	return d.Size(headers)
}

// ToUnroutable returns the decision that moves d to the unroutable queue, unchanged but
// for the error. tried is what was decided before, if anything was, with the cause.
func (r Rules) ToUnroutable(d Message, tried Decision, why string, now time.Time) Decision {
	out := tried
	out.Outcome, out.Error, out.Tier, out.Wait, out.At = Unroutable, why, topology.Tier{}, 0, now
	out.Exchange, out.Key = topology.UnroutableName(r.topology.Name), d.Key
	h := stripped(d.Headers)
	unaddressed(h)
	f := r.read(d, r.originOf(d), now)
	if !f.trusted { // the others have it already
		f.keepAddresses(h, d)
		delete(h, topology.HeaderHistory) // its publisher's
	}
	Said{Error: why}.write(h)
	if f.said.Error != "" {
		h[topology.HeaderError] = why + "; the consumer said: " + f.said.Error
	}
	h[topology.HeaderLastFailedAt] = now.UTC().Format(topology.HeaderTime)
	if out.Reason != "" {
		h[topology.HeaderReason] = string(out.Reason)
	}
	f.keepProperties(h, d)
	out.Headers = h
	// No room for the error either: the message matters more than its history. What
	// CC and BCC held goes last, and may have to go too: under its own name it fitted,
	// and these names are longer.
	for _, name := range []string{
		topology.HeaderHistory, topology.HeaderError, topology.HeaderLastFailedAt, topology.HeaderReason,
		topology.HeaderExpiration, topology.HeaderUserID, topology.HeaderBCC, topology.HeaderCC,
	} {
		room := r.frameMax
		switch name {
		case topology.HeaderHistory, topology.HeaderError, topology.HeaderLastFailedAt, topology.HeaderReason:
			room -= countHeaders // the publisher's own headers are worth more than this margin
		}
		if r.frameMax == 0 || r.size(d, h) <= room {
			break
		}
		delete(h, name)
	}
	return out
}

// stripped returns a copy of h without what the broker writes about deaths and
// deliveries. With it, RabbitMQ before 4.0 would drop the message as a cycle, and the
// message would claim deaths that are not its own.
func stripped(h map[string]any) map[string]any {
	out := maps.Clone(h)
	if out == nil {
		out = map[string]any{}
	}
	maps.DeleteFunc(out, func(name string, _ any) bool {
		return topology.IsDeathHeader(name) || topology.IsDeliveryCount(name)
	})
	return out
}

// deaths returns the entries of x-death, the newest first.
func deaths(h map[string]any) []map[string]any {
	list, _ := h[topology.HeaderDeath].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, v := range list {
		if death, ok := table(v); ok {
			out = append(out, death)
		}
	}
	return out
}

// table returns a table inside a header. AMQP libraries have types of their own for it.
func table(v any) (map[string]any, bool) {
	if t, ok := v.(map[string]any); ok {
		return t, true
	}
	r, plain := reflect.ValueOf(v), reflect.TypeFor[map[string]any]()
	if r.Kind() != reflect.Map || !r.CanConvert(plain) {
		return nil, false
	}
	return reflect.TypeAssert[map[string]any](r.Convert(plain))
}
