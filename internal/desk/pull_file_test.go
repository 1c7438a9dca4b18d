package desk_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A pull is resumed with a file that names another dead-letter queue, in which the messages would
// push out others. They go to the queue that the run was begun for, as the result says.
func TestAPullIsResumedWithAnotherFile(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	brokertest.Declare(t, s.ch, "small", amqp091.Table{"x-max-length": 5})
	const n = 40
	var list []amqp091.Publishing
	for i := range n {
		list = append(list, amqp091.Publishing{MessageId: strconv.Itoa(i), DeliveryMode: amqp091.Persistent})
	}
	brokertest.PublishConfirmed(t, s.ch, "", "small", list[:5]...)
	brokertest.PublishConfirmed(t, s.ch, "events", "order.chosen", list...)
	s.awaitReady(t, "billing", n)
	p, err := s.desk.Propose(t.Context(), pullRequest(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Taking && p.Done == n {
			cancel()
		}
	})
	if err != nil || r.Ended || r.Moved > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	file := strings.Replace(s.file, "{name: billing,", "{name: billing, dead: {queue: small},", 1)
	if s.topology, err = compile(file); err != nil {
		t.Fatal(err)
	}
	r, err = s.deskOn(t, s.target).Resume(t.Context(), r.Run, nil, nil)
	if err != nil || r.Moved != n || !slices.Equal(r.To, []string{"billing.dead"}) {
		t.Errorf("%+v, %v", r, err)
	}
	s.awaitReady(t, "billing.dead", n)
	for i, d := range s.drained(t, "small") {
		if d.MessageId != strconv.Itoa(i) {
			t.Errorf("small has lost a message: its message %d is %s", i, d.MessageId)
		}
	}
	s.tidy(t)
}
