package desk_test

import (
	"errors"
	"slices"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A look at a queue that rejects messages when it is full loses none, also where publishers wait
// for the room that it makes: a message above the limit could not be copied to the tail.
func TestLooksKeepMessagesOfAFullQueue(t *testing.T) {
	t.Parallel()
	if !brokertest.VHost(t).AtLeast("4.3") {
		t.Skip("before 4.3 each queue counts for itself")
	}
	target := brokertest.VHost(t)
	ch := spentQueue(t, target, amqp091.Table{
		"x-delivery-limit": int64(3), "x-max-length": int64(4), "x-overflow": "reject-publish",
	}, 1, 1, 1, 5)
	filled := 0
	l, err := deskOf(t, target).Look(t.Context(), "dlq", desk.LookOptions{}, func(m deadletter.Message) error {
		for m.Position == 1 && filled < 20 {
			err := brokertest.Publish(t.Context(), ch, "", "dlq", amqp091.Publishing{MessageId: "later"})
			if errors.Is(err, brokertest.ErrRefused) {
				return nil
			}
			if err != nil {
				return err
			}
			filled++
		}
		return nil
	})
	if !errors.Is(err, desk.ErrRefused) {
		t.Errorf("%d messages arrived meanwhile; looked at %d: %v", filled, l.Looked, err)
	}
	brokertest.Eventually(t, "all messages", func() bool { return readyIn(t, ch, "dlq") == 4+filled })
	got := idsOf(consumedFrom(t, target, "dlq", 4+filled))
	if got = slices.DeleteFunc(got, func(id string) bool { return id == "later" }); !slices.Equal(got, numbersFrom(0, 4)) {
		t.Errorf("the queue has %v", got)
	}
}
