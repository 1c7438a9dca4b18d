package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// StatisticsLag is how old the statistics of a queue can be, and a little more:
	// see queueStatistics.
	StatisticsLag = 12 * time.Second
	// silence is less than what the broker waits for the leader of a quorum queue
	// before it answers a passive declare with 0 (250 ms; rabbit_quorum_queue:stat/1,
	// 3.10.8 to 4.3.6): a 0 that took as long proves nothing.
	silence = 200 * time.Millisecond
	// slowTime is how long a queue is asked again whose leader may be silent.
	slowTime = 15 * time.Second
	// askTime is how long AskConsumers may take, connecting included.
	askTime = 5 * time.Second
	// askDialTime is how long it may take to connect. Whoever has the management API
	// alone does not wait long.
	askDialTime = 3 * time.Second
)

// asker is a connection to ask queues themselves. It is dialled when it is first
// needed, and not again once that has failed.
type asker struct {
	mu   sync.Mutex
	conn *Conn
	err  error
}

func (a *asker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		_ = a.conn.Close() // nothing is under way on it
	}
}

// asking gives an AMQP connection: the one of Over, or one of its own.
func (m *Management) asking(ctx context.Context) (*Conn, error) {
	if m.over != nil {
		return m.over, m.stillOver()
	}
	m.asker.mu.Lock()
	defer m.asker.mu.Unlock()
	if m.asker.err != nil || m.asker.conn != nil && !m.asker.conn.Closed() {
		return m.asker.conn, m.asker.err
	}
	within, cancel := context.WithTimeout(ctx, askDialTime)
	defer cancel()
	e := m.endpoint
	if e.ConnectionName == "" {
		e.ConnectionName = "dlxctl counts consumers"
	}
	conn, err := Dial(within, e)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		err = tell(ErrUnreachable, "%s does not answer within %s", e.AMQP, askDialTime)
	}
	m.asker.conn, m.asker.err = conn, err
	return conn, err
}

// UnknownConsumers gives the queues, in order, whose consumers the statistics do not
// tell: as a rule they were made less than 10 seconds ago.
func UnknownConsumers(state plan.State) []string {
	var out []string
	for _, q := range state.Have.Queues {
		if state.Usage[q.Name].ConsumersUnknown && !q.Exclusive {
			out = append(out, q.Name)
		}
	}
	return out
}

// AskConsumers gives state with the consumers of these queues as they are now: the
// queues are asked themselves, over AMQP. That takes no permission on 3.10 and 4.0,
// and any permission for the queue on 4.3. What is not answered stays as the
// statistics have it, unknown included. So does what the statistics know of a quorum queue
// that answers with 0, as its leader may be silent: whoever deletes such a queue proves more. Streams
// are not asked: they do not tell.
func (m *Management) AskConsumers(ctx context.Context, state plan.State, queues []string) plan.State {
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
	conn, err := m.asking(ctx)
	if err != nil {
		return state
	}
	within, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	state.Usage = maps.Clone(state.Usage)
	for name, n := range conn.consumers(within, queues) {
		u := state.Usage[name]
		if n == 0 && types[name] != topology.Classic {
			n = u.Consumers
		}
		u.Consumers, u.ConsumersUnknown = n, false
		state.Usage[name] = u
	}
	return state
}

// Consumers asks a queue itself how many consumers it has at this moment. It fails
// with ErrNotFound if there is no such queue, and with ErrRefused if its leader is
// silent. Streams do not tell: they always say 0.
func (m *Management) Consumers(ctx context.Context, queue string) (int64, error) {
	conn, err := m.asking(ctx)
	if err != nil {
		return 0, err
	}
	return conn.consumersOf(queue)
}

// consumers asks queues how many consumers they have. Those that do not answer are
// left out.
func (c *Conn) consumers(ctx context.Context, queues []string) map[string]int64 {
	out := make(map[string]int64, len(queues))
	for _, name := range queues {
		if ctx.Err() != nil || c.Closed() {
			break
		}
		if n, err := c.consumersOf(name); err == nil {
			out[name] = n
		}
	}
	return out
}

// consumersOf asks a queue how many consumers it has. It fails with ErrNotFound if
// there is no such queue, and with ErrRefused if a 0 took so long that the broker may
// have said it for a leader that is silent.
func (c *Conn) consumersOf(name string) (int64, error) {
	var n int64
	var took time.Duration
	err := c.onChannel(func(ch *amqp.Channel) error {
		began := time.Now()
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		n, took = int64(q.Consumers), time.Since(began)
		return err
	})
	if err == nil && n == 0 && took >= silence {
		err = tell(ErrRefused, "the queue took %s to answer: whether somebody consumes from it is not known; is its leader up?", took.Round(time.Millisecond))
	}
	return n, err
}

// proveUnused makes sure that nobody consumes from a quorum queue at this moment.
// The queue is asked again for a while: on a busy node its leader may be slow.
func (m *Management) proveUnused(ctx context.Context, q topology.Queue) (gone bool, err error) {
	conn, err := m.asking(ctx)
	if err != nil {
		return false, tell(ErrUnreachable, "whether somebody consumes from the queue at this moment shows over AMQP alone: %s", oneLine(err.Error()))
	}
	for end := time.Now().Add(slowTime); ; {
		n, err := conn.consumersOf(q.Name)
		switch {
		case errors.Is(err, ErrNotFound):
			return true, nil
		case errors.Is(err, ErrRefused) && time.Now().Before(end) && ctx.Err() == nil:
			continue // it took 200 ms: no hot loop
		case errors.Is(err, ErrForbidden):
			return false, tell(ErrForbidden, "whether somebody consumes from the queue is not known: %s", oneLine(err.Error()))
		case err != nil:
			return false, err
		case n > 0:
			return false, tell(ErrRefused, "the queue has %s", someConsumers(n))
		}
		return false, nil
	}
}

// someConsumers gives "1 consumer" or "2 consumers".
func someConsumers(n int64) string {
	if n == 1 {
		return "1 consumer"
	}
	return fmt.Sprintf("%d consumers", n)
}
