package broker

import (
	"context"
	"errors"
	"net/url"
)

// ByName is what is known of messages that came to a queue by its name, through
// the default exchange.
type ByName struct {
	// Messages is how many came since the broker keeps statistics. With Certain
	// unset it is how many at most: the broker counts what came to the queue and
	// what went through the default exchange, and not how much of the one is of
	// the other, unless its management.rates_mode is detailed.
	Messages int64
	Certain  bool
}

// PublishedByName asks the broker's statistics, which are up to 5 seconds old,
// for messages that came to a queue by its name. A broker that keeps none, or a
// queue that does not exist, gives zero, not certain.
func (m *Management) PublishedByName(ctx context.Context, queue string) (ByName, error) {
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
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoVHost) { // the broker says the same of both
		return ByName{}, nil
	}
	if err == nil {
		err = m.get(ctx, &e, "exchanges/"+vhost+"/amq.default")
	}
	switch {
	case err != nil:
		return ByName{}, err
	case len(q.Incoming) > 0:
		b := ByName{Certain: true}
		for _, i := range q.Incoming {
			if i.Exchange.Name == "" {
				b.Messages += i.Stats.Publish
			}
		}
		return b, nil
	case q.Stats == nil || e.Stats == nil:
		return ByName{}, nil
	}
	return ByName{Messages: min(q.Stats.Publish, e.Stats.Out)}, nil
}
