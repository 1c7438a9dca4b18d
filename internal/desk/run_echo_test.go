package desk_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// newForeign returns a virtual host that dlxctl did not make: orders dead-letters to dlq, and has n
// messages.
func newForeign(t *testing.T, typ string, n int) *shop {
	t.Helper()
	return newForeignOn(t, brokertest.VHost(t), typ, n)
}

func newForeignOn(t *testing.T, target brokertest.Target, typ string, n int) *shop {
	t.Helper()
	s := newShopOn(t, target, "version: 1\nname: desk\n")
	declare := func(name string, more amqp091.Table) {
		args := amqp091.Table{"x-queue-type": typ}
		maps.Copy(args, more)
		s.declare(t, name, args)
	}
	declare("orders", amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"})
	declare("dlq", nil)
	declare("keep", nil)
	messages := make([]amqp091.Publishing, n)
	for i := range messages {
		messages[i] = amqp091.Publishing{MessageId: fmt.Sprint(i), DeliveryMode: amqp091.Persistent, Body: []byte("same")}
	}
	brokertest.PublishConfirmed(t, s.ch, "", "orders", messages...)
	return s
}

// A run that is interrupted while it acquires the lock to listen frees it: a page that goes on
// would keep it, and no other run could take from the queue.
func TestAnInterruptedRunThatListensKeepsNoLock(t *testing.T) {
	t.Parallel()
	const n = 100 // enough for 10 s
	s := newForeign(t, "quorum", n)
	s.consume(t, "orders", func(amqp091.Delivery) bool { return true })
	brokertest.Eventually(t, "dead letters", func() bool { return readyIn(t, s.ch, "dlq") == n })
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	lock := []byte(topology.DeskLockName(s.topology.Name, "dlq"))
	d := s.deskOn(t, brokertest.NewFilter(t, s.target, func(client, server net.Conn) {
		listens := false
		brokertest.Forward(client, server, func(piece []byte) bool {
			listens = listens || bytes.Contains(piece, []byte("listens at"))
			if listens && bytes.Contains(piece, lock) {
				interrupt()
			}
			return true
		})
	}))
	p, err := d.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "dlq", Send: desk.SendOptions{Rate: 10}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Execute(ctx, p, nil)
	if err != nil || r.Stopped != "interrupted" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := s.desk.Return(t.Context(), r.Run, nil); err != nil {
		t.Fatal(err)
	}
	s.tidyOf(t, "desk.desk.lock.")
}

// A run hears failures of a queue that dlxctl does not manage once they come back to the queue that
// it takes from, stops, and can be resumed. To a queue without consumers it sends without waiting,
// and does not say that none failed.
func TestAReplayHearsWhatComesBack(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			const n = 20
			s := newForeign(t, typ, n)
			var mended atomic.Bool
			s.consume(t, "orders", func(amqp091.Delivery) bool { return !mended.Load() })
			dead := 0
			inQueue := func() bool { dead = readyIn(t, s.ch, "dlq"); return dead == n }
			brokertest.Eventually(t, "dead letters", inQueue, &dead)
			replay := desk.Request{Action: desk.Replay, Queue: "dlq", Send: desk.SendOptions{
				Rate: 100, Ramp: []int{2, 10}, StopFailures: 3, Settle: 500 * time.Millisecond,
			}}
			r := s.execute(t, replay)
			if !strings.Contains(r.Stopped, "2 of a batch of 2 failed again") || r.FailedAgain != 2 || r.Moved != 2 ||
				r.Left != n-2 || len(r.Unheard) > 0 {
				t.Fatalf("%+v", r)
			}
			runs, err := s.desk.Runs(t.Context())
			if err != nil || len(runs) != 1 || runs[0].Holds != n-2 || runs[0].Age != 0 {
				t.Errorf("the runs right after it stopped: %+v, %v", runs, err)
			}
			mended.Store(true)
			r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
			// The last 6 are not a batch of the ramp.
			if err != nil || !r.Ended || r.Moved != n-2 || r.FailedAgain != 0 || !r.SoFar || len(r.Unheard) > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			replay.Again, replay.Target = true, desk.Target{Queue: "keep"}
			r = s.execute(t, replay)
			if !r.Ended || r.Moved != 2 || r.SoFar || !slices.Equal(r.Unheard, []string{"keep (it has no consumer)"}) {
				t.Errorf("to a queue without consumers: %+v", r)
			}
			if kept, left := readyIn(t, s.ch, "keep"), readyIn(t, s.ch, "dlq"); kept != 2 || left != 0 {
				t.Errorf("keep has %d, dlq %d", kept, left)
			}
			s.tidy(t)
		})
	}
}

// A run waits while others consume from the queue to which failures come back, as a look does, and
// hears the failures then: also one that is resumed meanwhile, by a desk that does not say why they
// failed, as it cannot tell what to mask.
func TestARunWaitsToSeeWhatComesBack(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n, others = 20, 10
	s := newForeign(t, "quorum", n+others)
	s.consume(t, "orders", func(amqp091.Delivery) bool { return true })
	s.awaitReady(t, "dlq", n+others)
	looked := 0
	colleague := func(p desk.Progress) {
		if p.Phase == desk.Sending && looked == 0 {
			s.lookFor(t, "dlq", 3*time.Second)
			looked++
		}
	}
	p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Replay, Queue: "dlq", Limit: n, Send: desk.SendOptions{
		Rate: 100, Ramp: []int{2, 3}, StopFailures: 3, Settle: 500 * time.Millisecond,
	}})
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	r, err := s.desk.Execute(t.Context(), p, colleague)
	if err != nil || looked == 0 || !strings.Contains(r.Stopped, "2 of a batch of 2 failed again") || len(r.Unheard) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	s.lookFor(t, "dlq", time.Second)
	s.desk.Reader = nil
	r, err = s.desk.Resume(t.Context(), r.Run, nil, nil)
	if err != nil || r.Stopped != "2 of a batch of 2 failed again" || len(r.Unheard) > 0 {
		t.Errorf("resumed: %+v, %v", r, err)
	}
}

// lookFor has a consumer of a queue hold a message for a while.
func (s *shop) lookFor(t *testing.T, queue string, long time.Duration) {
	t.Helper()
	ch := s.target.Channel(t)
	if err := ch.Qos(1, 0, false); err != nil {
		t.Error(err)
	}
	if _, err := ch.Consume(queue, "", false, false, false, false, nil); err != nil {
		t.Error(err)
	}
	time.AfterFunc(long, func() { _ = ch.Close() }) // the message comes back
}

// Before 4.3 each look uses up a return of the messages of a queue that limits them. A run listens
// at such a queue no more once a look was refused as the first message has few left, and says so at
// once.
func TestARunThatListensUsesUpFewReturns(t *testing.T) {
	t.Parallel()
	const n = 20
	s := newForeign(t, "quorum", n)
	if s.target.AtLeast("4.3") {
		t.Skip("a look uses up no return")
	}
	setPolicy(t, s.target, "policies", "dlq", map[string]any{"delivery-limit": 4})
	brokertest.PublishConfirmed(t, s.ch, "", "dlq", amqp091.Publishing{MessageId: "first"})
	s.consume(t, "orders", func(amqp091.Delivery) bool { return true })
	s.awaitReady(t, "dlq", 1+n)
	brokertest.Eventually(t, "the broker to see the policy", func() bool {
		state, err := s.desk.Management.Inspect(t.Context())
		return err == nil && (state.QueuePolicies == nil || state.QueuePolicies["dlq"] == "dlq")
	})
	chosen, err := deadletter.NewFilter(`id != "first"`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.desk.Propose(t.Context(), desk.Request{
		Action: desk.Replay, Queue: "dlq", Filter: chosen, Send: desk.SendOptions{Rate: 3},
	})
	if err != nil || len(p.Refusals) > 0 {
		t.Fatal(p.Refusals, err)
	}
	said := n
	r, err := s.desk.Execute(t.Context(), p, func(p desk.Progress) {
		if len(p.Unheard) > 0 {
			said = min(said, p.Done)
		}
	})
	const why = "orders (its dead letters come back to dlq, which cannot be watched: " +
		"the first message of queue dlq can be returned 1 time more before"
	if err != nil || !r.Ended || r.Moved != n || len(r.Unheard) != 1 || !strings.HasPrefix(r.Unheard[0], why) {
		t.Errorf("%+v, %v", r, err)
	}
	if said >= n {
		t.Error("it said only at the end that it hears nothing")
	}
	s.awaitReady(t, "dlq", 1+n)
	// The choice, the run and one look have given it back.
	if first := s.drained(t, "dlq")[0]; first.MessageId != "first" || first.Headers["x-delivery-count"] != int64(3) {
		t.Errorf("dlq begins with %q, %v", first.MessageId, first.Headers)
	}
	s.tidy(t)
}
