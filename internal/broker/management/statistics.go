package management

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// statistic is what only the statistics of a queue report.
type statistic struct {
	Name  string `json:"name"`
	Bytes int64  `json:"message_bytes"`
	// Consumers are those of all users. Nil: the broker does not report them, or not yet, as
	// for a queue that was created less than 10 seconds ago.
	Consumers *int64 `json:"consumers"`
	// Oldest is the timestamp of the message at the head, in seconds, as its publisher set it.
	// The broker reports it for classic queues. Where there is none it is missing or empty.
	Oldest any `json:"head_message_timestamp"`
	// NextDue is when the first message that a quorum queue of 4.3 delays is due, in milliseconds. It
	// is missing where there is none.
	NextDue any `json:"next_delayed_at"`
	// The others are read by Deliveries and Traffic only.
	VHost    string          `json:"vhost"`
	Messages int64           `json:"messages"`
	Traffic  json.RawMessage `json:"message_stats"` // an empty list, if there is none
}

// nextDue returns when the first delayed message is due. Zero: there is none.
func (s statistic) nextDue() time.Time {
	n, _ := s.NextDue.(json.Number)
	ms, err := n.Int64()
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// oldest returns the timestamp of the message at the head. Zero: not known, or no time in seconds:
// some publishers write milliseconds.
func (s statistic) oldest() time.Time {
	const latest = 1 << 33 // the year 2242
	n, _ := s.Oldest.(json.Number)
	seconds, err := n.Int64()
	if err != nil || seconds <= 0 || seconds > latest {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// queueStatistics asks for what the totals leave out: consumers, sizes, ages and due times. The
// list of consumers is of no use: a user with the tag management sees only their own consumers
// there (3.10.8, 4.0.5, 4.3.6), and the statistics count those of all users. They are up to 10
// seconds old: each queue writes its statistics every 5 seconds, and the management plugin collects
// them every 5 seconds.
const queueStatistics = "?columns=name,consumers,message_bytes,head_message_timestamp,next_delayed_at"

// fewQueues is how many queues are read one by one, at the same time. For more, the list of all is
// quicker: a list of 1,000 queues with statistics costs a broker as much as some 100 of them one by
// one.
const fewQueues = 32

// listStatistics reads the statistics of all queues.
func (m *Client) listStatistics(ctx context.Context, columns string) ([]statistic, error) {
	var list []statistic
	err := m.get(ctx, &list, "queues/"+url.PathEscape(m.vhost)+columns)
	return list, err
}

// unaddressable reports whether no path can end with a name. Names that messages bring may be too
// long for any queue: RabbitMQ refuses long paths, and does not say that no such queue exists.
func unaddressable(name string) bool {
	return name == "" || name == "." || name == ".." || len(name) > topology.MaxNameBytes
}

// statistics reads these columns of the statistics of these queues, and maybe of others: of all, if
// these are more than most. It leaves out those that do not exist.
func (m *Client) statistics(ctx context.Context, queues []string, most int, columns string) ([]statistic, error) {
	if len(queues) > most || slices.ContainsFunc(queues, unaddressable) {
		return m.listStatistics(ctx, columns)
	}
	found := make([][]statistic, len(queues))
	var reads []func() error
	for i, name := range queues {
		reads = append(reads, func() (err error) { found[i], err = m.statisticOf(ctx, name, columns); return err })
	}
	for some := range slices.Chunk(reads, fewQueues) {
		if err := together(some); err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

// statisticOf reads the statistics of one queue. It returns none if the queue does not exist.
func (m *Client) statisticOf(ctx context.Context, queue, columns string) ([]statistic, error) {
	var s statistic
	err := m.get(ctx, &s, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(queue)+columns)
	// The broker gives the same answer for both, and the lists tell if it is the virtual host.
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.Name != queue {
		return nil, m.notRabbitMQ("it answers with the statistics of another queue")
	}
	return []statistic{s}, nil
}

// ReadStatistics returns state with the current statistics of these queues.
func (m *Client) ReadStatistics(ctx context.Context, state topology.State, queues []string) (topology.State, error) {
	list, err := m.statistics(ctx, queues, fewQueues, queueStatistics)
	if err != nil {
		return topology.State{}, err
	}
	if what := (listing{statistics: list}).malformed(); what != "" {
		return topology.State{}, m.notRabbitMQ(what)
	}
	state.Usage = maps.Clone(state.Usage)
	addStatistics(state.Usage, list)
	return state, nil
}

// addStatistics adds statistics to what queues hold. A queue that was asked itself keeps its
// answer.
func addStatistics(usage map[string]topology.Usage, list []statistic) {
	for _, s := range list {
		u, ok := usage[s.Name]
		if !ok {
			continue
		}
		u.Bytes, u.Oldest, u.NextDue = s.Bytes, s.oldest(), s.nextDue()
		if s.Consumers != nil && !u.ConsumersAsked {
			u.Consumers, u.ConsumersUnknown = *s.Consumers, false
		}
		usage[s.Name] = u
	}
}
