package desk_test

import (
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A run sends nothing to a queue alone that is being replaced under its name, and does not stay
// bound to it: the queue is deleted meanwhile. Its messages stay in the hold until that is over.
func TestAReturnWaitsForAReplacement(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	chosen, rest := s.bury(t, 80)
	run := s.takenOnly(t, len(chosen))
	hold := topology.ReplacementHoldName("shop", "billing.dead")
	s.declare(t, hold, amqp091.Table{"x-queue-type": "quorum", topology.ArgManagedBy: topology.DeskMark("shop")})
	for range 2 {
		r, err := s.desk.Return(t.Context(), run, nil)
		if err != nil || r.Moved > 0 || r.Left != len(chosen) || !strings.Contains(r.Stopped, "dlxctl migrate billing.dead") {
			t.Fatalf("%+v, %v", r, err)
		}
		s.awaitReady(t, "billing.dead", len(rest))
	}
	state, err := s.desk.Management.Inspect(t.Context())
	if err != nil || slices.ContainsFunc(state.Have.Bindings, func(b topology.Binding) bool {
		_, _, sends := topology.DeskSender(b)
		return sends && b.Destination == "billing.dead"
	}) {
		t.Fatalf("the run is bound to the queue: %v, %v", state.Have.Bindings, err)
	}
	if _, err := s.ch.QueueDelete(hold, false, false, false); err != nil {
		t.Fatal(err)
	}
	if r, err := s.desk.Return(t.Context(), run, nil); err != nil || r.Moved != len(chosen) || !r.Ended {
		t.Fatalf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing.dead", len(chosen)+len(rest))
	s.tidy(t)
}
