package apply_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// returnDelay is that of the backoff r.
const returnDelay = 2 * time.Second

// engines returns a topology of the queue q with a backoff: a of the processor, n, m or r of
// RabbitMQ itself, or none. The queue qa has a, so that it stays.
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
  r: {engine: native, tiers: [{delay: %s, attempts: 5}]}
exchanges: [{name: e}]
queues:
  - {name: q, backoff: %s, bindings: [{exchange: e, key: k}]}
  - {name: qa, backoff: a, bindings: [{exchange: e, key: ka}]}
`, deadLetterBy, returnDelay, backoff)
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
		deliveries := brokertest.Consume(t, ch, "q", 500)
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

// What a consumer holds when it stops is delayed, however it stops. The page says which ways count
// as a failure.
func TestHowAConsumerStops(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/native.md")
	if err != nil {
		t.Fatal(err)
	}
	const timeout = "has acknowledged nothing in time (`consumer-timeout`)"
	for way, stop := range map[string]func(*stopping) error{
		"closes its channel":    func(c *stopping) error { return c.ch.Close() },
		"closes its connection": func(c *stopping) error { return c.conn.Close() },
		"is killed":             func(c *stopping) error { return errors.Join(c.plain.SetLinger(0), c.plain.Close()) },
		"calls `basic.cancel`, then closes its channel": func(c *stopping) error {
			return errors.Join(c.ch.Cancel("c", false), c.ch.Close())
		},
		"calls `basic.cancel`, then `basic.reject` with requeue": func(c *stopping) error {
			return errors.Join(c.ch.Cancel("c", false), c.each(func(d amqp091.Delivery) error { return d.Reject(true) }))
		},
		"calls `basic.cancel`, then `basic.nack` with requeue": func(c *stopping) error {
			return errors.Join(c.ch.Cancel("c", false), c.each(func(d amqp091.Delivery) error { return d.Nack(false, true) }))
		},
		timeout: func(*stopping) error { return nil },
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newEngineStage(t, "policy", brokertest.VHost(t))
			s.apply(t, s.m, "r", 100*time.Millisecond)
			for range held {
				brokertest.PublishConfirmed(t, s.target.Confirming(t), "e", "k", amqp091.Publishing{})
			}
			args := amqp091.Table{}
			if way == timeout {
				args["x-consumer-timeout"] = int32(1000)
			}
			began := time.Now()
			c := holding(t, s.target, args)
			stopped := time.Now()
			if way == timeout { // it began with the first delivery
				stopped = began
			}
			if err := stop(c); err != nil {
				t.Fatal(err)
			}
			again := s.target.Channel(t)
			for range held {
				d := brokertest.Take(t, again, "q")
				if early := returnDelay - time.Since(stopped); early > 0 {
					t.Errorf("a message is not delayed: it comes %s early", early)
				}
				counted := "no"
				if d.Headers["x-delivery-count"] == int64(1) {
					counted = "yes"
				}
				if row := fmt.Sprintf("| %s | %s |\n", way, counted); !strings.Contains(string(page), row) {
					t.Errorf("headers %v, and the page does not say %s", d.Headers, row)
				}
			}
		})
	}
}

// held is how many messages a consumer of these tests holds.
const held = 3

// stopping is a consumer that holds messages which it has not begun.
type stopping struct {
	conn  *amqp091.Connection
	plain *net.TCPConn
	ch    *amqp091.Channel
	holds []amqp091.Delivery
}

// holding consumes q until it holds the messages.
func holding(t *testing.T, target brokertest.Target, args amqp091.Table) *stopping {
	t.Helper()
	c := &stopping{}
	var err error
	c.conn, err = amqp091.DialConfig(target.URL, amqp091.Config{Dial: func(network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), network, addr)
		c.plain, _ = conn.(*net.TCPConn)
		return conn, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.conn.Close() })
	if c.ch, err = c.conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if err := c.ch.Qos(held, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := c.ch.Consume("q", "c", false, false, false, false, args)
	if err != nil {
		t.Fatal(err)
	}
	for range held {
		c.holds = append(c.holds, <-deliveries)
	}
	return c
}

// each settles what the consumer holds.
func (c *stopping) each(settle func(amqp091.Delivery) error) error {
	var errs []error
	for _, d := range c.holds {
		errs = append(errs, settle(d))
	}
	return errors.Join(errs...)
}
