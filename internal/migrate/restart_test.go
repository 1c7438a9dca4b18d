package migrate_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
)

// through works on a connection, again and again, until the context ends.
func (s *stage) through(ctx context.Context, work func(ch *amqp091.Channel) error) {
	for ctx.Err() == nil {
		err := func() error {
			conn, err := amqp091.Dial(s.target.URL)
			if err != nil {
				return err
			}
			defer conn.Close()
			ch, err := conn.Channel()
			if err != nil {
				return err
			}
			return work(ch)
		}()
		if err != nil {
			select {
			case <-time.After(cmp.Or(s.rest, 100*time.Millisecond)):
			case <-ctx.Done():
			}
		}
	}
}

// consumer is a service that consumes from a queue.
type consumer struct {
	prefetch  int // 0 is no limit
	exclusive bool
	canceled  func()                       // the broker ended the subscription; nil is nothing
	on        func(amqp091.Delivery) error // settles a message; after an error the service reconnects
}

// consuming consumes as a service does that reconnects, until stop or the end of the test.
func (s *stage) consuming(tb testing.TB, queue string, c consumer) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	var done sync.WaitGroup
	done.Go(func() {
		s.through(ctx, func(ch *amqp091.Channel) error {
			if err := ch.Qos(c.prefetch, 0, false); err != nil {
				return err
			}
			deliveries, err := ch.Consume(queue, "", false, c.exclusive, false, false, nil)
			if err != nil {
				return err
			}
			for {
				select {
				case <-ctx.Done():
					return nil
				case d, ok := <-deliveries:
					if !ok {
						if c.canceled != nil {
							c.canceled()
						}
						return errors.New("interrupted")
					}
					if err := c.on(d); err != nil {
						return err
					}
				}
			}
		})
	})
	return func() { cancel(); done.Wait() }
}

// publishThrough publishes as a service does that reconnects. stop gives
// what was confirmed.
func (s *stage) publishThrough(t *testing.T) (stop func() map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	confirmed := map[string]bool{}
	n := 0
	var done sync.WaitGroup
	done.Go(func() {
		s.through(ctx, func(ch *amqp091.Channel) error {
			if err := ch.Confirm(false); err != nil {
				return err
			}
			returned := ch.NotifyReturn(make(chan amqp091.Return, 1000))
			pace := time.NewTicker(brokertest.Pause(time.Millisecond))
			defer pace.Stop()
			for ; ctx.Err() == nil; <-pace.C {
				n++
				id := fmt.Sprint(n)
				exchange := []string{"t", "f"}[n%2]
				c, err := ch.PublishWithDeferredConfirm(exchange, "order.placed", true, false,
					amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent})
				if err != nil {
					return err
				}
				if ok, err := c.WaitContext(ctx); !ok {
					return errors.Join(err, errors.New("not confirmed"))
				}
				confirmed[id] = true
				for len(returned) > 0 {
					delete(confirmed, (<-returned).MessageId) // the publisher knows
				}
			}
			return nil
		})
	})
	return func() map[string]bool { cancel(); done.Wait(); return confirmed }
}

// consumeThrough consumes as a service does that reconnects.
func (s *stage) consumeThrough(t *testing.T, queue string) (stop func()) {
	t.Helper()
	return s.consumeAs(t, queue, 100, false, 0)
}

// consumeAs does so with a prefetch, as the only one or not, and pauses after each message.
func (s *stage) consumeAs(t *testing.T, queue string, prefetch int, exclusive bool, pause time.Duration) (stop func()) {
	t.Helper()
	return s.consuming(t, queue, consumer{
		prefetch: prefetch, exclusive: exclusive,
		canceled: func() {
			s.mu.Lock()
			s.canceled++
			s.mu.Unlock()
		},
		on: func(d amqp091.Delivery) error {
			s.mu.Lock()
			s.seen[d.MessageId]++
			s.order = append(s.order, d.MessageId)
			s.mu.Unlock()
			if pause > 0 {
				wait(t, pause) // it is how slow the service is
			}
			return d.Ack(false)
		},
	})
}

// The node is stopped or killed in each stage, under publishers and consumers that connect
// again, and migrate is run again: nothing that was confirmed is lost.
func TestMigrateWhileTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	s := newStageIn(t, node.VHost(t), fmt.Sprintf(topologyFile, "quorum"), "classic", nil)
	published := s.publishThrough(t)
	stopOld, stopNew := s.consumeThrough(t, "old"), s.consumeThrough(t, "new")
	atStep := func(prefix string) func(*migrate.Runner, func()) {
		return func(r *migrate.Runner, strike func()) {
			r.Until = migrate.Cutover
			r.Report = func(format string, args ...any) {
				if strings.HasPrefix(fmt.Sprintf(format, args...), prefix) {
					strike()
				}
			}
		}
	}
	leaveOld := sync.OnceFunc(func() { s.cutOver(t); stopOld() }) // then the drain can begin
	filled := 0
	for i, m := range brokertest.Share([]struct {
		name string
		when func(r *migrate.Runner, strike func())
	}{
		{"prepare", atStep("prepare:")},
		{"bind", atStep("cutover: bind the switch")},
		{"switch", atStep("cutover: switch from")},
		{"bind the new queue", atStep("cutover: bind new")},
		{"drain", func(r *migrate.Runner, strike func()) {
			r.Progress = func(int64) (step, finish func()) { return strike, func() {} }
		}},
		{"retire", func(r *migrate.Runner, strike func()) {
			r.Idle = 20 * time.Second
			time.AfterFunc(4*time.Second, strike)
		}},
	}) {
		if m.name == "drain" || m.name == "retire" {
			leaveOld()
		}
		if m.name == "drain" {
			filled = 3000
			s.fill(t, filled, 100)
		}
		struck := make(chan struct{})
		var once sync.Once
		r := s.runner(t)
		end := node.Kill
		if i == 0 || m.name == "bind" {
			end = node.Stop // 3.10 forgets a quorum queue that is made in its last second
		}
		m.when(r, func() { once.Do(func() { end(t); close(struck) }) })
		if err := r.Run(t.Context()); err == nil {
			t.Errorf("%s: the end of the node was not noticed", m.name)
		}
		select {
		case <-struck:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: it never came to that", m.name)
		}
		node.Start(t)
	}
	leaveOld()
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	confirmed := published()
	for i := range filled {
		confirmed[fmt.Sprint(i)] = true
	}
	lost, _ := s.account(t, confirmed) // a consumer that loses its connection sees messages again
	if lost > 0 {
		t.Errorf("%d of %d messages were lost", lost, len(confirmed))
		s.where(t, confirmed)
	}
	stopNew()
	if s.exists(t, "old") {
		t.Error("the legacy queue is still there")
	}
	s.tidy(t)
	t.Logf("%d confirmed, %d lost", len(confirmed), lost)
}

// cutOver runs until the cutover is done.
func (s *stage) cutOver(t *testing.T) { t.Helper(); s.until(t, migrate.Cutover) }

// until runs until a stage is done.
func (s *stage) until(t *testing.T, last migrate.Stage) {
	t.Helper()
	r := s.runner(t)
	r.Until = last
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
