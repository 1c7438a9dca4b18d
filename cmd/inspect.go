package cmd

import (
	"context"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// endpointOf reads where the broker of c is. Whatever connects there, over HTTP or
// over AMQP, refuses a broker that is not the one that want is for: no command has
// to think of it.
func (a *app) endpointOf(c broker.Config, want topology.Topology) (broker.Endpoint, error) {
	endpoint, err := c.Resolve()
	endpoint.Accept = func(version, cluster string) error { return plan.Guard(want, version, cluster) }
	return endpoint, err
}

// management opens the management API of the broker that the flags name. load
// comes first: the file may name the virtual host.
func (a *app) management(want topology.Topology) (*broker.Management, error) {
	return a.managementOf(a.conn, want)
}

// managementOf opens the management API that c names.
func (a *app) managementOf(c broker.Config, want topology.Topology) (*broker.Management, error) {
	endpoint, err := a.endpointOf(c, want)
	if err != nil {
		return nil, err
	}
	return broker.NewManagement(endpoint)
}

// inspect reads the broker, and plans. Where the number of consumers decides something,
// the queues are asked themselves, as the statistics of the broker lag.
func inspect(ctx context.Context, m *broker.Management, want topology.Topology, o plan.Options) (plan.State, plan.Plan, error) {
	state, err := m.Inspect(ctx)
	if err != nil {
		return plan.State{}, plan.Plan{}, err
	}
	p := plan.Make(want, state, o)
	if decisive := plan.Decisive(p, want, state); len(decisive) > 0 {
		state = m.AskConsumers(ctx, state, decisive)
		p = plan.Make(want, state, o)
	}
	return state, p, nil
}

// makePlan reads the broker and compares.
func (a *app) makePlan(ctx context.Context, m *broker.Management, want topology.Topology, o plan.Options) (plan.Plan, error) {
	_, p, err := inspect(ctx, m, want, o)
	return p, err
}
