package desk_test

import (
	"errors"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A look is refused exactly where RabbitMQ would withhold what it gives back: by basic.nack in a
// queue with a delivery limit, and by closing its channel in one without.
func TestLooksRefuseDelayedRetries(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	if !target.AtLeast("4.3") {
		t.Skip("RabbitMQ has delayed retries since 4.3")
	}
	d := deskOf(t, target)
	for kind, hides := range map[string]map[bool]bool{ // by whether the queue has a delivery limit
		"all": {true: true, false: true}, "failed": {true: false, false: true}, "returned": {true: true, false: false},
		"disabled": {true: false, false: false},
	} {
		for limited, hidden := range hides {
			name := fmt.Sprintf("%s-%t", kind, limited)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				args := amqp091.Table{
					"x-queue-type": "quorum", "x-delayed-retry-type": kind, "x-delayed-retry-min": 60_000,
				}
				if !limited {
					args["x-delivery-limit"] = 2147483647
				}
				ch := filledQueue(t, target, name, 2, args)
				looked, err := d.Look(t.Context(), name, desk.LookOptions{}, func(deadletter.Message) error { return nil })
				if refused := errors.Is(err, desk.ErrRefused); refused != hidden || !refused && (err != nil || looked.Looked != 2) {
					t.Fatalf("refused: %t, looked at %d: %v", refused, looked.Looked, err)
				}
				if !hidden {
					return
				}
				other := target.Channel(t)
				delivery := brokertest.Take(t, other, name)
				if limited {
					err = delivery.Nack(false, true)
				} else {
					err = other.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				steady := 0
				brokertest.EventuallyEvery(t, 40e6, "the message to stay hidden", func() bool {
					if steady++; readyIn(t, ch, name) != 1 {
						steady = 0
					}
					return steady == 5
				})
			})
		}
	}
}
