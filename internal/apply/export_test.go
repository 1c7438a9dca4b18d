package apply

import (
	"context"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// HandOverQueue is the hand-over of one queue.
func HandOverQueue(ctx context.Context, e broker.Endpoint, top, queue string) (int64, error) {
	return handOverQueue(ctx, e, top, queue)
}
