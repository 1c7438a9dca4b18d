//go:build unix

package audit_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/audit"
)

// Four times as many queues and bindings take about four times as long; the square of it would be
// sixteen times. It compares processor time, as a test shares its machine.
func TestTheTimeOfAnAuditGrowsWithItsSize(t *testing.T) { //nolint:paralleltest // it measures the processor time of the process
	used := func(queues, bindings int) time.Duration {
		input := audit.Input{State: big(queues, bindings), Rules: allRules()}
		begin := processorTime(t)
		if report := audit.Run(input); len(report.Fates) < queues/2 {
			t.Fatalf("%d fates of %d queues", len(report.Fates), queues)
		}
		return processorTime(t) - begin
	}
	used(1250, 5000) // the first run grows the heap
	small, large := used(1250, 5000), used(5000, 20000)
	if large > 10*small {
		t.Errorf("5,000 queues take %s, and a quarter of them %s", large, small)
	}
	t.Logf("%s and %s", small, large)
}

// processorTime returns how long the process has computed.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
