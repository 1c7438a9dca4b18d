package management

import (
	"context"
	"net/url"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// Delivered returns how many messages a queue has delivered to consumers, each once, however often
// it was redelivered. The statistics can be as old as StatisticsLag. Zero may also mean that the
// broker keeps none.
func (m *Client) Delivered(ctx context.Context, queue string) (int64, error) {
	stats, err := m.messageStats(ctx, queue, url.Values{})
	if stats == nil {
		return 0, err
	}
	return stats.DeliverGet - stats.Redeliver, nil
}

// messageStats returns the statistics of the messages of a queue. They are nil if the broker keeps
// none. The query says which samples they have.
func (m *Client) messageStats(ctx context.Context, queue string, query url.Values) (*rabbithole.MessageStats, error) {
	query.Set("columns", "name,message_stats") // without a name, the broker would write no statistics as []
	q, err := m.with(ctx).GetQueueWithParameters(m.vhost, queue, query)
	if q == nil {
		return nil, m.unread("queues/"+m.vhost+"/"+queue, err)
	}
	return q.MessageStats, nil
}
