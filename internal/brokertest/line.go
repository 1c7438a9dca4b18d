package brokertest

import (
	"os"
	"testing"
)

// newest is the line of RabbitMQ on which each push runs every test.
const newest = "4.3"

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
	return line != "" && line != newest && os.Getenv("DLXCTL_TEST_LONG") == ""
}
