package apply

import (
	"context"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Unprinted says what a refusal says of rights that the file does not tell.
func Unprinted(t topology.Compiled, lacking []plan.Right) string { return unprinted(t, lacking) }

// HandOverQueue is the hand-over of one queue.
func HandOverQueue(ctx context.Context, e broker.Endpoint, top, queue string) (int64, error) {
	h := &handler{topology: top}
	err := handOverQueue(ctx, e, h, queue)
	return h.moved.Load(), err
}
