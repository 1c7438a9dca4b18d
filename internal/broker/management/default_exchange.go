package management

import (
	"context"
	"net/url"
)

// DefaultExchangeUse is what is known of the messages that came to a queue by its name, through the
// default exchange.
type DefaultExchangeUse struct {
	// Messages is how many came since the broker keeps statistics. With Certain unset it is an
	// upper bound: the broker counts what came to the queue and what went through the default
	// exchange, and not the messages that did both, unless its management.rates_mode is detailed.
	Messages int64
	Certain  bool
}

// PublishedByName asks the broker's statistics, which are up to 5 seconds old, for messages that
// came to a queue by its name. Without statistics, or if the queue does not exist, it returns zero,
// not certain.
func (m *Client) PublishedByName(ctx context.Context, queue string) (DefaultExchangeUse, error) {
	type counts struct {
		Publish int64 `json:"publish"`
		Out     int64 `json:"publish_out"`
	}
	var q struct {
		Stats    *counts `json:"message_stats"`
		Incoming []struct {
			Exchange struct {
				Name string `json:"name"`
			} `json:"exchange"`
			Stats counts `json:"stats"`
		} `json:"incoming"`
	}
	var e struct {
		Stats *counts `json:"message_stats"`
	}
	vhost := url.PathEscape(m.vhost)
	err := m.get(ctx, &q, "queues/"+vhost+"/"+url.PathEscape(queue))
	// the broker gives the same answer for both
	if isGone(err) {
		return DefaultExchangeUse{}, nil
	}
	if err == nil {
		err = m.get(ctx, &e, "exchanges/"+vhost+"/amq.default")
	}
	switch {
	case err != nil:
		return DefaultExchangeUse{}, err
	case len(q.Incoming) > 0:
		b := DefaultExchangeUse{Certain: true}
		for _, i := range q.Incoming {
			if i.Exchange.Name == "" {
				b.Messages += i.Stats.Publish
			}
		}
		return b, nil
	case q.Stats == nil || e.Stats == nil:
		return DefaultExchangeUse{}, nil
	}
	return DefaultExchangeUse{Messages: min(q.Stats.Publish, e.Stats.Out)}, nil
}
