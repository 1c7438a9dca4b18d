package management

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// LastArrival returns how long ago the last message arrived in a queue. It looks back as far as
// within: if none arrived in that time, it returns within. The broker's statistics are 5 seconds
// old; they cover 10 minutes at intervals of 5 seconds and an hour at intervals of a minute. It
// reports false if the broker keeps no statistics.
func (m *Client) LastArrival(ctx context.Context, queue string, within time.Duration) (ago time.Duration, known bool,
	err error,
) {
	step := 5 * time.Second
	if within > 10*time.Minute {
		step = time.Minute
	}
	stats, err := m.messageStats(ctx, queue, url.Values{
		"msg_rates_age":  {strconv.Itoa(int(within.Seconds()))},
		"msg_rates_incr": {strconv.Itoa(int(step.Seconds()))},
	})
	if stats == nil || len(stats.PublishDetails.Samples) < 2 {
		return 0, false, err
	}
	samples := stats.PublishDetails.Samples
	slices.SortFunc(samples, func(a, b rabbithole.RateDetailSample) int {
		return cmp.Compare(b.Timestamp, a.Timestamp) // the newest first
	})
	for i := range len(samples) - 1 {
		if samples[i].Sample != samples[i+1].Sample {
			// of the broker's clock
			return time.Duration(samples[0].Timestamp-samples[i].Timestamp) * time.Millisecond, true, nil
		}
	}
	return within, true, nil
}
