package management

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

// Fresh returns the same client with counts that are read anew: those that prove a quorum queue
// empty are newer than this call.
func (m *Client) Fresh() *Client {
	fresh := *m
	fresh.census = &census{}
	return &fresh
}

// countsLag is how old the counts of a quorum queue can be, with a margin.
const countsLag = broker.Tick + time.Second

// census reads the counts of all queues for deletions that run at the same time.
type census struct {
	mu    sync.Mutex
	since time.Time // when the first asked, or a binding was last removed
	taken time.Time
	last  map[string]counts
}

// counts are what a queue holds.
type counts struct {
	topology.Usage

	unknown bool // the broker does not report how many messages
}

// cut notes that a binding was removed: counts show the last message that came through it only
// later.
func (c *census) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.taken = time.Now(), time.Time{}
}

// age returns how long the caller waited for the counts that were read last.
func (c *census) age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken.Sub(c.since)
}

// usage returns counts that include everything that happened before the first call, and before the
// last binding was removed.
func (c *census) usage(ctx context.Context, read func(context.Context) (map[string]counts, error)) (map[string]counts,
	error,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = time.Now()
	}
	if err := wait.For(ctx, time.Until(c.since.Add(countsLag))); err != nil {
		return nil, err
	}
	if time.Since(c.taken) > time.Second {
		last, err := read(ctx)
		if err != nil {
			return nil, err
		}
		c.last, c.taken = last, time.Now()
	}
	return c.last, nil
}

// usage reads what the queues hold, without their sizes. It reads the list, as 3.10 gives no totals
// for a single queue but those of its statistics, which lag.
func (m *Client) usage(ctx context.Context) (map[string]counts, error) {
	var l listing
	vhost := url.PathEscape(m.vhost)
	if err := m.get(ctx, &l.queues, "queues/"+vhost+queueTotals); err != nil {
		return nil, err
	}
	if err := m.get(ctx, &l.statistics, "queues/"+vhost+queueStatistics); err != nil {
		return nil, err
	}
	if what := l.malformed(); what != "" {
		return nil, m.notRabbitMQ(what)
	}
	usage, out := l.usage(), make(map[string]counts, len(l.queues))
	for _, q := range l.queues {
		out[q.Name] = counts{usage[q.Name], q.Messages == nil}
	}
	return out, nil
}
