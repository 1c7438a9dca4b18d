package management_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// The member of a quorum queue whose node is down outlives the queue, and comes back in the next
// queue of that name with the messages of the deleted one: the queue stays until the node is up.
func TestAQueueStaysWhileAMemberIsDown(t *testing.T) {
	t.Parallel()
	nodes := brokertest.UpgradedCluster(t)
	target := nodes[0].VHost(t)
	m := manage(t, target)
	m.UseAMQP(dial(t, target))
	q := topology.Queue{Name: "q", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: "quorum"}}
	apply(t, m, q)
	down := nodes[2].Name(t)
	nodes[2].Kill(t)
	reported := 0 // in a row: 4.3 may report the dead node as up once more
	brokertest.Eventually(t, "a node that is reported as down", func() bool {
		if online, _ := target.Queue(t, "q")["online"].([]any); len(online) != 2 {
			reported = 0
			return false
		}
		reported++
		return reported == 20
	}, &reported)
	err := m.Fresh().Apply(t.Context(), plan.Change{Action: plan.Delete, Before: q})
	if !errors.Is(err, broker.ErrUnreachable) || !strings.Contains(err.Error(), down) {
		t.Fatalf("got %v, want an error that names %s", err, down)
	}
	nodes[2].Start(t)
	brokertest.Eventually(t, "the deletion after the node has started", func() bool {
		return m.Fresh().Apply(t.Context(), plan.Change{Action: plan.Delete, Before: q}) == nil
	})
}
