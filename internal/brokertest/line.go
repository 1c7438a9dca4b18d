package brokertest

import (
	"os"
	"testing"
)

// newest is the line on which the tests run whose result is the same on all lines.
const newest = "4.3"

// SameOnAllLines skips a test on older lines of RabbitMQ: what it checks cannot differ between
// them. Each line is a third of the time of CI. The nightly run, with DLXCTL_TEST_LONG, skips
// nothing; nor does a run without DLXCTL_TEST_LINE.
//
// It is not for tests that kill, restart or count, nor for those that are the first proof that the
// broker takes a request.
func SameOnAllLines(tb testing.TB) {
	tb.Helper()
	if OtherLineSuffices() {
		tb.Skip("its result is the same on all lines of RabbitMQ: it runs on " + newest + " and each night")
	}
}

// OtherLineSuffices reports whether SameOnAllLines skips a test.
func OtherLineSuffices() bool {
	line := os.Getenv(envLine)
	return line != "" && line != newest && os.Getenv("DLXCTL_TEST_LONG") == ""
}
