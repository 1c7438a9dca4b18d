package management

import (
	"context"
	"net/url"
	"slices"

	"github.com/dlxctl/dlxctl/topology"
)

// DefaultExchangeUse is what is known of the messages that came to a queue by its name, through the
// default exchange.
type DefaultExchangeUse struct {
	// Messages is how many came since the broker keeps statistics. With Certain unset it is an
	// upper bound: the broker counts what came to the queue and what went through the default
	// exchange, and not the messages that did both, unless its management.rates_mode is detailed.
	Messages int64
	Certain  bool
	// Rate is how many of them came in a second lately, with the same limits. Nil: it is not known.
	Rate *float64
}

// published is how many messages the broker counts.
type published struct {
	In      int64 `json:"publish"`
	Out     int64 `json:"publish_out"`
	InRate  rate  `json:"publish_details"`
	OutRate rate  `json:"publish_out_details"`
}

// rate is how often something happens. Without rates, the broker leaves it out.
type rate struct {
	PerSecond *float64 `json:"rate"`
}

// PublishedByName asks the broker's statistics, which are up to 5 seconds old, for messages that
// came to a queue by its name. Without statistics, or if the queue does not exist, it returns zero,
// not certain.
func (m *Client) PublishedByName(ctx context.Context, queue string) (DefaultExchangeUse, error) {
	all, err := m.AllPublishedByName(ctx, []string{queue})
	return all[queue], err
}

// AllPublishedByName is [Client.PublishedByName] for some queues.
func (m *Client) AllPublishedByName(ctx context.Context, queues []string) (map[string]DefaultExchangeUse, error) {
	var e struct {
		Stats *published `json:"message_stats"`
	}
	err := m.get(ctx, &e, "exchanges/"+url.PathEscape(m.vhost)+"/"+topology.DefaultExchange)
	if err != nil && !isGone(err) { // the virtual host is gone, and its queues too
		return nil, err
	}
	out := map[string]DefaultExchangeUse{}
	for some := range slices.Chunk(queues, fewQueues) {
		found := make([]DefaultExchangeUse, len(some))
		var reads []func() error
		for i, queue := range some {
			reads = append(reads, func() (err error) { found[i], err = m.publishedByName(ctx, queue, e.Stats); return err })
		}
		if err := together(reads); err != nil {
			return nil, err
		}
		for i, queue := range some {
			out[queue] = found[i]
		}
	}
	return out, nil
}

// publishedByName is PublishedByName. through is what went through the default exchange. Nil: it is
// not known.
func (m *Client) publishedByName(ctx context.Context, queue string, through *published) (DefaultExchangeUse, error) {
	var q struct {
		Stats    *published `json:"message_stats"`
		Incoming []struct {
			Exchange struct {
				Name string `json:"name"`
			} `json:"exchange"`
			Stats published `json:"stats"`
		} `json:"incoming"`
	}
	err := m.get(ctx, &q, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(queue))
	switch {
	case isGone(err): // the broker gives the same answer for a queue and for a virtual host
		return DefaultExchangeUse{}, nil
	case err != nil:
		return DefaultExchangeUse{}, err
	case len(q.Incoming) > 0:
		b := DefaultExchangeUse{Certain: true, Rate: new(float64)}
		for _, i := range q.Incoming {
			if i.Exchange.Name == "" {
				b.Messages, b.Rate = b.Messages+i.Stats.In, i.Stats.InRate.PerSecond
			}
		}
		return b, nil
	case q.Stats == nil || through == nil:
		return DefaultExchangeUse{}, nil
	}
	b := DefaultExchangeUse{Messages: min(q.Stats.In, through.Out), Rate: q.Stats.InRate.PerSecond}
	if out := through.OutRate.PerSecond; b.Rate != nil && out != nil && *out < *b.Rate {
		b.Rate = out
	}
	return b, nil
}
