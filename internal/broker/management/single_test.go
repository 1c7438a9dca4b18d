package management_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A quorum queue with a single active consumer, on which the broker refuses basic.get, is proved
// empty and deleted.
func TestAQueueWithASingleActiveConsumerCanBeDeleted(t *testing.T) {
	t.Parallel()
	m := manage(t, brokertest.VHost(t))
	q := topology.Queue{
		Name: "q", Durable: true,
		Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum, "x-single-active-consumer": true},
	}
	apply(t, m, q)
	if err := m.Fresh().Apply(t.Context(), plan.Change{Action: plan.Delete, Before: q}); err != nil {
		t.Fatal(err)
	}
	if left := inspect(t, m).Queues; len(left) > 0 {
		t.Errorf("it is left: %v", left)
	}
}
