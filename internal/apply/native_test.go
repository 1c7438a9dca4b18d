package apply_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// engines returns a topology of the queue q with a backoff: a of the processor, n or m of RabbitMQ
// itself, or none. The queue qa has a, so that it stays.
func engines(deadLetterBy string) func(backoff string) string {
	return func(backoff string) string {
		return fmt.Sprintf(`
version: 1
name: shop
defaults: {deadLetterBy: %s}
backoff:
  a: {tiers: [1m]}
  n: {engine: native, tiers: [50ms, 100ms, 150ms]}
  m: {engine: native, tiers: [{delay: 200ms, attempts: 2}]}
exchanges: [{name: e}]
queues:
  - {name: q, backoff: %s, bindings: [{exchange: e, key: k}]}
  - {name: qa, backoff: a, bindings: [{exchange: e, key: ka}]}
`, deadLetterBy, backoff)
	}
}

// newEngineStage applies the topology with the backoff a, which the queue has by what deadLetterBy
// says.
func newEngineStage(t *testing.T, deadLetterBy string, target brokertest.Target) *stage {
	t.Helper()
	if !target.AtLeast("4.3") {
		t.Skip("RabbitMQ delays retries since 4.3")
	}
	s := &stage{target: target, consumer: target, confirmed: map[string]bool{}}
	s.file, s.places = engines(deadLetterBy), []string{"shop.a.failed", "q.dead", topology.UnroutableName("shop")}
	s.connect(t, target)
	s.apply(t, s.m, "a", 100*time.Millisecond)
	return s
}

// requeue publishes, and consumes with consumers that requeue half of what they get, and reject the
// other half without requeue, until stop. Some consumers crash.
func (s *stage) requeue(t *testing.T, pause time.Duration) (stop func()) {
	t.Helper()
	for range 2 {
		ch := s.consumer.Channel(t)
		if err := ch.Qos(500, 0, false); err != nil {
			t.Fatal(err)
		}
		deliveries, err := ch.Consume("q", "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for d := range deliveries {
				_ = d.Reject(rand.IntN(2) == 0) // the message fails: that is the load
			}
		}()
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var publishers sync.WaitGroup
	crashing := s.consumer.Dial(t)
	publishers.Go(func() { s.crash(ctx, crashing) })
	s.publish(ctx, t, &publishers, pause, "e", "k", nil)
	return func() {
		cancel()
		publishers.Wait()
	}
}

// Under load a queue changes from retries of the processor to those of RabbitMQ and back, between
// two native backoffs, and to none: each failure is in one place, where the processor takes it or
// among the dead letters. Messages that RabbitMQ delays at a change are among them.
func TestEnginesChangeUnderLoad(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, deadLetterBy := range []string{"policy", "arguments"} {
		t.Run(deadLetterBy, func(t *testing.T) {
			t.Parallel()
			s := newEngineStage(t, deadLetterBy, brokertest.VHost(t))
			stop := s.requeue(t, 20*time.Millisecond)
			for _, backoff := range []string{"n", "a", "m", "n", "none", "n", "a"} {
				wait(t, 300*time.Millisecond)
				s.apply(t, s.m, backoff, 200*time.Millisecond)
			}
			stop()
			s.account(t, 0)
		})
	}
}

// A change of the engine is stopped after each step, and continued by another run, and by a run
// with another file.
func TestEngineChangeStoppedAfterEachStep(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newEngineStage(t, "policy", brokertest.VHost(t))
	stop := s.requeue(t, 50*time.Millisecond)
	s.stoppedAfterEachStep(t, 5, "n", "m")
	stop()
	s.account(t, 0)
}

// A node restarts while a change of the engine is half done.
func TestNodeRestartsDuringEngineChange(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	node := brokertest.Node(t)
	s := newEngineStage(t, "policy", node.VHost(t))
	s.nodeRestarts(t, node, 5, "n", s.requeue)
}

// Messages that always fail, while consumers are killed again and again and the node restarts: each
// is delivered as often as its backoff says or more often, and is then a dead letter, once.
func TestNativeRetriesOutliveKills(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	target := node.VHost(t)
	s := newEngineStage(t, "policy", target)
	s.apply(t, s.m, "n", 100*time.Millisecond)
	n := brokertest.Load(10_000)
	ch := target.Confirming(t)
	for i := range n {
		brokertest.PublishConfirmed(t, ch, "e", "k", amqp091.Publishing{MessageId: fmt.Sprint(i)})
	}
	var mu sync.Mutex
	deliveries := map[string]int{}
	var kills atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var consumers sync.WaitGroup
	for range 2 {
		consumers.Go(func() {
			for ctx.Err() == nil {
				if killedConsumer(ctx, target.URL, func(d amqp091.Delivery) {
					mu.Lock()
					deliveries[d.MessageId]++
					mu.Unlock()
					_ = d.Reject(true)
				}) {
					kills.Add(1)
				}
			}
		})
	}
	dead := func() int { return brokertest.Ready(t, target.Channel(t), "q.dead") }
	brokertest.Eventually(t, "some dead letters", func() bool { return dead() > n/10 })
	node.Stop(t)
	node.Start(t)
	brokertest.Eventually(t, "all dead letters", func() bool { return dead() >= n })
	cancel()
	consumers.Wait()
	seen := map[string]int{}
	lost, doubled, few := 0, 0, 0
	out := target.Channel(t)
	for {
		d, ok, err := out.Get("q.dead", true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		seen[d.MessageId]++
	}
	for i := range n {
		if times := seen[fmt.Sprint(i)]; times == 0 {
			lost++
		} else {
			doubled += times - 1
		}
	}
	most := 0
	for _, times := range deliveries {
		most = max(most, times)
		if times < 2 { // a consumer may be killed with a whole prefetch that it has not seen, three times
			few++
		}
	}
	t.Logf("%d messages, %d consumers killed: %d lost, %d doubled; at most %d deliveries seen, %d messages seen less than twice",
		n, kills.Load(), lost, doubled, most, few)
	if lost > 0 || doubled > 0 || kills.Load() == 0 || most > 4 {
		t.Errorf("%d lost, %d doubled, %d kills, %d deliveries of one message", lost, doubled, kills.Load(), most)
	}
}

// killedConsumer consumes q for a while, and ends like a process that is killed. It reports whether
// anything was delivered to it.
func killedConsumer(ctx context.Context, url string, handle func(amqp091.Delivery)) (worked bool) {
	var plain net.Conn
	conn, err := amqp091.DialConfig(url, amqp091.Config{Dial: func(network, addr string) (c net.Conn, err error) {
		plain, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
		return plain, err
	}})
	if err != nil { // the node is down
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		return false
	}
	defer plain.Close()
	ch, err := conn.Channel()
	if err != nil {
		return false
	}
	_ = ch.Qos(20, 0, false)
	deliveries, err := ch.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		return false
	}
	life := time.After(time.Second + rand.N(time.Second))
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return worked
			}
			worked = true
			handle(d)
		case <-life:
			return worked
		case <-ctx.Done():
			return worked
		}
	}
}
