package processor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// answerTime is how long an answer of the broker about a queue is believed.
	answerTime = 10 * time.Second
	// burstTime is how long one about a queue that a match covers is: its service may declare it anew
	// at any time, without the binding that messages return by. The messages of a burst share it.
	burstTime = 100 * time.Millisecond
	// askTime is how long asking again may hold up the messages at once, and restFor how many times
	// as long as it took nothing is asked again in the long run: there may be many queues, or a slow
	// broker. Answers are believed for answerTime then.
	askTime = time.Second
	restFor = 10
	// mostAnswers is how many answers are kept, and how many queues that were missed: publishers may
	// make up names.
	mostAnswers = 1000
)

// lookup finds out whether there are queues that the file of the processor does not
// name: a newer file may. Before 4.3 the broker answers that to any user, without a permission.
//
// It asks over a connection of its own: on that of the deliveries an answer may be
// behind those that wait for memory.
type lookup struct {
	*failedQueue
	ctx context.Context //nolint:containedctx // that of the relay, which asks, and Grace longer
	end func()          // ends ctx

	catching  sync.WaitGroup // catchUp
	mu        sync.Mutex
	conn      *amqp.Conn
	closed    func() bool     // what amqp.CloseAfter returned for conn
	missed    map[string]bool // queues to bind once catchUp has a connection; nil: it does not run
	failed    error           // why it runs
	answers   map[string]answer
	rest      time.Time               // until when nothing is asked again: see askTime
	generated map[string]bool         // queues that dlxctl generates and nothing fails in
	covers    func(queue string) bool // by a match of the file
}

type answer struct {
	exists  bool
	unbound bool // it could not be bound, and the next try may help
	at      time.Time
}

// newLookup returns one that must be closed. It asks for as long as the relay goes on with what is
// in flight once ctx has ended: without an answer, the first message of a queue that a match covers
// would wait its tier before the queue is bound, and end in the unroutable queue.
func (q *failedQueue) newLookup(ctx context.Context) *lookup {
	asks, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(q.Grace, end) })
	l := &lookup{
		failedQueue: q, ctx: asks, end: end, answers: map[string]answer{}, generated: map[string]bool{},
		covers: retry.NewRules(q.Topology, q.backoff, 0).Covers,
	}
	for _, queue := range q.Topology.Queues {
		if _, isWork := q.Topology.WorkQueue(queue.Name); !isWork {
			l.generated[queue.Name] = true
		}
	}
	return l
}

// exists reports whether there is a queue in which messages may fail. If the broker
// does not answer, there may be: a message for a queue that does not exist ends in the
// unroutable queue after its first tier, and so nothing is lost.
func (l *lookup) exists(queue string) bool {
	if l.generated[queue] {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	begin := time.Now()
	if a, ok := l.answers[queue]; ok && l.believes(a, queue, begin) {
		return a.exists
	}
	unbound, err := false, l.connect()
	if err == nil {
		unbound, err = l.ask(queue)
	}
	now := time.Now()
	if earliest := now.Add(-restFor * askTime); l.rest.Before(earliest) {
		l.rest = earliest
	}
	l.rest = l.rest.Add(restFor * now.Sub(begin))
	if err != nil && !errors.Is(err, broker.ErrNotFound) && !errors.Is(err, broker.ErrForbidden) {
		l.miss(queue, err)
		return true
	}
	if len(l.answers) >= mostAnswers {
		clear(l.answers)
	}
	exists := !errors.Is(err, broker.ErrNotFound)
	l.answers[queue] = answer{exists: exists, unbound: unbound, at: begin}
	return exists
}

// believes reports whether an answer about a queue is good enough.
func (l *lookup) believes(a answer, queue string, now time.Time) bool {
	age := now.Sub(a.at)
	return age < answerTime && (age < burstTime && !a.unbound || now.Before(l.rest) || !l.covers(queue))
}

// bind binds a queue that a match covers to the exchange that returns messages, as apply does: no
// apply may have seen the queue yet. Without the right, or if the service alone may use the queue,
// the binding may still be there, made by apply or by the service. If it is not, messages end in
// the unroutable queue after their first tier, and so nothing is lost. It reports whether the next
// try can do no more.
func (l *lookup) bind(queue string) bool {
	err := l.conn.Bind(topology.ReturnBinding(l.Topology.Name, queue))
	if err != nil {
		l.trouble.WarnContext(l.ctx,
			"cannot bind a queue that a match covers; unless it is bound, its retries go to the unroutable queue",
			"queue", queue, "exchange", topology.ReturnExchangeName(l.Topology.Name), "error", err)
	}
	return err == nil || errors.Is(err, broker.ErrForbidden) || errors.Is(err, broker.ErrInUse)
}

// miss notes a queue that cannot be asked for. Its message goes to its tier nevertheless, since
// others would wait for it otherwise. If a match covers it, it is bound while the message is there.
func (l *lookup) miss(queue string, err error) {
	if l.missed == nil {
		l.missed, l.failed = map[string]bool{}, err
		l.catching.Go(l.catchUp)
	}
	if l.covers(queue) && !l.missed[queue] && len(l.missed) < mostAnswers {
		l.missed[queue] = true
		l.trouble.WarnContext(l.ctx,
			"cannot look for a queue that a match covers; if it is not bound in time, its first retries go to the unroutable queue",
			"queue", queue, "error", err)
	}
}

// catchUp reconnects, and binds the queues that were missed until then.
func (l *lookup) catchUp() {
	for {
		if conn, err := l.dial(); err == nil && l.bindMissed(conn) {
			return
		}
		if wait.For(l.ctx, askTime) != nil {
			return
		}
	}
}

// bindMissed asks for the queues that were missed, over a new connection, one by one: messages of
// others need the lock too. It reports false if that connection ends first.
func (l *lookup) bindMissed(conn *amqp.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use(conn)
	for queue := range l.missed {
		_, _ = l.ask(queue) // what it cannot do, the next failure of the queue may
		if conn.Closed() {
			return false
		}
		delete(l.missed, queue)
		l.mu.Unlock()
		l.mu.Lock()
	}
	l.missed = nil
	return true
}

// connect makes sure that there is a connection. It fails at once while catchUp tries to have one.
func (l *lookup) connect() error {
	switch {
	case l.missed != nil:
		return l.failed
	case l.conn != nil && !l.conn.Closed():
		return nil
	}
	conn, err := l.dial()
	if err == nil {
		l.use(conn)
	}
	return err
}

func (l *lookup) dial() (*amqp.Conn, error) {
	return amqp.Dial(l.ctx, l.endpoint(l.backoff.Name, "look"))
}

// use makes a connection the one that asks.
func (l *lookup) use(conn *amqp.Conn) {
	l.drop()
	l.conn, l.closed = conn, amqp.CloseAfter(l.ctx, time.Second, conn) // as relay.Drive does
}

// ask asks the broker for a queue, and binds it if a match covers it. unbound reports that it could
// not be bound, and that the next try may help.
func (l *lookup) ask(queue string) (unbound bool, err error) {
	_, err = l.conn.MessagesReady(queue)
	known := err == nil || errors.Is(err, broker.ErrForbidden)
	return known && l.covers(queue) && !l.bind(queue), err
}

// close ends its goroutines and its connection.
func (l *lookup) close() {
	l.end()
	l.catching.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// drop ends the connection.
func (l *lookup) drop() {
	if l.conn != nil && !l.closed() {
		_ = l.conn.Close() // it may be over already
	}
}
