package broker

import (
	"context"
	"fmt"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// ProveEmpty makes sure that queues hold no message, ready, unacknowledged or on its way to a
// dead-letter exchange. It fails with ErrRefused if one holds a message or does not tell, and
// with ErrForbidden if the user may not ask. A queue that is gone holds none.
//
// The counts are read more than 5 seconds after the call, as they can be that old. A quorum queue
// is asked itself besides: its count is 0 too when its leader does not answer. That takes the
// permission to read it, and gives back a message that it finds.
func (m *Management) ProveEmpty(ctx context.Context, queues []topology.Queue) error {
	fresh := m.Fresh()
	for _, q := range queues {
		if q.Type() != topology.Classic {
			if _, err := fresh.prove(ctx, q, conditions{empty: true}); err != nil {
				return fmt.Errorf("the queue %s: %w", q.Name, err)
			}
			continue
		}
		usage, err := fresh.census.usage(ctx, fresh.usage)
		if err != nil {
			return err
		}
		now := usage[q.Name]
		switch held := now.Ready + now.Unacknowledged; {
		case now.unknown:
			return tell(ErrRefused, "the queue %s: the broker does not tell how many messages it holds", q.Name)
		case held > 0:
			return tell(ErrRefused, "the queue %s holds %d messages", q.Name, held)
		}
	}
	return nil
}

// ReadRights gives the rights that ProveEmpty takes.
func ReadRights(queues []topology.Queue) []plan.Right {
	var out []plan.Right
	for _, q := range queues {
		if q.Type() != topology.Classic {
			out = append(out, plan.Right{Permission: plan.Read, Kind: topology.KindQueue, Name: q.Name})
		}
	}
	return out
}
