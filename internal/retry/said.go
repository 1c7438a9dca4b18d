package retry

import (
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
}

// hear reads what a consumer said, and where it got the message from. The consumer has published d
// to the exchange for failures itself: the broker would have written down that d died in its queue.
//
// Only who may write to that exchange is heard. A publisher's headers of these names come with a
// death that the broker has written, or are those that the consumer removes from a first attempt.
func (f *failure) hear(h map[string]any) {
	f.said = saidIn(h)
	switch {
	case f.said.Permanent:
		f.reason = topology.ReasonPermanent
	case f.said != Said{}:
		f.reason = topology.ReasonRejected
	}
	if key, ok := h[topology.HeaderRoutingKey].(string); ok {
		f.exchange, f.key, f.known = text(h[topology.HeaderExchange]), key, true
	}
}

// saidIn returns what headers say. A value of another type than it should have says nothing.
func saidIn(h map[string]any) Said {
	return Said{
		Error:     firstBytes(text(h[topology.HeaderError]), longestError),
		Type:      firstRunes(text(h[topology.HeaderErrorType]), longestErrorType),
		Stack:     firstBytes(text(h[topology.HeaderErrorStack]), longestStack),
		Permanent: h[topology.HeaderPermanent] == true,
	}
}

// write sets the headers of what was said last, in place of what was said before.
func (s Said) write(h map[string]any) {
	for name, value := range map[string]string{
		topology.HeaderError: s.Error, topology.HeaderErrorType: s.Type, topology.HeaderErrorStack: s.Stack,
	} {
		delete(h, name)
		if value != "" {
			h[name] = value
		}
	}
	delete(h, topology.HeaderPermanent) // the reason says it
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
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// firstRunes returns at most the first n characters of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
