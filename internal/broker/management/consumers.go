package management

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// StatisticsLag is how old the statistics of a queue can be, with a margin: see
	// queueStatistics.
	StatisticsLag = 12 * time.Second
	// slowTime is how long a queue whose leader may be silent is asked again.
	slowTime = 15 * time.Second
	// askTime is how long AskConsumers may take, connecting included.
	askTime = 12 * time.Second
	// askConnectTime is how long the network may take to connect: a user who can reach only the
	// management API does not wait long. A node that has accepted may be busy, and has askDialTime.
	askConnectTime = 3 * time.Second
	askDialTime    = 10 * time.Second
)

// asker is a connection for asking queues themselves. It is dialed when it is first needed, and not
// a second time once that has failed.
type asker struct {
	mu   sync.Mutex
	conn *amqp.Conn
	err  error
}

func (a *asker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		_ = a.conn.Close() // nothing is in progress on it
	}
}

// Connection returns an AMQP connection for questions to the broker: the one of UseAMQP, or one of
// its own, which Close ends. If dialing fails once, it fails at once from then on: a user who can
// reach only the management API waits once.
func (m *Client) Connection(ctx context.Context) (*amqp.Conn, error) {
	if m.conn != nil {
		return m.conn, m.stillConnected()
	}
	m.asker.mu.Lock()
	defer m.asker.mu.Unlock()
	if m.asker.err != nil || m.asker.conn != nil && !m.asker.conn.Closed() {
		return m.asker.conn, m.asker.err
	}
	within, cancel := context.WithTimeout(ctx, askDialTime)
	defer cancel()
	e := m.endpoint
	e.ConnectTime = askConnectTime
	if e.ConnectionName == "" {
		e.ConnectionName = "dlxctl reads consumers and rights"
	}
	conn, err := amqp.Dial(within, e)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = conn.Close() // nothing was asked on it
		}
		return nil, ctx.Err()
	case within.Err() != nil:
		err = broker.Errorf(broker.ErrUnreachable, "%s does not answer within %s", e.AMQP, text.Duration(askDialTime))
	}
	m.asker.conn, m.asker.err = conn, err
	return conn, err
}

// UnknownConsumers returns the queues, in order, whose consumers the statistics do not report: as a
// rule they were created less than 10 seconds ago.
func UnknownConsumers(state topology.State) []string {
	var out []string
	for _, q := range state.Have.Queues {
		if state.Usage[q.Name].ConsumersUnknown && !q.Exclusive {
			out = append(out, q.Name)
		}
	}
	return out
}

// AskConsumers returns state with the current consumers of these queues: it asks the queues
// themselves, over AMQP. That needs no permission on 3.10 and 4.0, and any permission for the queue
// on 4.3. Where a queue does not answer, the value of the statistics stays, even if it is unknown.
// So does the value of a quorum queue that answers with 0, as its leader may be silent: deleting
// such a queue needs more proof. Streams are not asked: they do not report consumers.
func (m *Client) AskConsumers(ctx context.Context, state topology.State, queues []string) topology.State {
	types := make(map[string]string, len(queues))
	for _, q := range state.Have.Queues {
		types[q.Name] = q.Type()
	}
	queues = slices.DeleteFunc(slices.Clone(queues), func(name string) bool {
		return types[name] == "" || types[name] == topology.Stream
	})
	if len(queues) == 0 {
		return state
	}
	conn, err := m.Connection(ctx)
	if err != nil {
		return state
	}
	within, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	state.Usage = maps.Clone(state.Usage)
	for name, n := range conn.Consumers(within, queues) {
		u := state.Usage[name]
		if n == 0 && types[name] != topology.Classic {
			n = u.Consumers
		}
		u.Consumers, u.ConsumersUnknown, u.ConsumersAsked = n, false, true
		state.Usage[name] = u
	}
	return state
}

// Consumers asks a queue itself how many consumers it has at this moment. It fails with ErrNotFound
// if the queue does not exist, and with ErrRefused if its leader is silent. Streams do not report
// consumers: they always answer 0.
func (m *Client) Consumers(ctx context.Context, queue string) (int64, error) {
	conn, err := m.Connection(ctx)
	if err != nil {
		return 0, err
	}
	return conn.ConsumersOf(queue)
}
