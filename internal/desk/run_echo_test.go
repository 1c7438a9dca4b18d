package desk_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// newForeign returns a virtual host that dlxctl did not make: orders dead-letters to dlq, and has n
// messages.
func newForeign(t *testing.T, typ string, n int) *shop {
	t.Helper()
	s := newShopOn(t, brokertest.VHost(t), "version: 1\nname: desk\n")
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
