package amqp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A queue has lost what a Holder acknowledged when Release returns, and has the others back. The
// broker forgets acknowledgements that its channel has kept when the channel is closed: sent one by
// one, those of most rounds are forgotten.
func TestAQueueLosesWhatAHolderAcknowledges(t *testing.T) {
	t.Parallel()
	const n, rounds = 400, 6
	for _, kind := range []string{"classic", "quorum"} {
		for name, acks := range map[string]func(int) bool{"all": every(1), "every second": every(2)} {
			t.Run(fmt.Sprintf("%s, %s", kind, name), func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": kind})
				for round := range rounds {
					h := dial(t, target).Holder(queue, amqp.HolderOptions{Messages: n})
					taken, left := 0, n
					if err := h.Take(t.Context(), func(m amqp.Held) error {
						taken++
						if !acks(taken - 1) {
							return nil
						}
						left--
						return h.Ack(m)
					}); err != nil {
						t.Fatal(err)
					}
					if err := h.Release(); err != nil || taken != n {
						t.Fatalf("round %d: took %d of %d: %v", round, taken, n, err)
					}
					got, consumers, err := dial(t, target).Settled(t.Context(), queue, 0)
					if err != nil || got != left || consumers != 0 {
						t.Fatalf("round %d: the queue has %d messages and %d consumers, want %d and none: %v",
							round, got, consumers, left, err)
					}
					brokertest.Fill(t, ch, "", queue, n-left, 16)
					brokertest.Eventually(t, "the messages of the queue", func() bool { return ready(t, ch, queue) == n })
				}
			})
		}
	}
}

// A consumer that has ended leaves nothing in its queue of what it acknowledged, also one by one.
func TestAQueueLosesWhatAConsumerAcknowledges(t *testing.T) {
	t.Parallel()
	const n, rounds = 400, 6
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": kind})
			for round := range rounds {
				conn := dial(t, target)
				source, err := conn.Consume(queue, n, 0)
				if err != nil {
					t.Fatal(err)
				}
				var tags []uint64
				for range n {
					tags = append(tags, (<-source.Deliveries()).DeliveryTag)
				}
				if err := source.Stop(); err != nil {
					t.Fatal(err)
				}
				for _, tag := range tags[1:] { // the first one is held, as the relay may hold it
					if err := source.Ack(tag, false); err != nil {
						t.Fatal(err)
					}
				}
				if err := source.Settle(); err != nil {
					t.Fatal(err)
				}
				if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
				if got, _, err := dial(t, target).Settled(t.Context(), queue, 0); err != nil || got != 1 {
					t.Fatalf("round %d: the queue has %d messages, want 1: %v", round, got, err)
				}
				brokertest.Fill(t, ch, "", queue, n-1, 16)
				brokertest.Eventually(t, "the messages of the queue", func() bool { return ready(t, ch, queue) == n })
			}
		})
	}
}

// A request of a consumer that meets the end of the connection says so, and can be tried again on
// another one.
func TestAConsumerSaysThatItsConnectionEnded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	queue, _ := filled(t, target, 1, nil)
	through, proxy := brokertest.NewProxy(t, target)
	for name, request := range map[string]func(*amqp.Consumer, uint64) error{
		"ack":    func(s *amqp.Consumer, tag uint64) error { return s.Ack(tag, false) },
		"cancel": func(s *amqp.Consumer, _ uint64) error { return s.Cancel() },
		"stop":   func(s *amqp.Consumer, _ uint64) error { return s.Stop() },
	} {
		source, err := dial(t, through).Consume(queue, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		tag := (<-source.Deliveries()).DeliveryTag
		proxy.Cut()
		for err == nil {
			err = request(source, tag) // the first acknowledgements may be written before the end is read
		}
		if _, closed := errors.AsType[*amqp.ClosedError](err); !closed || !errors.Is(err, broker.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A publisher says the same, whether it meets the end as it writes or finds the channel closed.
func TestAPublisherSaysThatItsConnectionEnded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	through, proxy := brokertest.NewProxy(t, brokertest.VHost(t))
	for range 20 {
		sink, err := dial(t, through).Publisher(1000)
		if err != nil {
			t.Fatal(err)
		}
		cut := time.AfterFunc(5*time.Millisecond, proxy.Cut)
		for err == nil {
			_, err = sink.Publish("", "nowhere", amqp091.Publishing{Body: make([]byte, 100_000)})
		}
		cut.Stop()
		if _, closed := errors.AsType[*amqp.ClosedError](err); !closed || !errors.Is(err, broker.ErrUnreachable) {
			t.Errorf("%v", err)
		}
	}
}

// A Holder whose connection ends before it gives back says that the queue may have all messages.
func TestAHolderSaysThatAcknowledgementsMayBeLost(t *testing.T) {
	t.Parallel()
	const n = 100
	target := brokertest.VHost(t)
	queue, _ := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum"})
	through, proxy := brokertest.NewProxy(t, target)
	for _, acks := range []func(int) bool{every(1), never} {
		h := dial(t, through).Holder(queue, amqp.HolderOptions{Messages: n})
		i := 0
		if err := h.Take(t.Context(), func(m amqp.Held) error {
			i++
			if acks(i) {
				return h.Ack(m)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		proxy.Cut()
		if err := h.Release(); errors.Is(err, amqp.ErrUnsettled) != acks(1) {
			t.Errorf("Release: %v", err)
		}
	}
}

// While the leader of a quorum queue is silent, the broker counts nothing, and the end of a channel
// has returned nothing yet. Neither is taken for an empty queue.
func TestASilentLeaderIsNotAnEmptyQueue(t *testing.T) {
	t.Parallel()
	node := brokertest.Node(t)
	const n = 100
	target := node.VHost(t)
	queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum"})
	member := func(call string) {
		t.Helper()
		node.Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
			%s(element(1, amqqueue:get_pid(Q))), ok.`, target.VHost, queue, call))
	}
	// silent runs do while the leader is silent, and lets it continue once do must have asked.
	silent := func(do func() error) error {
		t.Helper()
		asks := dial(t, target)
		member("sys:suspend")
		done := make(chan error, 1)
		go func() { done <- do() }()
		if now, _ := asks.MessagesReady(queue); now != 0 {
			t.Fatalf("the leader is not silent: it counts %d", now)
		}
		member("sys:resume")
		return <-done
	}
	consume := func() *amqp.Conn {
		t.Helper()
		conn := dial(t, target)
		source, err := conn.Consume(queue, n, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			<-source.Deliveries()
		}
		return conn
	}

	taker, counter := consume(), dial(t, target)
	ready, consumers := 0, 0
	if err := silent(func() (err error) {
		if err := taker.Close(); err != nil {
			return err
		}
		ready, consumers, err = counter.Settled(t.Context(), queue, 0)
		return err
	}); errors.Is(err, broker.ErrRefused) { // it says so: rabbitmqctl took longer than Settled asks
		ready, consumers, err = counter.Settled(t.Context(), queue, 0)
		if err != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if ready != n || consumers != 0 {
		t.Errorf("after the end of a connection the queue has %d messages and %d consumers, want %d and none",
			ready, consumers, n)
	}

	h := dial(t, target).Holder(queue, amqp.HolderOptions{Messages: n})
	var acked []amqp.Held
	if err := h.Take(t.Context(), func(m amqp.Held) error {
		if m.DeliveryTag%3 != 0 {
			acked = append(acked, m)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := silent(func() error {
		for _, m := range acked {
			if err := h.Ack(m); err != nil {
				return err
			}
		}
		return h.Release()
	}); err != nil && !errors.Is(err, amqp.ErrUnsettled) { // it says so: rabbitmqctl took longer than answerTime
		t.Errorf("Release: %v", err)
	} else if ready, _, counted := counter.Settled(t.Context(), queue, 0); counted != nil ||
		err == nil && ready != n-len(acked) {
		t.Errorf("the queue has %d messages, want %d: %v", ready, n-len(acked), counted)
	}

	if _, err := ch.QueuePurge(queue, false); err != nil {
		t.Fatal(err)
	}
	member("sys:suspend")
	if ready, _, err := counter.Settled(t.Context(), queue, 0); !errors.Is(err, broker.ErrRefused) {
		t.Errorf("a queue whose leader stays silent has %d messages: %v", ready, err)
	}
	member("sys:resume")

	// A Holder with First does not believe that acknowledgements have arrived.
	brokertest.Fill(t, ch, "", queue, n, 16)
	brokertest.Eventually(t, "the messages of the queue", func() bool { return brokertest.Ready(t, ch, queue) == n })
	h = dial(t, target).Holder(queue, amqp.HolderOptions{Messages: n, First: true}.AnswerTime(2*time.Second))
	if err := h.Take(t.Context(), h.Ack); err != nil {
		t.Fatal(err)
	}
	member("sys:suspend")
	if err := h.Release(); !errors.Is(err, amqp.ErrNoLeader) {
		t.Errorf("Release: %v", err)
	}
	member("sys:resume")

	// Nor does one whose channel the broker does not end in time, nor its connection.
	brokertest.Fill(t, ch, "", queue, n, 16)
	brokertest.Eventually(t, "the messages of the queue", func() bool { return brokertest.Ready(t, ch, queue) == n })
	var gives, ends atomic.Bool
	through := filtered(t, target, func(frame []byte, _ uint16) []byte {
		if gives.Load() && bytes.Contains(frame, []byte{0, 20, 0, 40}) { // channel.close
			ends.Store(true)
		}
		if ends.Load() {
			return nil
		}
		return frame
	})
	h = dial(t, through).Holder(queue, amqp.HolderOptions{Messages: n}.AnswerTime(10*time.Second))
	if err := h.Take(t.Context(), h.Ack); err != nil {
		t.Fatal(err)
	}
	member("sys:suspend")
	gives.Store(true)
	if err := h.Release(); !errors.Is(err, amqp.ErrUnsettled) || !ends.Load() {
		t.Errorf("Release: %v; the channel was to end: %t", err, ends.Load())
	}
	member("sys:resume")
}

// Settled does not wait longer than its context for basic.get, which a leader without the majority
// of its nodes answers after a minute.
func TestSettledWaitsNoLongerThanItsContext(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	queue, _ := filled(t, target, 0, amqp091.Table{"x-queue-type": "quorum"})
	conn := dial(t, filtered(t, target, func(frame []byte, _ uint16) []byte {
		if bytes.Contains(frame, []byte{0, 60, 0, 70}) { // basic.get
			return nil
		}
		return frame
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if ready, _, err := conn.Settled(ctx, queue, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d messages, %v", ready, err)
	}
}
