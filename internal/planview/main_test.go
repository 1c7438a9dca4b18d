package planview_test

import (
	"flag"
	"maps"

	"github.com/dlxctl/dlxctl/topology"
)

var update = flag.Bool("update", false, "write what the golden tests get as what they want")

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
