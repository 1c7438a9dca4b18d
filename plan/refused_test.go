package plan_test

import (
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue that the line of the broker refuses is blocked, unless it exists as it is wanted.
func TestWhatTheBrokerRefusesIsBlocked(t *testing.T) {
	t.Parallel()
	file := spectest.Compile(t, "version: 1\nname: shop\nqueues: [{name: q, type: classic, backoff: none, arguments: {x-queue-version: 1}}]\n")
	exists := topology.Topology{Queues: []topology.Queue{{Name: "q", Durable: true, Arguments: file.Queues[0].Arguments}}}
	other := topology.Topology{Queues: []topology.Queue{{
		Name: "q", Durable: true, Arguments: file.Queues[0].Arguments.With(topology.ArgMaxLength, int64(5)),
	}}}
	for _, tc := range []struct {
		version string
		have    topology.Topology
		want    string // the reason, empty if nothing is blocked
	}{
		{"3.10.8", topology.Topology{}, ""},
		{"4.0.5", topology.Topology{}, ""},
		{"4.3.6", topology.Topology{}, "RabbitMQ 4.3.6 refuses the queue: x-queue-version is 1; write 2"},
		{"4.3.6", exists, ""},
		{"4.3.6", other, "RabbitMQ 4.3.6 refuses the queue: x-queue-version is 1; write 2"},
	} {
		var reasons []string
		for _, c := range plan.Make(file, topology.State{Version: tc.version, Have: tc.have}, plan.Options{}).Changes {
			if c.Action == plan.Blocked {
				reasons = append(reasons, c.Reason)
			}
		}
		if got := strings.Join(reasons, "|"); got != tc.want {
			t.Errorf("%s: blocked by %q, want %q", tc.version, got, tc.want)
		}
	}
}
