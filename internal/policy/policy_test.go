package policy_test

import (
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

// Which keys classic queues do not know changes from line to line, also between those that
// TestUnknownKeysOnABroker measures.
func TestUnknownKeysOfALine(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][2]bool{
		"": {true, false}, "3.11.28": {true, false}, "3.12.14": {true, true}, "3.13.7": {true, true},
		"4.1.8": {false, true}, "4.2.9": {false, true},
	} {
		keys := policy.All(topology.State{Version: version}).UnknownKeys(topology.Classic)
		got := [2]bool{slices.Contains(keys, "queue-leader-locator"), slices.Contains(keys, "max-in-memory-bytes")}
		if got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
