//go:build unix

package audit_test

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/cputime"
)

// Four times as many queues and bindings take about four times as long; the square of it would be
// sixteen times. It compares processor time, as a test shares its machine.
func TestTheTimeOfAnAuditGrowsWithItsSize(t *testing.T) { //nolint:paralleltest // it measures the processor time of the process
	used := func(queues, bindings int) time.Duration {
		input := audit.Input{State: big(queues, bindings), Rules: allRules()}
		begin := cputime.Process()
		if report := audit.Run(input); len(report.Fates) < queues/2 {
			t.Fatalf("%d fates of %d queues", len(report.Fates), queues)
		}
		return cputime.Process() - begin
	}
	used(1250, 5000) // the first run grows the heap
	small, large := used(1250, 5000), used(5000, 20000)
	if large > 10*small {
		t.Errorf("5,000 queues take %s, and a quarter of them %s", large, small)
	}
	t.Logf("%s and %s", small, large)
}
