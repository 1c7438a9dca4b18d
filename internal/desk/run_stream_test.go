package desk_test

import (
	"context"
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
	if _, err := ch.QueueDeclare("history", true, false, false, false, stream); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("history", "order.#", "events", false, nil); err != nil {
		t.Fatal(err)
	}
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
