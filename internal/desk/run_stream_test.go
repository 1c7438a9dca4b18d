package desk_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A stream among the targets does not hold up a run: its messages stay when they are read.
func TestAStreamDoesNotHoldUpARun(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	ch := s.target.Channel(t)
	stream := amqp091.Table{"x-queue-type": "stream"}
	brokertest.Declare(t, ch, "history", stream)
	brokertest.Bind(t, ch, "history", "order.#", "events", nil)
	brokertest.Fill(t, s.ch, "", "history", 50, 10)
	s.consume(t, "billing", func(amqp091.Delivery) bool { return false })
	s.consume(t, "audit", func(amqp091.Delivery) bool { return false })
	chosen, _ := s.bury(t, 16)
	q := request(t, desk.Replay)
	q.Target.Original = true
	q.Send = desk.SendOptions{Ramp: []int{1}, MaxWaiting: 10, Settle: 50 * time.Millisecond}
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil || len(p.Reaches) != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	within, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	pausing := ""
	r, err := s.desk.Execute(within, p, func(p desk.Progress) { pausing = p.Pausing })
	if err != nil || r.Moved != len(chosen) || !r.Ended {
		t.Errorf("%+v, %v; it was %s", r, err, pausing)
	}
}

// A run does not take from a stream, also if the queue becomes one after the proposal, or while a
// run waits. That run can be returned.
func TestNothingIsTakenOutOfAStream(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	declare := func(typ string) {
		t.Helper()
		s.declare(t, "history", amqp091.Table{"x-queue-type": typ})
		brokertest.PublishConfirmed(t, s.ch, "", "history", deadLetter("billing", "order.chosen", typ, 1))
		s.awaitReady(t, "history", 1)
	}
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), "is a stream") {
			t.Errorf("it is not refused: %v", err)
		}
	}
	declare("quorum")
	q := desk.Request{Action: desk.Replay, Queue: "history", Target: desk.Target{Queue: "billing"}}
	p, err := s.desk.Propose(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	run := takenBy(t, s.deskOn(t, s.target).Holding(), q, 1)
	brokertest.Delete(t, s.ch, "history")
	declare("stream")
	for _, q.Action = range []desk.Action{desk.Replay, desk.Park, desk.Discard} {
		_, err := s.desk.Propose(t.Context(), q)
		refused(err)
	}
	_, err = s.desk.Execute(t.Context(), p, nil)
	refused(err)
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = s.desk.Resume(within, run, nil, nil)
	refused(err)
	if r, err := s.desk.Return(within, run, nil); err != nil || !r.Ended || r.Moved != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	s.awaitReady(t, "history", 2)
	s.tidy(t)
}
