package brokertest

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"
)

// lighter is how much less load the tests of a push make than those of the night. The tests of a
// line share two cores, and publishers that do not hold back take what the others need.
const lighter = 5

// The lines of RabbitMQ. On the newest each push runs every test, of some a share: see [Share].
const (
	oldest, middle, newest = "3.10", "4.0", "4.3"

	lines = 3
)

// OnNewestLine skips a test on older lines of RabbitMQ, where it runs each night: DLXCTL_TEST_LONG
// skips nothing, nor does a run without DLXCTL_TEST_LINE. CI has a quarter of an hour for all
// lines.
//
// It is not for tests that kill, restart or lose connections, nor for those that show how a line
// of RabbitMQ behaves.
func OnNewestLine(tb testing.TB) {
	tb.Helper()
	if OnlyAtNight() {
		tb.Skip("it runs on RabbitMQ " + newest + ", and each night on all lines")
	}
}

// OnlyAtNight reports whether OnNewestLine skips a test.
func OnlyAtNight() bool {
	line := os.Getenv(envLine)
	return line != "" && line != newest && !long()
}

// Share returns those of the variants of a test that a push tries on this line of RabbitMQ: each
// third, and on each line another third, so that all lines together try each. Of two variants the
// oldest and the newest line try the first. All are tried each night, with DLXCTL_TEST_LONG, and
// without DLXCTL_TEST_LINE. It is for tests that take long, whose variants are the moments of a
// kill, say: a node that boots again costs five seconds of a processor.
func Share[T any](all []T) []T {
	at := slices.Index([]string{oldest, middle, newest}, os.Getenv(envLine))
	if long() || at < 0 || len(all) < 2 {
		return all
	}
	groups := min(len(all), lines)
	var out []T
	for i, v := range all {
		if i%groups == at%groups {
			out = append(out, v)
		}
	}
	return out
}

// ShareNamed is [Share] for variants that have names, in the order of these.
func ShareNamed[T any](all map[string]T) map[string]T {
	out := map[string]T{}
	for _, name := range Share(slices.Sorted(maps.Keys(all))) {
		out[name] = all[name]
	}
	return out
}

// Load returns how many messages a test publishes, or has on their way: full with DLXCTL_TEST_LONG,
// else a fifth of it.
func Load(full int) int {
	if long() {
		return full
	}
	return max(full/lighter, 1)
}

// Rounds returns how many times a test repeats something: night with DLXCTL_TEST_LONG, else day.
func Rounds(day, night int) int {
	if long() {
		return night
	}
	return day
}

// Pause returns how long a test pauses between two messages: full with DLXCTL_TEST_LONG, else five
// times that long.
func Pause(full time.Duration) time.Duration {
	if long() {
		return full
	}
	return lighter * full
}

// long reports whether this is a run of the night.
func long() bool { return os.Getenv("DLXCTL_TEST_LONG") != "" }
