package audit_test

import (
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
)

// The audit says what RabbitMQ of its version refuses; package arguments has the table, measured.
func TestArgumentRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ version, argument, want string }{
		{"3.10.8", `"x-queue-version": 1`, ""},
		{"4.3.6", `"x-queue-version": 1`, "x-queue-version is 1; write 2"},
		{"", `"x-queue-version": 1`, ""},
		{"", `"x-delivery-limit": 5, "x-max-length": -1`, "x-delivery-limit is for quorum queues. x-max-length is -1; write 0 or more"},
		{"4.0.5", `"x-consumer-timeout": 60000`, ""},
		{"4.3.6", `"x-consumer-timeout": 60000`, "x-consumer-timeout is for quorum queues"},
	} {
		in := read(t, "argument.json", fmt.Sprintf(
			`{"queues": [{"name": "billing", "durable": true, "auto_delete": false, "arguments": {%s}}]}`, tc.argument))
		in.Rules, in.State.Version = []string{"argument-refused"}, tc.version
		got := ""
		for _, f := range audit.Run(in).Findings {
			got += f.Evidence
		}
		if got != tc.want {
			t.Errorf("%q %s: %q, want %q", tc.version, tc.argument, got, tc.want)
		}
	}
}
