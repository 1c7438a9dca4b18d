package management

import (
	"context"
	"errors"
	"net/url"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// ErrNoStatistics says that a broker keeps no statistics of messages, as images of RabbitMQ without
// "management" in their tag are configured, also where the plugin is enabled later.
var ErrNoStatistics = errors.New("the broker keeps no statistics (management_agent.disable_metrics_collector)")

// Delivered returns how many messages a queue has delivered to consumers, each once, however often
// it was redelivered. The statistics can be as old as StatisticsLag. It fails with ErrNoStatistics
// if the broker keeps none.
func (m *Client) Delivered(ctx context.Context, queue string) (int64, error) {
	stats, err := m.messageStats(ctx, queue, url.Values{})
	if err == nil && stats == nil { // or nothing was published to the queue since its node started
		err = m.requireStatistics(ctx)
	}
	if stats == nil {
		return 0, err
	}
	return stats.DeliverGet - stats.Redeliver, nil
}

// requireStatistics fails with ErrNoStatistics if the broker keeps none.
func (m *Client) requireStatistics(ctx context.Context) error {
	if c, err := m.collecting(ctx); err != nil || !c.Off {
		return err
	}
	return ErrNoStatistics
}

// collecting says which statistics the node that answers collects.
type collecting struct {
	Node  string `json:"node"`
	Rates string `json:"rates_mode"`
	Off   bool   `json:"disable_stats"` // it collects none
}

func (m *Client) collecting(ctx context.Context) (c collecting, err error) {
	err = m.get(ctx, &c, "overview?columns=node,rates_mode,disable_stats")
	return c, err
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
