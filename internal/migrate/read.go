package migrate

import (
	"context"

	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/topology"
)

// Previews returns the next steps of the migrations in a state, and which publishers
// address a legacy queue by its name. It writes nothing.
func (r *Runner) Previews(ctx context.Context, state topology.State) ([]Preview, error) {
	list := Previews(r.Topology, state, r.Legacy)
	for i := range list {
		var err error
		if list[i].ByName, err = r.ByName(ctx, list[i].Move); err != nil {
			return nil, err
		}
		if r.allows(list[i].Legacy) {
			continue
		}
		held := list[i].Ready + list[i].Unacknowledged
		if list[i].Stays, err = r.byName(ctx, list[i].Move, state, held); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ReadStatuses returns the progress of the migrations in a state, and since when no message
// has arrived at a forwarder.
func ReadStatuses(
	ctx context.Context, m *management.Client, want topology.Compiled, state topology.State,
) ([]Status, error) {
	list := Statuses(want, state)
	for i := range list {
		if !list[i].Forwards {
			continue
		}
		quiet, known, err := m.LastArrival(ctx, list[i].Legacy, ForwarderAge)
		if err != nil {
			return nil, err
		}
		if known {
			list[i].Quiet = &quiet
		}
	}
	return list, nil
}
