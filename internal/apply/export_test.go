package apply

import (
	"context"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// HandOverQueue is the hand-over of one queue.
func HandOverQueue(ctx context.Context, e broker.Endpoint, top, queue string) (int64, error) {
	h := &handler{topology: top}
	err := handOverQueue(ctx, e, h, queue)
	return h.moved.Load(), err
}
