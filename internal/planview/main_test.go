package planview_test

import (
	"maps"

	"github.com/dlxctl/dlxctl/topology"
)

// args are arguments of objects.
type args = topology.Arguments

// queue returns a work queue of the topology shop.
func queue(name string, more args) topology.Queue {
	all := args{topology.ArgQueueType: topology.Quorum, topology.ArgManagedBy: topology.OwnerMark("shop")}
	maps.Copy(all, more)
	return topology.Queue{
		Name: name, Durable: true, Arguments: all, Label: topology.Label{Role: topology.RoleWork, Queue: name},
	}
}
