package management

import (
	"context"
	"errors"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/topology"
)

// readReplicas reads on which nodes quorum queues have replicas, and which nodes there are. These
// only a user with the tag monitoring may read.
func (m *Client) readReplicas(ctx context.Context, queues []livingQueue, live *topology.Live) error {
	replicas := map[string][]string{}
	for _, q := range queues {
		if q.Type == topology.Quorum {
			replicas[q.Name] = q.Members
		}
	}
	if len(replicas) == 0 {
		return nil
	}
	nodes, running, err := m.Nodes(ctx)
	if errors.Is(err, broker.ErrForbidden) || errors.Is(err, broker.ErrUnauthorized) {
		live.Unseen = append(live.Unseen,
			"whether quorum queues have too few replicas: the user needs the tag monitoring to read the nodes")
		return nil
	}
	live.Nodes, live.Running, live.Replicas = nodes, running, replicas
	return err
}
