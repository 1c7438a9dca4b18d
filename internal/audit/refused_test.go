package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
)

// Values of arguments that RabbitMQ 3.10.8, 4.0.5 and 4.3.6 refuse when a quorum queue is declared,
// each next to one that they accept (measured).
func TestArgumentRefused(t *testing.T) {
	t.Parallel()
	for argument, tc := range map[string]struct{ accepted, refused, why string }{
		"x-message-ttl":            {"315360000000", "315360000001", "is above 315360000000, which is ten years"},
		"x-expires":                {"315360000000", "315360000001", "is above 315360000000, which is ten years"},
		"x-dead-letter-strategy":   {`"at-most-once"`, `"at-least"`, "is neither at-most-once nor at-least-once"},
		"x-single-active-consumer": {"true", `"true"`, "is neither true nor false"},
		"x-max-length":             {"0", "-1", "is negative"},
		"x-overflow":               {`"drop-head"`, `"drop"`, "is none of drop-head, reject-publish, reject-publish-dlx"},
	} {
		t.Run(argument, func(t *testing.T) {
			t.Parallel()
			for _, value := range []string{tc.accepted, tc.refused} {
				in := read(t, "argument.json", fmt.Sprintf(`{"queues": [{"name": "billing", "durable": true, "auto_delete": false,
  "arguments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "", %q: %s}}]}`, argument, value))
				in.Rules = []string{"argument-refused"}
				findings := audit.Run(in).Findings
				if value == tc.accepted && len(findings) > 0 {
					t.Errorf("%s: %s", value, findings[0].Evidence)
				}
				if value == tc.refused && (len(findings) != 1 || !strings.HasSuffix(findings[0].Evidence, " "+tc.why)) {
					t.Errorf("%s: %+v, want a finding that it %s", value, findings, tc.why)
				}
			}
		})
	}
}
