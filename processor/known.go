package processor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// knownTime is how long an answer of the broker about a queue is believed.
	knownTime = 10 * time.Second
	// mostKnown is how many answers are kept: publishers may make up names.
	mostKnown = 1000
)

// known finds out whether there are queues that the file of the processor does not
// name: a newer file may. The broker says so to anybody, without a permission.
//
// It asks over a connection of its own: on that of the deliveries an answer may be
// behind those that wait for memory.
type known struct {
	*line
	ctx context.Context //nolint:containedctx // that of the relay, which asks

	mu      sync.Mutex
	conn    *broker.Conn
	answers map[string]answered
	own     map[string]bool // queues that dlxctl makes and nothing fails in
}

type answered struct {
	exists bool
	at     time.Time
}

// newKnown gives one. It must be closed.
func (l *line) newKnown(ctx context.Context) *known {
	k := &known{line: l, ctx: ctx, answers: map[string]answered{}, own: map[string]bool{}}
	for _, q := range l.Topology.Queues {
		if _, isWork := l.Topology.Work(q.Name); !isWork {
			k.own[q.Name] = true
		}
	}
	return k
}

// exists reports whether there is a queue in which messages may fail. If the broker
// does not answer, there may be: a message for a queue that is not there ends in the
// unroutable queue after its first tier, and so nothing is lost.
func (k *known) exists(queue string) bool {
	if k.own[queue] {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if a, ok := k.answers[queue]; ok && time.Since(a.at) < knownTime {
		return a.exists
	}
	err := k.ask(queue)
	if err != nil && !errors.Is(err, broker.ErrNotFound) {
		return true
	}
	if len(k.answers) >= mostKnown {
		clear(k.answers)
	}
	k.answers[queue] = answered{exists: err == nil, at: time.Now()}
	return err == nil
}

// ask asks the broker.
func (k *known) ask(queue string) error {
	if k.conn == nil || k.conn.Closed() {
		conn, err := broker.Dial(k.ctx, k.endpoint(k.loop.Backoff, "look"))
		if err != nil {
			return err
		}
		k.conn = conn
	}
	_, err := k.conn.Queue(queue)
	return err
}

// close ends its connection.
func (k *known) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil {
		_ = k.conn.Close() // it may be over already
	}
}

// otherQueue is the label of queues that the file does not name, in metrics: names
// that messages make up must not make a new series each time.
const otherQueue = "(other)"

// work gives a work queue, and a stand-in for one that the file does not name.
func (p *probe) work(queue string) topology.Work {
	if w, ok := p.works[queue]; ok {
		return w
	}
	return topology.Work{Queue: otherQueue, Severity: "ticket"}
}
