package cmd

import (
	"context"
	"slices"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// foundMessage is a message that was found by its handle.
type foundMessage struct {
	message deadletter.Message
	view    deadletter.View
}

// findMessage finds the message with the handle args[0] in the queue args[1], or else in the
// dead-letter queues of the topology and in its parked and unroutable queues.
func (a *app) findMessage(
	ctx context.Context, d *desk.Desk, args []string, o desk.LookOptions,
) (found foundMessage, err error) {
	queues := append(d.DeadLetterQueues(), topology.ParkedName(d.Topology.Name), topology.UnroutableName(d.Topology.Name))
	if len(args) > 1 {
		place, err := deskQueue(d.Topology, args[1])
		if err != nil {
			return found, err
		}
		queues = []string{place.queue}
	}
	err = d.Find(ctx, queues, args[0], o, func(m deadletter.Message, v deadletter.View) error {
		found.message, found.view = m, v
		found.message.Delivery.Body = slices.Clone(m.Delivery.Body) // it is valid only during the call
		return nil
	})
	return found, err
}
