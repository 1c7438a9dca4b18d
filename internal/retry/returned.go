package retry

import (
	"strconv"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// returned reports whether d came through the retry exchange of a backoff: a processor retried it
// or made it a dead letter, and no binding of that exchange matched its count, as it is while a
// processor has another file than the broker. It has not failed again. Only who may write to that
// exchange can publish such a message: the broker gives each failure the exchange NAME.failed.
func (r Rules) returned(d Message) bool {
	return topology.IsRetryExchangeName(r.topology.Name, d.Exchange)
}

// addressOf returns the address of the work queue of d. A failure has it as its routing key, unless
// its queue is one of many that a match covers: then the broker notes the queue. A
// message that has returned may have the publisher's key, and the address in CC: see address.
func (r Rules) addressOf(d Message) string {
	if d.Key == topology.UnnamedAddress && !r.returned(d) {
		return topology.AddressKey(r.died(d))
	}
	if !r.returned(d) || strings.HasPrefix(d.Key, topology.AddressKey("")) {
		return d.Key
	}
	list, _ := d.Headers[topology.CC].([]any)
	for _, v := range list {
		if key, ok := v.(string); ok && strings.HasPrefix(key, topology.AddressKey("")) {
			return key
		}
	}
	return d.Key
}

// readReturned reads what a processor has written about the last failure of d.
func (r Rules) readReturned(d Message, origin string, now time.Time) failure {
	f := failure{
		origin: origin, reason: topology.ReasonUnknown, attempt: 1, first: now.UTC().Format(topology.HeaderTime),
		trusted: d.Headers[topology.HeaderQueue] == origin, returned: true, exchange: d.Exchange, key: d.Key, known: true,
	}
	count, ok := topology.Integer(d.Headers[r.topology.CountHeader])
	f.twice = d.Exchange == r.backoff.RetryExchange && ok && count == topology.DeadLetterCount
	if !f.trusted {
		return f
	}
	f.said = saidIn(d.Headers)
	f.attempt = max(1, positive(d.Headers[r.topology.CountHeader]))
	if n, ok := attempts(d.Headers); ok {
		f.attempt = max(1, n)
	}
	if reason, ok := d.Headers[topology.HeaderReason].(string); ok {
		f.reason = topology.Reason(reason)
	}
	if first, ok := d.Headers[topology.HeaderFirstFailedAt].(string); ok {
		f.first = first
	}
	f.unsure = text(d.Headers[topology.HeaderUnsureSince])
	return f
}

// attempts returns the attempts that a processor has counted: 0, if after each failure the consumer
// asked for a longer wait than any tier.
func attempts(h map[string]any) (n int64, ok bool) {
	n, ok = topology.Integer(h[topology.HeaderAttempts])
	return n, ok && n >= 0 && n <= absurdCount
}

// positive returns the number of attempts in a header, 0 if it has none.
func positive(v any) int64 {
	if n, ok := topology.Integer(v); ok && n > 0 && n <= absurdCount {
		return n
	}
	return 0
}

// shortestUncounted is how long a wait that is not an attempt lasts at least.
const shortestUncounted = time.Second

// next returns the next step of d, which waits in the tier of this attempt, or in the one that is
// as long as the consumer asks. Where none is, it comes back before the consumer wants it, and
// that wait is not an attempt, unless it is so short that the message would go round at full speed.
// After the last tier it waits for the end of an outage, if there may be one.
//
// What returned waits in the tier of its attempts: that of its count is not there, or is one of
// another backoff. What returned from the retry exchange of these rules with the count of its
// attempts is a dead letter: the broker has no tier for it, and would return it without end.
func (r Rules) next(d Message, f failure, now time.Time) step {
	count, attempts := f.attempt, f.attempt
	missing := positive(d.Headers[r.topology.CountHeader]) // of what returned: no tier took this count
	switch {
	case f.returned && (missing == 0 || d.Exchange == r.backoff.RetryExchange && (missing == count || !f.trusted)),
		!r.backoff.Retries(f.reason):
		return step{count: topology.DeadLetterCount, attempts: attempts}
	case count > int64(len(r.backoff.Tiers)):
		next := r.outlast(f, now)
		if r.expires(d, f, next, now) { // a dead letter as without outages: nothing that expires is delivered late
			return step{count: topology.DeadLetterCount, attempts: attempts}
		}
		return next
	}
	if !f.returned && f.said.After > 0 {
		var delay time.Duration
		count, delay = r.longEnough(f.said.After)
		if delay < f.said.After && delay >= shortestUncounted && f.within(r.backoff.RetryUntil, now) {
			attempts--
		}
	}
	if !f.returned { // what returned was not delivered again
		f.unsure = ""
	}
	return step{count: count, attempts: attempts, waits: true, unsure: f.unsure}
}

// over reports whether the time of d is over: it expired in its queue, or does before its next wait
// ends. What is dead for another reason is not over: who looks at dead letters wants to know that
// reason.
func (r Rules) over(d Message, f failure, next step, now time.Time) bool {
	if r.backoff.AfterExpiry == "" || f.returned {
		return false
	}
	return f.reason == topology.ReasonExpired || r.expires(d, f, next, now)
}

// expires reports whether the expiration of d, which counts from its first failure here, ends
// before the wait that would be next, and afterExpiry says what becomes of it then.
func (r Rules) expires(d Message, f failure, next step, now time.Time) bool {
	ms, err := strconv.ParseInt(f.expires(d), 10, 64)
	if r.backoff.AfterExpiry == "" || f.returned || err != nil || ms < 0 || !next.waits {
		return false
	}
	left := time.Duration(min(ms, topology.MaxDelay.Milliseconds())) * time.Millisecond
	return !f.within(left-r.wait(next), now)
}
