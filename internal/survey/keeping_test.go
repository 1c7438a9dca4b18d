package survey_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/topology"
)

// Dead-letter queues are found by dead-lettering, directly and through a retry queue, and by the
// names of error queues. Of each the work queues are known, as far as the objects tell.
func TestDeadLetterQueues(t *testing.T) {
	t.Parallel()
	got := survey.New(virtualHost(`
	exchange events fanout
	exchange orders_error fanout
	exchange dlx fanout
	queue orders
	queue orders_error
	queue error
	queue ship dlx= key=ship.wait
	queue ship.wait ttl dlx= key=ship.dlq
	queue ship.dlq
	queue bill dlx=dlx
	queue tax dlx=dlx
	queue graveyard
	queue plain
	bind events orders
	bind events ship
	bind events bill
	bind events tax
	bind events plain
	bind orders_error orders_error
	bind dlx graveyard
	`)).DeadLetterQueues()
	want := []survey.Keeping{
		{Queue: "error", By: survey.ByName},
		{Queue: "graveyard", By: survey.ByDeadLettering, Of: []string{"bill", "tax"}},
		{Queue: "orders_error", By: survey.ByName, Of: []string{"orders"}},
		{Queue: "ship.dlq", By: survey.ByDeadLettering, Of: []string{"ship"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("dead-letter queues (-want +got):\n%s", d)
	}
}

// What dlxctl made is known by its marks: the bindings of the exchange NAME.dead name the work
// queues, also to a dead-letter queue that is not of the topology.
func TestDeadLetterQueuesOfATopology(t *testing.T) {
	t.Parallel()
	mark := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("shop")}
	state := virtualHost(`
	exchange shop.dead direct
	queue billing
	queue mail
	queue billing.dead
	queue graves`)
	for i, q := range state.Have.Queues {
		if q.Name == "billing.dead" {
			state.Have.Queues[i].Arguments = q.Arguments.With(topology.ArgManagedBy, topology.OwnerMark("shop"))
		}
	}
	for work, dead := range map[string]string{"billing": "billing.dead", "mail": "graves"} {
		state.Have.Bindings = append(state.Have.Bindings, topology.Binding{
			Source: topology.DeadLetterName("shop"), Destination: dead, DestinationType: topology.ToQueue,
			Key: topology.AddressKey(work), Arguments: mark,
		})
	}
	want := []survey.Keeping{
		{Queue: "billing.dead", By: survey.ByMark, Topology: "shop", Of: []string{"billing"}},
		{Queue: "graves", By: survey.ByMark, Topology: "shop", Of: []string{"mail"}},
	}
	if d := cmp.Diff(want, survey.New(state).DeadLetterQueues()); d != "" {
		t.Errorf("dead-letter queues (-want +got):\n%s", d)
	}
}
