package management

import (
	"context"
	"net/url"
)

// Delivered returns how many messages a queue has delivered to consumers, each once, however often
// it was redelivered. The statistics can be as old as StatisticsLag. Zero may also mean that the
// broker keeps none.
func (m *Client) Delivered(ctx context.Context, queue string) (int64, error) {
	var q struct {
		Stats struct {
			Delivered   int64 `json:"deliver_get"`
			Redelivered int64 `json:"redeliver"`
		} `json:"message_stats"`
	}
	path := "queues/" + url.PathEscape(m.vhost) + "/" + url.PathEscape(queue)
	if err := m.get(ctx, &q, path); err != nil {
		return 0, err
	}
	return q.Stats.Delivered - q.Stats.Redelivered, nil
}
