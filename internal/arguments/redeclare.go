package arguments

import (
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// Redeclaration is what RabbitMQ answers to a service that declares a queue as it was, once it is
// another queue under that name. TestRedeclaredOnABroker measures it on RabbitMQ 3.10.8, 4.0.5 and
// 4.3.6.
type Redeclaration struct {
	// Differing are the properties and arguments that RabbitMQ compares and that differ, by name: it
	// answers 406 PRECONDITION_FAILED. None: it accepts the declaration.
	Differing []string
	// ByDefaultType says that RabbitMQ accepts the declaration if it has no x-queue-type and
	// default_queue_type of the virtual host is quorum.
	ByDefaultType bool
	// Relaxed says that RabbitMQ accepts the declaration with the setting [RelaxedChecks].
	Relaxed bool
}

// RelaxedChecks is the setting of a node that lets services declare quorum queues as classic ones.
// By the documentation of RabbitMQ it exists from 3.11.16 on.
const RelaxedChecks = "quorum_queue.property_equivalence.relaxed_checks_on_redeclaration = true"

// Redeclared returns what RabbitMQ of a version answers. For a version between 3.10 and 4.0 it is
// what 3.10 does, which no setting changes.
func Redeclared(version string, was, is topology.Queue) Redeclaration {
	var out Redeclaration
	for _, name := range comparedBy(is.Type()) {
		if topology.FormatValue(was.Arguments[name]) != topology.FormatValue(is.Arguments[name]) {
			out.Differing = append(out.Differing, name)
		}
	}
	if was.Type() != is.Type() { // neither needs to have the argument
		out.Differing = append(out.Differing, topology.ArgQueueType)
	}
	if was.Durable != is.Durable {
		out.Differing = append(out.Differing, "durable")
	}
	slices.Sort(out.Differing)
	state := topology.State{Version: version}
	if was.Type() != topology.Classic || is.Type() != topology.Quorum || !state.AtLeast(4, 0) {
		return out
	}
	only := func(names ...string) bool {
		return !slices.ContainsFunc(out.Differing, func(name string) bool { return !slices.Contains(names, name) })
	}
	out.ByDefaultType = only(topology.ArgQueueType)
	out.Relaxed = only(topology.ArgQueueType, topology.ArgOverflow, topology.ArgDeliveryLimit,
		topology.ArgDeadLetterStrategy, "durable")
	return out
}

// Compared returns the arguments that RabbitMQ compares when a service declares a queue that
// exists. It leaves out x-queue-mode, which makes no other queue since RabbitMQ 3.12.
func Compared() []string {
	return []string{
		topology.ArgQueueType, topology.ArgDeadLetterExchange, topology.ArgDeadLetterRoutingKey, topology.ArgMessageTTL,
		topology.ArgMaxLength, topology.ArgMaxLengthBytes, topology.ArgOverflow, topology.ArgMaxPriority,
		topology.ArgSingleActiveConsumer, topology.ArgExpires, topology.ArgDeliveryLimit, topology.ArgDeadLetterStrategy,
	}
}

// comparedBy returns the arguments that RabbitMQ compares for an existing queue of a type, without
// x-queue-type.
func comparedBy(queueType string) []string {
	ignored := []string{topology.ArgQueueType, topology.ArgMaxPriority}
	out := Compared()
	if queueType == topology.Classic {
		ignored = []string{topology.ArgQueueType, topology.ArgDeliveryLimit, topology.ArgDeadLetterStrategy}
		out = append(out, queueMode)
	}
	return slices.DeleteFunc(out, func(name string) bool { return slices.Contains(ignored, name) })
}
