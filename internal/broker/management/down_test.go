package management_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A classic queue whose node is down is known to exist, though the broker does not list it, with
// bindings and without. A queue that was deleted is not taken for one.
func TestQueuesOfANodeThatIsDown(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	target := nodes[0].VHost(t)
	third := nodes[2].See(t, target).Channel(t)
	for _, name := range []string{"bound", "unbound", "gone"} {
		brokertest.Declare(t, third, name, nil)
	}
	brokertest.Bind(t, third, "bound", "k", "amq.topic", nil)
	brokertest.Delete(t, third, "gone")
	// A lock is a queue of one connection. Nothing that was in it can come back.
	if _, err := third.QueueDeclare("shop.lock", false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	m := manage(t, target)
	var state topology.State
	shows := func(down, listed int) bool {
		var err error
		if state, err = m.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(state.Down) == down && len(state.Have.Queues) == listed
	}
	if !shows(0, 3) {
		t.Errorf("before: %v, %v", state.Down, state.Have.Queues)
	}
	name := nodes[2].Name(t)
	nodes[2].Kill(t)
	brokertest.Eventually(t, "the queues of the node to be down", func() bool {
		if shows(2, 0) {
			return true
		}
		vhost := url.PathEscape(target.VHost)
		t.Logf("%v, %v\n%s\n%s", state.Down, state.Have.Queues, target.Call(t, "GET", "bindings/"+vhost, nil),
			target.Call(t, "GET", "queues/"+vhost+"/bound", nil))
		return false
	})
	if !slices.Equal(state.Down, []string{"bound", "unbound"}) {
		t.Errorf("down are %v", state.Down)
	}
	live, err := m.Live(t.Context(), state, 0)
	if err != nil || !strings.Contains(strings.Join(live.Unseen, "\n"), "queues whose node is down, which the broker does not list: bound, unbound; of them it is only known") {
		t.Errorf("unseen: %q, %v", live.Unseen, err)
	}
	const kept = ", which is down, and RabbitMQ keeps the lock until the node is back; start it, or remove it from the cluster"
	held := m.NoHolder(t.Context(), "shop.lock")
	if keeps := target.AtLeast("4.3"); strings.Contains(held, "connected to the node "+name+kept) != keeps ||
		!keeps && held != management.HolderUnknown {
		t.Errorf("of the lock is said: %s", held)
	}
	nodes[2].Start(t)
	brokertest.Eventually(t, "the queues to be back", func() bool { return shows(0, 2) })
}
