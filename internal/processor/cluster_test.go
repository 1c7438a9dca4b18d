package processor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The nodes of a cluster are taken away in turn, in good order and by SIGKILL,
// while messages are published, fail and are retried. Every message that was
// confirmed ends in the dead-letter queue.
func TestAClusterLosesItsNodesInTurn(t *testing.T) {
	t.Parallel()
	nodes := brokertest.Cluster(t)
	s := onNode(t, nodes[0], `
version: 1
name: shop
defaults: {backoff: quick}
backoff:
  quick: {tiers: [100ms, 500ms]}
exchanges:
  - {name: events}
queues:
  - {name: work, bindings: [{exchange: events, key: "#"}]}
`)
	front, wire := brokertest.NewProxy(t, s.target, nodes[1].See(t, s.target), nodes[2].See(t, s.target))
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, front)
	log := listen(t, p)
	run(t, p)
	work := tireless(t, front)

	for i, down := range []func(testing.TB){nodes[0].Stop, nodes[1].Kill, nodes[2].Stop} {
		before := work.published()
		down(t)
		brokertest.Eventually(t, "publishing to go on without a node", func() bool { return work.published() > before+200 })
		nodes[i].Start(t)
	}
	sent := work.stop()
	s.target = nodes[0].See(t, s.target)
	s.reconnect(t)

	dead, copies := map[string]int{}, 0
	brokertest.Eventually(t, "all messages in work.dead", func() bool {
		for id, c := range s.drain(t, "work.dead") {
			dead[id] += c
			copies += c
		}
		for _, id := range sent {
			if dead[id] == 0 {
				return false
			}
		}
		return true
	})
	parked := s.drain(t, "shop.unroutable")
	if len(parked) > 0 {
		t.Errorf("%d messages are in shop.unroutable", len(parked))
	}
	log.calm(t)
	t.Logf("%d confirmed, 0 lost, %d doubled, over %d connections", len(sent), copies-len(dead), wire.Connections())
}

// worker publishes, and rejects what comes, whatever happens to its connections.
type worker struct {
	mu   sync.Mutex
	sent []string // what the broker has confirmed
	n    int
	// stop ends the publishing and gives what was sent.
	stop func() []string
}

// tireless starts a worker on the exchange events and the queue work. It rejects
// until the test ends.
func tireless(t *testing.T, target brokertest.Target) *worker {
	t.Helper()
	w := &worker{}
	start := func(task func(context.Context, *amqp091.Connection) error) (stop func()) {
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { again(ctx, target.URL, task) })
		return func() { end(); wg.Wait() }
	}
	t.Cleanup(start(w.reject))
	stop := start(w.publish)
	w.stop = func() []string { stop(); return w.sent }
	t.Cleanup(stop)
	return w
}

// again does a task on new connections until ctx ends.
func again(ctx context.Context, url string, task func(context.Context, *amqp091.Connection) error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if conn, err := amqp091.DialConfig(url, amqp091.Config{Heartbeat: 2 * time.Second}); err == nil {
			_ = task(ctx, conn) // it is done again, or ctx has ended
			_ = conn.CloseDeadline(time.Now().Add(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (w *worker) published() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sent)
}

// publish publishes one message after the other, a hundred or more in a second. One
// whose confirm does not come may be anywhere, and is not counted.
func (w *worker) publish(ctx context.Context, conn *amqp091.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	tick := time.NewTicker(brokertest.Pause(2 * time.Millisecond))
	defer tick.Stop()
	for {
		w.mu.Lock()
		w.n++
		id := fmt.Sprint(w.n)
		w.mu.Unlock()
		confirm, err := ch.PublishWithDeferredConfirm("events", "a", true, false,
			amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent})
		if err != nil {
			return err
		}
		waiting, enough := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		taken, err := confirm.WaitContext(waiting)
		enough()
		if err != nil || ch.IsClosed() {
			return amqp091.ErrClosed
		}
		if taken {
			w.mu.Lock()
			w.sent = append(w.sent, id)
			w.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// idleTime is after how long without a message the rejecting consumer comes anew.
const idleTime = 5 * time.Second

// reject lets every message fail. If none comes for some seconds it reconnects,
// also where the broker does not answer.
func (w *worker) reject(ctx context.Context, conn *amqp091.Connection) error {
	guard := time.AfterFunc(idleTime, func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	defer guard.Stop()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(100, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume("work", "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	guard.Stop()
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		select {
		case <-idle.C:
			return nil
		case d, ok := <-deliveries:
			idle.Reset(idleTime)
			if !ok {
				return amqp091.ErrClosed
			}
			if err := d.Reject(false); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}
