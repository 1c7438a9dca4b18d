package brokertest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

const (
	// pollTimeout is how long [Eventually] waits: far longer than any condition needs on a
	// busy machine.
	pollTimeout = 4 * time.Minute
	firstPause  = 5 * time.Millisecond
	longPause   = 250 * time.Millisecond
)

// Eventually polls until ok returns true, and fails the test after four minutes. It pauses 5 ms
// between two polls at first and up to 250 ms later, so that waiting tests leave the machine
// to the others. When it fails it prints what it waited for and the last state: each state is
// a pointer to a variable that ok sets, a fmt.Stringer, or a func() string.
func Eventually(tb testing.TB, what string, ok func() bool, state ...any) {
	tb.Helper()
	poll(tb, firstPause, longPause, what, ok, state)
}

// EventuallyEvery polls as [Eventually] does, with the same pause each time. It is for a
// condition that a test has to catch before it passes.
func EventuallyEvery(tb testing.TB, pause time.Duration, what string, ok func() bool, state ...any) {
	tb.Helper()
	poll(tb, pause, pause, what, ok, state)
}

func poll(tb testing.TB, pause, longest time.Duration, what string, ok func() bool, state []any) {
	tb.Helper()
	for deadline := time.Now().Add(pollTimeout); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s for %s%s", pollTimeout, what, describe(state))
		}
		timer := time.NewTimer(pause)
		<-timer.C
		pause = min(pause*3/2, longest)
	}
}

// describe returns the states as lines.
func describe(state []any) string {
	var text strings.Builder
	for _, s := range state {
		text.WriteString("\nlast state: ")
		switch s := s.(type) {
		case func() string:
			text.WriteString(s())
		case fmt.Stringer:
			text.WriteString(s.String())
		default:
			fmt.Fprintf(&text, "%+v", reflect.Indirect(reflect.ValueOf(s)))
		}
	}
	return text.String()
}
