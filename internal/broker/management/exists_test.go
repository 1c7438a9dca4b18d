package management_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A queue is asked by its name whether it exists.
func TestAQueueExists(t *testing.T) {
	t.Parallel()
	m := manage(t, brokertest.VHost(t))
	apply(t, m, topology.Queue{Name: "a/b c", Durable: true})
	for name, want := range map[string]bool{"a/b c": true, "a": false, "..": false} {
		if got, err := m.Exists(t.Context(), name); got != want || err != nil {
			t.Errorf("%q exists: %t, %v", name, got, err)
		}
	}
}
