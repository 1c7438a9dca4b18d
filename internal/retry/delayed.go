package retry

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/topology"
)

// DelayRules decide about the messages of one delay. They are read only.
//
// A message waits in the longest level that is not longer than the rest of its time, and after that
// in the next one, until its time is over. So it is never early, whatever the levels are and
// however late each of them is: the rest is computed anew each time, and only the last level, the
// shortest, can make it late.
//
// With a timer it waits there alone, unless RabbitMQ cannot deliver it over AMQP 1.0, or the timer
// let it go before its time. Then it waits in levels.
type DelayRules struct {
	topology topology.Compiled
	delay    topology.Delay
	rules    Rules // for the unroutable queue
}

// NewDelayRules returns the rules of a delay of t. frameMax is as in [NewRules].
func NewDelayRules(t topology.Compiled, d topology.Delay, frameMax int) DelayRules {
	return DelayRules{topology: t, delay: d, rules: NewRules(t, topology.Backoff{}, frameMax)}
}

// DelayOutcome is what becomes of a message of a delay. There is no zero outcome.
type DelayOutcome string

// The outcomes.
const (
	Waits    DelayOutcome = "waits"    // in a level
	Due      DelayOutcome = "due"      // it is published to the exchange of the delay
	NotTaken DelayOutcome = "no-delay" // it goes to the unroutable queue
)

// DelayDecision says what becomes of a message of a delay.
type DelayDecision struct {
	Outcome DelayOutcome
	// Exchange, Key, Headers and Expiration are what the processor publishes it with.
	Exchange, Key string
	Headers       map[string]any
	Expiration    string
	// Level is the index of the level in which it waits.
	Level int
	// DueAt is when it is due. Zero if it does not say. Timed reports that its publisher has said it:
	// without a header it is due when it is read.
	DueAt time.Time
	Timed bool
	// Error is why it goes to the unroutable queue, and Cause the same in a word.
	Error string
	Cause Cause
}

// BadDelay is the cause of a message whose headers do not say when it is due.
const BadDelay Cause = "bad_delay"

// delayed is what a message says.
type delayed struct {
	due        time.Time
	timed      bool           // see DelayDecision
	headers    map[string]any // without those of the broker and of the processor
	userID     string
	expiration string
	byLevels   bool   // the timer let it go before its time, once
	problem    string // why it cannot wait; empty: it can
}

// Decide says what becomes of a message from one of the queues of the delay. It reads no clock.
func (r DelayRules) Decide(d Message, now time.Time) DelayDecision {
	return r.decide(d, time.Time{}, len(r.delay.Levels), now)
}

// Again decides once more about a message that the broker did not accept as tried says. It is due
// when it was. Where a level did not take it, only shorter ones are left, and the shortest.
func (r DelayRules) Again(d Message, tried DelayDecision, now time.Time) DelayDecision {
	below := len(r.delay.Levels)
	if tried.Outcome == Waits && tried.Level > 0 {
		below = tried.Level
	}
	return r.decide(d, tried.DueAt, below, now)
}

// decide decides with the levels below one alone. due is when the message is due. Zero: it says so.
func (r DelayRules) decide(d Message, due time.Time, level int, now time.Time) DelayDecision {
	m := r.read(d, now)
	if !due.IsZero() {
		m.due, m.problem = due, ""
	}
	if m.problem != "" {
		return r.ToUnroutable(d, BadDelay, m.problem, now)
	}
	out := DelayDecision{Outcome: Due, Exchange: r.delay.To, Key: d.Key, Headers: m.headers, DueAt: m.due, Timed: m.timed}
	if m.userID != "" {
		m.headers[topology.HeaderDelayUserID] = m.userID
	}
	if !m.due.After(now) {
		out.Expiration = m.expiration
		return out
	}
	out.Outcome, out.Exchange = Waits, r.delay.LevelExchange
	out.Level = min(r.delay.Level(m.due.Sub(now)), max(level-1, 0))
	switch {
	case r.delay.Timer == "":
	case m.byLevels:
		m.headers[topology.HeaderDelayByLevels] = true
	case level == len(r.delay.Levels) && deliverable(d, m.headers):
		out.Level = level - 1 // the timer
	}
	m.headers[topology.HeaderDelayDue] = milliseconds(m.due)
	m.headers[topology.HeaderDelayLevel] = r.delay.LevelValue(out.Level)
	if m.expiration != "" {
		m.headers[topology.HeaderDelayExpiration] = m.expiration
	}
	if r.rules.tooLarge(d, m.headers) {
		return r.ToUnroutable(d, HeadersTooLarge, fmt.Sprintf(
			"its headers would have %d bytes while it waits, and the broker adds its own: more than the %d that fit in a frame",
			r.rules.size(d, m.headers), r.rules.frameMax), now)
	}
	return out
}

// read reads d. Only what comes from a level of the delay is believed what the processor has
// written: the broker says so by the exchange and the newest death, which no publisher can forge.
// Whatever else is in one of the queues is as it was published, also what its publisher let expire
// before a processor read it.
func (r DelayRules) read(d Message, now time.Time) delayed {
	m := delayed{headers: stripped(d.Headers), userID: d.UserID, expiration: d.Expiration}
	for _, name := range topology.DelayHeaders() {
		delete(m.headers, name)
	}
	for _, name := range []string{topology.CC, topology.BCC} { // RabbitMQ refuses one that is not a list of keys
		if v, ok := m.headers[name]; ok && !isKeys(v) {
			delete(m.headers, name)
		}
	}
	var last map[string]any
	if all := deaths(d.Headers); len(all) > 0 && d.Exchange == r.delay.Due {
		last = all[0]
	}
	queue := text(last["queue"])
	switch {
	case r.delay.IsLevel(r.topology.Name, queue):
		m.userID, m.expiration = text(d.Headers[topology.HeaderDelayUserID]), text(d.Headers[topology.HeaderDelayExpiration])
		due, ok := topology.Integer(d.Headers[topology.HeaderDelayDue])
		if !ok {
			m.problem = fmt.Sprintf("it came from the level %s without the header %s", queue, topology.HeaderDelayDue)
		}
		m.due, m.timed = time.UnixMilli(due), true
		m.byLevels, _ = d.Headers[topology.HeaderDelayByLevels].(bool)
		if queue == topology.TimerName(r.topology.Name, r.delay.Name) {
			delete(m.headers, topology.HeaderDeliveryTime)
			m.byLevels = text(last["reason"]) == string(topology.ReasonExpired)
		}
		return m
	case queue == r.delay.Intake:
		m.expiration = text(last["original-expiration"])
	}
	m.due, m.problem = r.due(d.Headers, now)
	_, delays := d.Headers[topology.HeaderDelay]
	_, dated := d.Headers[topology.HeaderDelayUntil]
	m.timed = delays || dated
	return m
}

// deliverable reports whether RabbitMQ can deliver a message over AMQP 1.0. One that it cannot
// deliver ends the session of each consumer, and comes back to the queue: a decimal does so, a text
// that is not UTF-8 in a property, a timestamp too far ahead, and headers by which RabbitMQ keeps
// parts of messages of AMQP 1.0 (measured on 4.3.6 with each type). What is not known to be
// deliverable is not. The annotation of the timer would replace a header of its name.
func deliverable(d Message, headers map[string]any) bool {
	for name := range headers {
		if strings.Contains(name, "amqp-1.0-") || name == topology.HeaderDeliveryTime || !utf8.ValidString(name) {
			return false
		}
	}
	undeliverable := func(s string) bool { return !utf8.ValidString(s) }
	return !undeliverable(d.Key) && !slices.ContainsFunc(d.Texts, undeliverable) &&
		(d.Timestamp.IsZero() || deliverableValue(d.Timestamp)) && deliverableValue(headers)
}

// deliverableValue reports whether a header, or a value in one, is of a type that AMQP 1.0 has.
func deliverableValue(v any) bool {
	const lastSecond = 1 << 40
	switch v := v.(type) {
	case nil, bool, string, []byte, float32, float64:
		return true
	case time.Time:
		return v.Unix() >= 0 && v.Unix() < lastSecond
	case []any:
		return !slices.ContainsFunc(v, func(v any) bool { return !deliverableValue(v) })
	}
	if in, ok := table(v); ok {
		for _, v := range in {
			if !deliverableValue(v) {
				return false
			}
		}
		return true
	}
	_, ok := topology.Integer(v)
	return ok
}

// isKeys reports whether a header is a list of routing keys.
func isKeys(v any) bool {
	list, ok := v.([]any)
	for _, key := range list {
		if s, is := key.(string); !is || len(s) > longestKey {
			return false
		}
	}
	return ok
}

// earliestUntil is the first number of milliseconds that [topology.HeaderDelayUntil] may have, in
// 1973: seconds since 1970 would be less, and due at once.
const earliestUntil = 100_000_000_000

// due returns when a message with these headers is due: at once, if they do not say. problem is
// what is wrong with them.
func (r DelayRules) due(headers map[string]any, now time.Time) (due time.Time, problem string) {
	wait, delays := headers[topology.HeaderDelay]
	until, dated := headers[topology.HeaderDelayUntil]
	longest := r.delay.Max
	tooFar := func(header string) string {
		return fmt.Sprintf("%s is more than %s ahead, the longest delay of %s",
			header, topology.FormatDelay(longest), r.delay.Name)
	}
	switch {
	case delays && dated:
		return now, fmt.Sprintf("it has both %s and %s", topology.HeaderDelay, topology.HeaderDelayUntil)
	case delays:
		switch ms, ok := wholeNumber(wait); {
		case !ok:
			return now, fmt.Sprintf("%s is %s, not a number of milliseconds", topology.HeaderDelay, quoted(wait))
		case ms < 0:
			return now, fmt.Sprintf("%s is %d, which is negative", topology.HeaderDelay, ms)
		case ms > longest.Milliseconds():
			return now, tooFar(topology.HeaderDelay)
		default:
			return now.Add(time.Duration(ms) * time.Millisecond), ""
		}
	case dated:
		ms, ok := moment(until)
		switch {
		case !ok:
			return now, fmt.Sprintf("%s is %s, not a time: a timestamp, milliseconds since 1970, or a text such as 2030-01-31T12:00:00Z",
				topology.HeaderDelayUntil, quoted(until))
		case ms > now.Add(longest).UnixMilli():
			return now, tooFar(topology.HeaderDelayUntil)
		default:
			return time.UnixMilli(ms), ""
		}
	}
	return now, ""
}

// wholeNumber returns an integer of any type, and a float that is one.
func wholeNumber(v any) (int64, bool) {
	if n, ok := topology.Integer(v); ok {
		return n, true
	}
	f, ok := v.(float64)
	if f32, is := v.(float32); is {
		f, ok = float64(f32), true
	}
	const exact = 1 << 53
	if !ok || f != math.Trunc(f) || math.Abs(f) > exact {
		return 0, false
	}
	return int64(f), true
}

// moment returns a time in milliseconds since 1970: the last that can be counted, if it is later. A
// timestamp has whole seconds, though a client of AMQP 1.0 wrote milliseconds: it is the end of its
// second, so that the message is not early.
func moment(v any) (int64, bool) {
	switch v := v.(type) {
	case time.Time:
		return milliseconds(v.Truncate(time.Second).Add(time.Second - time.Millisecond)), true
	case string:
		at, err := time.Parse(time.RFC3339, v)
		return milliseconds(at), err == nil
	}
	ms, ok := topology.Integer(v)
	return ms, ok && ms >= earliestUntil
}

// milliseconds returns a time in milliseconds since 1970, rounded up.
func milliseconds(t time.Time) int64 {
	switch seconds := t.Unix(); {
	case seconds >= math.MaxInt64/1000-1:
		return math.MaxInt64
	case seconds < 0:
		return 0
	default:
		return seconds*1000 + int64(math.Ceil(float64(t.Nanosecond())/float64(time.Millisecond)))
	}
}

// quoted returns a header for an error, cut to what a line can hold.
func quoted(v any) string {
	const longest = 60
	out := fmt.Sprint(v)
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		out = strconv.Quote(v)
	case []byte:
		return "binary"
	case time.Time:
	default:
		if reflect.ValueOf(v).Kind() == reflect.Struct { // of the AMQP library: a decimal
			return "a " + strings.ToLower(reflect.TypeOf(v).Name())
		}
	}
	if runes := []rune(topology.Printable(out)); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return topology.Printable(out)
}

// ToUnroutable returns the decision that moves d to the unroutable queue, as it was published but
// for the error.
func (r DelayRules) ToUnroutable(d Message, cause Cause, why string, now time.Time) DelayDecision {
	m := r.read(d, now)
	for _, name := range topology.RetryHeaders() { // its publisher's: it has not failed in a work queue
		delete(m.headers, name)
	}
	d.Exchange, d.Headers, d.UserID, d.Expiration = "", m.headers, m.userID, m.expiration
	made := r.rules.ToUnroutable(d, Decision{Cause: cause}, why, now)
	with := maps.Clone(made.Headers)
	with[topology.HeaderExchange], with[topology.HeaderRoutingKey] = r.delay.Name, d.Key
	if r.rules.frameMax == 0 || r.rules.size(d, with)+countHeaders <= r.rules.frameMax {
		made.Headers = with
	}
	return DelayDecision{
		Outcome: NotTaken, Exchange: made.Exchange, Key: made.Key, Headers: made.Headers, DueAt: m.due,
		Error: why, Cause: cause,
	}
}
