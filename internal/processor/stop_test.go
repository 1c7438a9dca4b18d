package processor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// retryInAnHour is a topology whose failures wait for an hour, so that a test can
// count where they are.
const retryInAnHour = `
version: 1
name: shop
defaults: {backoff: slow}
backoff:
  slow: {tiers: [1h]}
queues:
  - {name: work}
`

// fill puts messages into the failed queue of retryInAnHour, as the work queue would.
func (s *stage) fill(tb testing.TB, n int) {
	tb.Helper()
	brokertest.Fill(tb, s.ch, "shop.slow.failed", "@work", n, 1000)
}

// drain takes all messages out of a queue and counts each message-id.
func (s *stage) drain(t *testing.T, queue string) map[string]int {
	t.Helper()
	return brokertest.Drain(t, s.eyes, queue)
}

func TestUntilEmptyEndsWhenAllIsMoved(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	s.fill(t, 2000)
	untilEmpty(t, s.processor(t))
	if left := s.drain(t, "shop.slow.failed"); len(left) > 0 {
		t.Errorf("%d messages are left in the failed queue", len(left))
	}
	moved := s.drain(t, "shop.slow.retry.1h")
	if len(moved) != 2000 {
		t.Errorf("%d of 2000 messages are in the retry queue", len(moved))
	}
	for id, n := range moved {
		if n != 1 {
			t.Errorf("message %s is there %d times, though nothing went wrong", id, n)
		}
	}
}

func TestUntilEmptyNeedsTheQueue(t *testing.T) {
	t.Parallel()
	s := &stage{target: brokertest.VHost(t)}
	var err error
	if s.topology, err = compile(retryInAnHour); err != nil {
		t.Fatal(err)
	}
	p := s.processor(t)
	p.UntilEmpty = true
	if err := p.Run(t.Context()); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("Run gives %v, want that the queue is not found", err)
	}
}

// Without UntilEmpty a processor waits for a queue that is not there yet.
func TestAProcessorWaitsForItsQueue(t *testing.T) {
	t.Parallel()
	s := &stage{target: brokertest.VHost(t)}
	var err error
	if s.topology, err = compile(retryInAnHour); err != nil {
		t.Fatal(err)
	}
	run(t, s.processor(t))
	s.ch, s.eyes = s.target.Channel(t), s.target.Channel(t)
	if err := s.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	s.apply(t, s.topology)
	s.leadInto(t, "shop.slow.failed")
	s.fill(t, 1)
	if m := s.take(t, "shop.slow.retry.1h"); m.MessageId != "0" {
		t.Errorf("the retry queue holds %q", m.MessageId)
	}
}

// A processor that is told to stop under load finishes what is in flight: no
// message is in two places, and none is nowhere.
func TestStoppingUnderLoadDoublesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	const n = 5000
	s.fill(t, n)
	seen := monitor.New("")
	for range 5 {
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, stop)
		p := s.processor(t)
		p.Monitor = seen
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		stop()
	}
	failed, moved := s.drain(t, "shop.slow.failed"), s.drain(t, "shop.slow.retry.1h")
	for i := range n {
		if id := fmt.Sprint(i); failed[id]+moved[id] != 1 {
			t.Errorf("message %s is %d times in the failed queue and %d times in the retry queue", id, failed[id], moved[id])
		}
	}
	if got := seen.Totals(); got != (monitor.Totals{Retried: int64(len(moved))}) {
		t.Errorf("the totals are %+v, with %d messages in the retry queue", got, len(moved))
	}
	t.Logf("%d moved, %d left", len(moved), len(failed))
}

// A processor that is told to stop while the broker is away counts what it had in flight.
func TestStoppingWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	target, wire := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint, p.Monitor = s.endpoint(t, target), monitor.New("")
	log := listen(t, p)
	stop := run(t, p)
	s.deleteTargets(t)
	for _, id := range ids(0, 2) { // no queue takes them: they stay in flight
		s.publish(t, "shop.slow.failed", "@work", amqp091.Publishing{MessageId: id})
		log.says(t, "which waits; 'dlxctl plan' shows what is missing\" queue=work message_id="+id)
	}
	wire.Shut()
	log.says(t, "msg=reconnecting")
	stop()
	if left := p.Monitor.Totals().Unsettled; left != 2 {
		t.Errorf("it counts %d messages that it left unsettled, not 2", left)
	}
}

// Several processors share a failed queue: each message is moved by one of them.
func TestProcessorsShareAQueue(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newStage(t, retryInAnHour)
	for range 3 {
		run(t, s.processor(t))
	}
	s.fill(t, 3000)
	if doubled := s.moved(t, "shop.slow.retry.1h", ids(0, 3000)...); doubled > 0 {
		t.Errorf("%d are doubled, though nothing went wrong", doubled)
	}
}

// A processor whose connections are cut under load comes back, and loses nothing;
// what was in flight may be doubled.
func TestCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	const n, cuts = 6_000, 5
	s.fill(t, n)
	target, wire := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint = s.endpoint(t, target)
	stop := run(t, p)
	left := n
	for range cuts {
		before := left
		brokertest.EventuallyEvery(t, 5*time.Millisecond, "the processor to go on", func() bool {
			left = s.ready(t, "shop.slow.failed")
			return left < before || left == 0
		})
		wire.Cut()
	}
	stop()
	untilEmpty(t, s.processor(t))
	moved := s.drain(t, "shop.slow.retry.1h")
	doubled := 0
	for i := range n {
		got := moved[fmt.Sprint(i)]
		if got == 0 {
			t.Errorf("message %d is lost", i)
		}
		doubled += max(0, got-1)
	}
	if doubled > cuts*prefetch {
		t.Errorf("%d doubled, more than the %d that can have been in flight", doubled, cuts*prefetch)
	}
	t.Logf("%d doubled in %d cuts", doubled, cuts)
}

// ready returns how many messages are ready in a queue.
func (s *stage) ready(t *testing.T, queue string) int {
	t.Helper()
	return s.look(t, queue).Messages
}

// look returns what a queue holds. The broker says that a quorum queue holds nothing
// and has no consumers when its leader has not answered for 250 ms (rabbit_quorum_queue:stat/1,
// 3.10.8 to 4.3.6): nothing is believed only when it is said again.
func (s *stage) look(t *testing.T, queue string) amqp091.Queue {
	t.Helper()
	for try := 1; ; try++ {
		q, err := s.eyes.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Messages > 0 || q.Consumers > 0 || try == 3 {
			return q
		}
		pause(t, 50*time.Millisecond)
	}
}

// On a connection that says no more, a processor that is stopped ends after its grace, though the
// broker does not answer that its channels are closed.
func TestStoppedOnASilentConnection(t *testing.T) {
	t.Parallel()
	s := newStage(t, retryInAnHour)
	target, wire := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint, p.Grace = s.endpoint(t, target), time.Second
	p.Endpoint.Heartbeat = time.Minute // longer than the test waits
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	s.fill(t, 10)
	s.moved(t, "shop.slow.retry.1h", ids(0, 10)...)
	wire.Hold()
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the processor does not end")
	}
}

// All its connections are closed at the same time then, also the one that looks for queues of a
// match: what remains of the time that docs/processor.md names is for the last notices.
func TestStoppedOnSilentConnections(t *testing.T) {
	t.Parallel()
	s := newMatchStage(t)
	target, wire := brokertest.NewProxy(t, s.target)
	p := s.processor(t)
	p.Endpoint, p.Grace = s.endpoint(t, target), time.Second
	p.Endpoint.Heartbeat = time.Minute // longer than the test waits
	stop := run(t, p)
	s.declare(t, "svc.mine", "quorum", nil, "events")
	s.publish(t, "events", "a", amqp091.Publishing{MessageId: "m-1"})
	reject(t, s.take(t, "svc.mine"))
	s.take(t, "svc.mine") // the processor has looked for the queue
	wire.Hold()
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("it took %s to end, with a grace of %s", took, p.Grace)
	} else {
		t.Logf("it took %s", took)
	}
}
