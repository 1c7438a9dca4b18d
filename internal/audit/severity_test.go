package audit_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
)

// A loop of a dead-letter queue with itself is not that of the work queue with it.
func TestTheLoopOfADeadLetterQueueIsNamed(t *testing.T) {
	t.Parallel()
	in := read(t, "loop.json", `{"rabbitmq_version": "4.3.6", "queues": [
  {"name": "billing", "durable": true, "auto_delete": false,
   "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dlq"}},
  {"name": "billing.dlq", "durable": true, "auto_delete": false,
   "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "billing.dlq", "x-message-ttl": 1000}}]}`)
	for _, f := range audit.Run(in).Findings {
		if f.Rule == "cycle-cut" && f.Object.Name == "billing" &&
			strings.HasSuffix(f.Evidence, "billing → billing.dlq and back to billing.dlq") {
			return
		}
	}
	t.Errorf("no such loop: %v", summary(audit.Run(in)))
}
