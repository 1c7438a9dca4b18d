package retry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlxctl/dlxctl/topology"
)

// How much of what a consumer says is kept: characters of the type, and bytes of the others.
const (
	longestErrorType = 100
	longestError     = 1 << 10
	longestStack     = 8 << 10
)

// Said is what a consumer said about its failure. Zero: nothing, as with each rejection.
type Said struct {
	// Error is the text of the error, Type its kind and Stack the stack trace, shortened.
	Error, Type, Stack string
	// Permanent: no retry would help.
	Permanent bool
	// After is how long the message has to wait at least. 0: as long as its tier.
	After time.Duration
	// Unread is a value of retry-after that is not a time. Empty: there is none.
	Unread string
}

// Annotated is what the annotations of a rejected message say about its failure, shortened: its
// consumer has settled it with them over AMQP 1.0 (4.0 and later), or did so at an earlier attempt,
// or its publisher has written them. It is shown as that, and decides nothing. Zero: nothing.
type Annotated struct{ Error, Type string }

// annotated returns what the annotations of a message say, unless its consumer has said more. A
// message that no consumer has rejected is not settled with any.
func (f failure) annotated(d Message) Annotated {
	if f.reason != topology.ReasonRejected || f.told || f.returned || f.said != (Said{}) {
		return Annotated{}
	}
	return Annotated{
		Error: firstBytes(text(d.Headers[topology.AnnotatedError]), longestError),
		Type:  firstRunes(text(d.Headers[topology.AnnotatedErrorType])),
	}
}

// hear reads what a consumer said, and where it got the message from. The consumer has published d
// to the exchange for failures itself: the broker would have written down that d died in its queue.
//
// copied reports that the exchange and the deaths show that, so that a copy that says nothing is as
// good as a rejection.
//
// Only who may write to that exchange is heard. A publisher's headers of these names come with a
// death that the broker has written, or are those that the consumer removes from a first attempt.
func (f *failure) hear(h map[string]any, copied bool) {
	f.said = saidIn(h)
	switch {
	case f.said.Permanent:
		f.reason = topology.ReasonPermanent
	case copied, f.said != Said{}:
		f.reason = topology.ReasonRejected
	}
	switch key := h[topology.HeaderRoutingKey].(type) {
	case string, []byte:
		f.exchange, f.key, f.known = text(h[topology.HeaderExchange]), text(key), true
	}
}

// copied reports whether a message with these deaths, the newest first, has died in no queue but
// those of tiers since a consumer got it: so the broker has not dead-lettered it to where it is.
func (r Rules) copied(deaths []map[string]any) bool {
	if len(deaths) == 0 {
		return true
	}
	queue, _ := deaths[0]["queue"].(string)
	return topology.IsRetryQueueName(r.topology.Name, queue)
}

// saidIn returns what headers say. A value of another type than it should have says nothing.
func saidIn(h map[string]any) Said {
	out := Said{
		Error:     firstBytes(text(h[topology.HeaderError]), longestError),
		Type:      firstRunes(text(h[topology.HeaderErrorType])),
		Stack:     firstBytes(text(h[topology.HeaderErrorStack]), longestStack),
		Permanent: h[topology.HeaderPermanent] == true,
	}
	out.After, out.Unread = after(h[topology.HeaderAfter])
	return out
}

// write sets the headers of what was said last, in place of what was said before.
func (s Said) write(h map[string]any) {
	for name, value := range map[string]string{
		topology.HeaderError: s.Error, topology.HeaderErrorType: s.Type, topology.HeaderErrorStack: s.Stack,
		topology.HeaderAfter: s.Unread, // a wait is for this time alone
	} {
		delete(h, name)
		if value != "" {
			h[name] = value
		}
	}
	delete(h, topology.HeaderPermanent) // the reason says it
}

// after returns a wait from a header: a number of seconds, as a number or as a text, or a text with
// units. A wait that is too long to be counted is the longest. What cannot be read is not a wait,
// and is returned as a text.
func after(v any) (wait time.Duration, unread string) {
	s := strings.TrimSpace(text(v))
	switch n := v.(type) {
	case string, []byte:
	case float32:
		s = strconv.FormatFloat(math.Ceil(float64(n)), 'f', 0, 64)
	case float64:
		s = strconv.FormatFloat(math.Ceil(n), 'f', 0, 64)
	default:
		s = fmt.Sprint(v)
	}
	if s == "" || v == nil {
		return 0, ""
	}
	if strings.Trim(s, "0123456789") == "" {
		s += "s"
	}
	if wait, ok := topology.ParseWait(s); ok {
		return wait, ""
	}
	return 0, firstRunes(s)
}

// longEnough returns the number of the tier, from 1, that is the shortest of those that last as
// long as a consumer asks, and how long it lasts. If there is none, it is the longest.
func (r Rules) longEnough(after time.Duration) (tier int64, delay time.Duration) {
	best := 0
	for i, t := range r.backoff.Tiers {
		chosen := r.backoff.Tiers[best].Delay
		switch {
		case chosen < after && t.Delay > chosen, t.Delay >= after && t.Delay < chosen:
			best = i
		}
	}
	return int64(best) + 1, r.backoff.Tiers[best].Delay
}

// text returns a header that is a text, which some clients send as bytes. Empty: it is none.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	default:
		return ""
	}
}

// firstBytes returns at most the first n bytes of s, and no part of a character.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for end := n; end > n-utf8.UTFMax; end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end]
		}
	}
	return s[:n] // it is not UTF-8
}

// firstRunes returns at most the first characters of s, as many as an error type may have.
func firstRunes(s string) string {
	left := longestErrorType
	for i := range s {
		if left--; left < 0 {
			return s[:i]
		}
	}
	return s
}
