package apply_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A plan asks the failed queue for its processors, and the broker for the rights of the user, over
// one connection: where the AMQP port does not answer, it waits once.
func TestAPlanConnectsOnce(t *testing.T) {
	t.Parallel()
	target, cable := brokertest.NewProxy(t, brokertest.VHost(t))
	// Without consumers, it is asked.
	brokertest.Declare(t, target.Channel(t), "shop.a.failed", nil)
	e := managementtest.Endpoint(t, target)
	s, err := apply.Open(e, spectest.Compile(t, `
version: 1
name: shop
backoff: {a: {tiers: [1m]}}
queues: [{name: q, backoff: a}]
`))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := cable.Connections()
	state, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Make(s.Topology, state, plan.Options{})
	if !state.Usage["shop.a.failed"].ConsumersAsked || p.Empty() {
		t.Fatalf("the queue was not asked, or nothing is planned: %+v", state.Usage)
	}
	if warning, err := s.MissingRights(t.Context(), p, true); warning != nil || err != nil {
		t.Errorf("missing rights: %+v, %v", warning, err)
	}
	if n := cable.Connections() - before; n != 1 {
		t.Errorf("the plan made %d AMQP connections", n)
	}
}

// A change that leaves a name behind says that the rights on it are those of the previous file.
func TestRightsOnWhatTheFileNoLongerHas(t *testing.T) {
	t.Parallel()
	const file = "version: 1\nname: shop\nqueues: [{name: q, backoff: none, dead: "
	before, after := spectest.Compile(t, file+"{queue: graves}}]\n"), spectest.Compile(t, file+"own}]\n")
	p := plan.Make(after, topology.State{Version: "4.3.6", Have: before.Topology}, plan.Options{})
	const want = "; it prints none on graves, which the file does not have: for this change, keep those of the previous file too, or add them"
	if got := apply.Unprinted(after, plan.Rights(p)); got != want {
		t.Errorf("the refusal says %q", got)
	}
	p = plan.Make(before, topology.State{Version: "4.3.6"}, plan.Options{})
	if got := apply.Unprinted(before, plan.Rights(p)); got != "" {
		t.Errorf("of a new topology the refusal says %q", got)
	}
}
