package management

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// counter is what a number that only rises was at some times.
type counter struct {
	Samples []sample `json:"samples"`
}

type sample struct {
	Value int64 `json:"sample"`
	Time  int64 `json:"timestamp"` // in milliseconds, of the broker's clock
}

// Traffic reads how many messages of these queues were delivered and acknowledged in the time
// within, in steps, which must be 5 seconds or a multiple. The broker has samples of 5 seconds for
// 10 minutes, and of a minute for an hour. The last step may have begun a step ago; it ends now. A
// queue of which the broker keeps no statistics, or not for that long, is not in the result. The
// statistics are up to 5 seconds late.
func (m *Client) Traffic(ctx context.Context, queues []string, within, step time.Duration) (map[string]topology.Traffic,
	error,
) {
	query := "?columns=name,message_stats.deliver_get,message_stats.redeliver,message_stats.ack," +
		"message_stats.deliver_get_details.samples,message_stats.redeliver_details.samples,message_stats.ack_details.samples" +
		"&msg_rates_age=" + strconv.Itoa(int(within.Seconds())) + "&msg_rates_incr=" + strconv.Itoa(int(step.Seconds()))
	list, err := m.statistics(ctx, queues, fewQueues, query)
	if err != nil {
		return nil, err
	}
	out := map[string]topology.Traffic{}
	for _, q := range list {
		if n, known := q.traffic(); known && slices.Contains(queues, q.Name) {
			out[q.Name] = n
		}
	}
	return out, nil
}

// traffic returns what was counted since the oldest sample.
func (s statistic) traffic() (topology.Traffic, bool) {
	var stats struct {
		Delivered       int64   `json:"deliver_get"`
		Redelivered     int64   `json:"redeliver"`
		Acknowledged    int64   `json:"ack"`
		DeliveredThen   counter `json:"deliver_get_details"`
		RedeliveredThen counter `json:"redeliver_details"`
		AckedThen       counter `json:"ack_details"`
	}
	if json.Unmarshal(s.Traffic, &stats) != nil {
		return topology.Traffic{}, false
	}
	delivered, from := stats.DeliveredThen.since(stats.Delivered)
	acknowledged, also := stats.AckedThen.since(stats.Acknowledged)
	redelivered, third := stats.RedeliveredThen.since(stats.Redelivered)
	return topology.Traffic{
		Within: from, Delivered: delivered, Redelivered: redelivered, Acknowledged: acknowledged,
		Redelivering: stats.RedeliveredThen.rises(),
	}, min(from, also, third) > 0
}

// since returns by how much the counter has risen to now since its oldest sample, and how long ago
// that is at least. Zero: it has not two samples.
func (c counter) since(now int64) (risen int64, ago time.Duration) {
	if len(c.Samples) < 2 {
		return 0, 0
	}
	c.sort()
	first, last := c.Samples[0], c.Samples[len(c.Samples)-1]
	return now - first.Value, time.Duration(last.Time-first.Time) * time.Millisecond
}

// rises counts the steps between samples in which the counter rose.
func (c counter) rises() int {
	c.sort()
	n := 0
	for i := 1; i < len(c.Samples); i++ {
		if c.Samples[i].Value > c.Samples[i-1].Value {
			n++
		}
	}
	return n
}

// sort orders the samples, the oldest first.
func (c counter) sort() {
	slices.SortFunc(c.Samples, func(a, b sample) int { return cmp.Compare(a.Time, b.Time) })
}
