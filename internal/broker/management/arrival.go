package management

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// LastArrival returns how long ago the last message arrived in a queue. It looks back as far as
// within: if none arrived in that time, it returns within. The broker's statistics are 5 seconds
// old; they cover 10 minutes at intervals of 5 seconds and an hour at intervals of a minute. It
// reports false if the broker keeps no statistics.
func (m *Client) LastArrival(ctx context.Context, queue string, within time.Duration) (ago time.Duration, known bool,
	err error,
) {
	type sample struct {
		Count int64 `json:"sample"`
		At    int64 `json:"timestamp"` // Unix time in milliseconds, of the broker's clock
	}
	var q struct {
		Stats *struct {
			Details struct {
				Samples []sample `json:"samples"`
			} `json:"publish_details"`
		} `json:"message_stats"`
	}
	step := 5 * time.Second
	if within > 10*time.Minute {
		step = time.Minute
	}
	path := fmt.Sprintf("queues/%s/%s?msg_rates_age=%d&msg_rates_incr=%d",
		url.PathEscape(m.vhost), url.PathEscape(queue), int(within.Seconds()), int(step.Seconds()))
	if err := m.get(ctx, &q, path); err != nil || q.Stats == nil || len(q.Stats.Details.Samples) < 2 {
		return 0, false, err
	}
	samples := q.Stats.Details.Samples
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(b.At, a.At) }) // the newest first
	for i := range len(samples) - 1 {
		if samples[i].Count != samples[i+1].Count {
			return time.Duration(samples[0].At-samples[i].At) * time.Millisecond, true, nil
		}
	}
	return within, true, nil
}
