package management

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// maxDetails is how many queues are asked for their consumers. Each takes a request.
	maxDetails = 1000
	// detailsAtOnce is how many of these requests run at the same time.
	detailsAtOnce = 16
)

// livingQueue is what the list of queues tells of the state of a queue.
type livingQueue struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	State   string   `json:"state"`
	Leader  string   `json:"leader"`
	Members []string `json:"members"`
	Online  []string `json:"online"`
	// Oldest is the timestamp property of the first message, in seconds, as its publisher set it.
	// Classic queues report it, others do not.
	Oldest any `json:"head_message_timestamp"`
}

// leaderless reports whether no node serves the queue: its node is down, or not even half of its
// members are left.
func (q livingQueue) leaderless() bool {
	switch {
	case slices.Contains([]string{"down", "stopped", "crashed", "minority"}, q.State):
		return true
	case len(q.Members) == 0 || q.Type == topology.Stream:
		return false
	}
	return q.Leader == "" || 2*len(q.Online) <= len(q.Members)
}

// Live reads what only a running broker tells about the virtual host of a state: consumers, queues
// without a leader, and old messages. With an interval it reads the number of messages twice, that
// time apart. The user needs the tag management and any permission in the virtual host. What could
// not be read is in Unseen.
func (m *Client) Live(ctx context.Context, state topology.State, interval time.Duration) (topology.Live, error) {
	live := topology.Live{Now: time.Now()}
	if len(state.Down) > 0 {
		live.Unseen = append(live.Unseen, fmt.Sprintf("queues whose node is down, which the broker does not list: %s; of them it is only known that they exist",
			text.Some(state.Down)))
	}
	vhost := url.PathEscape(m.vhost)
	var rows, dated []livingQueue
	if err := m.get(ctx, &rows, "queues/"+vhost+queueTotals); err != nil {
		return live, err
	}
	if err := m.get(ctx, &dated, "queues/"+vhost+"?columns=name,head_message_timestamp"); err != nil {
		return live, err
	}
	for _, q := range rows {
		if q.leaderless() {
			live.Leaderless = append(live.Leaderless, q.Name)
		}
	}
	live.Oldest = oldest(dated)
	if err := m.readReplicas(ctx, rows, &live); err != nil {
		return live, err
	}
	if err := m.readDelayed(ctx, state, &live); err != nil {
		return live, err
	}
	if err := m.readConsumers(ctx, state, &live); err != nil {
		return live, err
	}
	if interval > 0 {
		return live, m.grow(ctx, &live, interval)
	}
	live.Unseen = append(live.Unseen, "whether queues grow: there was one reading; pass --interval 30s for dead-letters-growing")
	return live, nil
}

// oldest returns, by queue, when its first message was published.
func oldest(queues []livingQueue) map[string]time.Time {
	out := map[string]time.Time{}
	for _, q := range queues {
		n, _ := q.Oldest.(json.Number)
		if seconds, err := n.Int64(); err == nil && seconds > 0 {
			out[q.Name] = time.Unix(seconds, 0).UTC()
		}
	}
	return out
}

// grow reads the number of messages twice.
func (m *Client) grow(ctx context.Context, live *topology.Live, interval time.Duration) error {
	first, err := m.totals(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := wait.For(ctx, interval); err != nil {
		return err
	}
	second, err := m.totals(ctx)
	if err != nil {
		return err
	}
	live.Interval, live.Growth = time.Since(begin), map[string]int64{}
	for name, held := range second {
		if before, known := first[name]; known {
			live.Growth[name] = held - before
		}
	}
	return nil
}

// totals reads how many messages each queue holds.
func (m *Client) totals(ctx context.Context) (map[string]int64, error) {
	var queues []queue
	if err := m.get(ctx, &queues, "queues/"+url.PathEscape(m.vhost)+queueTotals); err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(queues))
	for _, q := range queues {
		out[q.Name] = q.held()
	}
	return out, nil
}

// queueDetails is what a single queue tells of its consumers. To a user with the tag management,
// the list of consumers shows only their own, and the queue shows all (measured on 3.10.8, 4.0.5
// and 4.3.6).
type queueDetails struct {
	Consumers []struct {
		Tag     string `json:"consumer_tag"`
		Ack     *bool  `json:"ack_required"`
		Channel any    `json:"channel_details"` // an object, or [] if the channel is gone
	} `json:"consumer_details"`
}

// readConsumers asks each queue that has consumers for them.
func (m *Client) readConsumers(ctx context.Context, state topology.State, live *topology.Live) error {
	var ask []string
	for _, q := range state.Have.Queues {
		if u := state.Usage[q.Name]; u.MayBeConsumed() && q.Type() != topology.Stream {
			ask = append(ask, q.Name)
		}
	}
	if more := len(ask) - maxDetails; more > 0 {
		live.Unseen = append(live.Unseen, fmt.Sprintf("the consumers of %s: %d queues were asked",
			text.Count(more, "queue"), maxDetails))
		ask = ask[:maxDetails]
	}
	live.Consumers = map[string][]topology.Consumer{}
	var mu sync.Mutex
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(detailsAtOnce)
	for _, name := range ask {
		group.Go(func() error {
			consumers, err := m.consumersOf(within, name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				live.Consumers[name] = consumers
			case errors.Is(err, broker.ErrNotFound): // it was deleted meanwhile
			case errors.Is(err, broker.ErrRefused) || errors.Is(err, broker.ErrForbidden):
				live.Unseen = append(live.Unseen, fmt.Sprintf("the consumers of queue %s: %v", text.Name(name), err))
			default:
				return err
			}
			return nil
		})
	}
	err := group.Wait()
	slices.Sort(live.Unseen)
	return err
}

// consumersOf reads the consumers of a queue, in the order of their connections and tags.
func (m *Client) consumersOf(ctx context.Context, name string) ([]topology.Consumer, error) {
	var details queueDetails
	path := "queues/" + url.PathEscape(m.vhost) + "/" + url.PathEscape(name) + "?columns=consumer_details"
	if err := m.get(ctx, &details, path); err != nil {
		return nil, err
	}
	out := make([]topology.Consumer, 0, len(details.Consumers))
	for _, c := range details.Consumers {
		channel, _ := c.Channel.(map[string]any)
		connection, _ := channel["connection_name"].(string)
		user, _ := channel["user"].(string)
		out = append(out, topology.Consumer{
			Tag: c.Tag, AutoAck: c.Ack != nil && !*c.Ack, Connection: connection, User: user,
		})
	}
	slices.SortFunc(out, func(a, b topology.Consumer) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.Tag, b.Tag))
	})
	return out, nil
}

// VHosts returns the names of the virtual hosts that the user may see, sorted.
func (m *Client) VHosts(ctx context.Context) ([]string, error) {
	rows, err := m.with(ctx).ListVhosts()
	if err != nil || rows == nil {
		return nil, m.unread("vhosts", err)
	}
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out, nil
}
