package desk_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
	"github.com/dlxctl/dlxctl/topology"
)

// A process that was killed while it took messages, or gave them back, may have left some in the
// hold and in the queue too. Another run of that queue is refused until the first has been resumed
// or returned: it would send them twice. A return that is refused or interrupted changes nothing.
func TestAnotherRunWaitsForOneThatWasKilled(t *testing.T) {
	t.Parallel()
	parked := topology.ParkedName("shop")
	for name, c := range map[string]struct {
		queue   string // of the other run; empty is billing.dead
		returns bool   // the process gave back
		again   func(s *shop, t *testing.T, run string)
	}{
		"it took":                          {},
		"it took, and a return is refused": {again: (*shop).refuseReturn},
		"it gave back":                     {returns: true},
		"it gave back, and another return is cut short": {returns: true, again: (*shop).cutReturn},
		"it gave back parked messages":                  {returns: true, queue: parked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			chosen, rest := s.bury(t, 400)
			other := request(t, desk.Replay)
			if c.queue == parked {
				s.execute(t, request(t, desk.Park))
				other = desk.Request{Action: desk.Restore, Queue: parked, Reason: "test"}
			}
			run, stall := "", task{Action: desk.Replay, Hold: true, StallIn: desk.Taking, StallAt: len(chosen) / 3}
			if c.returns {
				run = takenBy(t, s.deskOn(t, s.target).Holding(), other, len(chosen))
				stall = task{Run: run, Return: true, StallIn: desk.Sending, StallAt: 1}
			}
			s.start(t, stall, func(line string) bool { return line == "stalled" }).ended(t)
			if run = s.onlyRun(t); run == "" {
				t.Fatal("the run has ended before it was killed")
			}
			if c.again != nil {
				c.again(s, t, run)
			}
			p, err := s.desk.Propose(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.desk.Execute(t.Context(), p, nil)
			if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), run) {
				t.Errorf("another run: %v", err)
			}
			if r, err := s.desk.Return(t.Context(), run, nil); err != nil || !r.Ended || r.DoubledAtMost > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			got := append(identities(s.drained(t, "billing.dead")), identities(s.drained(t, "billing"))...)
			if c.queue == parked {
				got = append(got, identities(s.drained(t, parked))...)
			}
			if lost, doubled := compareCounts(append(chosen, rest...), got); lost+doubled > 0 {
				t.Errorf("%d lost, %d doubled", lost, doubled)
			}
			s.tidy(t)
		})
	}
}

// refuseReturn returns a run that was killed while it took, while another desk has the queue. The
// run is listed as before.
func (s *shop) refuseReturn(t *testing.T, run string) {
	t.Helper()
	other := s.lock(t, topology.DeskLockName("shop", "billing.dead"))
	r, err := s.desk.Return(t.Context(), run, nil)
	if !errors.Is(err, desk.ErrRefused) || r.Ended {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	runs, err := s.desk.Runs(t.Context())
	if err != nil || len(runs) != 1 || runs[0].Phase != desk.Taking {
		t.Errorf("%+v, %v", runs, err)
	}
}

// cutReturn interrupts a return of a run that was killed while it gave back, once the exchange is
// deleted through which it did.
func (s *shop) cutReturn(t *testing.T, run string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	target := noticing(t, s.target, topology.HoldName("shop", run)+".to.", cancel)
	if r, err := s.deskOn(t, target).Return(ctx, run, nil); err != nil || r.Stopped != "interrupted" || r.Moved > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// lock has a lock of the desk until the connection is closed.
func (s *shop) lock(t *testing.T, name string) *amqp091.Connection {
	t.Helper()
	conn := s.target.Dial(t)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(name, false, false, true, false, amqp091.Table{"x-queue-type": "classic"}); err != nil {
		t.Fatal(err)
	}
	return conn
}

// noticing returns the target as reached through a proxy that calls then once a client has sent a
// text for the first time.
func noticing(t *testing.T, target brokertest.Target, text string, then func()) brokertest.Target {
	t.Helper()
	var once sync.Once
	return brokertest.NewFilter(t, target, func(client, server net.Conn) {
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err == nil {
				_, err = server.Write(buffer[:n])
			}
			if bytes.Contains(buffer[:n], []byte(text)) {
				once.Do(then)
			}
			if err != nil {
				return
			}
		}
	})
}
