package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// filled declares a queue with n messages, whose ids count from 0.
func filled(t *testing.T, target brokertest.Target, n int, args amqp091.Table) (string, *amqp091.Channel) {
	t.Helper()
	const name = "filled"
	ch := target.Confirming(t)
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	brokertest.Fill(t, ch, "", name, n, 16)
	brokertest.Eventually(t, "the messages of the queue", func() bool { return ready(t, ch, name) == n })
	return name, ch
}

func ready(t *testing.T, ch *amqp091.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// drained consumes a queue to its end and returns the message-ids in order.
func drained(t *testing.T, target brokertest.Target, queue string, n int) []int {
	t.Helper()
	ch := target.Channel(t)
	if err := ch.Qos(1000, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for len(ids) < n {
		d := <-deliveries
		ids = append(ids, number(t, d.MessageId))
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func number(t *testing.T, id string) int {
	t.Helper()
	n, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sequence returns the numbers from 0 that keep is true for.
func sequence(n int, keep func(int) bool) []int {
	var out []int
	for i := range n {
		if keep(i) {
			out = append(out, i)
		}
	}
	return out
}

// Whatever a Holder takes comes back in its place, beside acknowledgements and arrivals.
func TestAHolderKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const n, arrivals = 5000, 50
	for _, kind := range []string{"classic", "quorum"} {
		for name, tc := range map[string]struct {
			options amqp.HolderOptions
			takes   int
			acks    func(int) bool
			nack    bool
		}{
			"all":               {amqp.HolderOptions{Messages: n}, n, never, false},
			"a part":            {amqp.HolderOptions{Messages: 777}, 777, never, false},
			"in blocks":         {amqp.HolderOptions{Messages: n, Block: 400}, n, every(7), false},
			"many consumers":    {amqp.HolderOptions{Messages: n}.PerConsumer(200), n, every(9), false},
			"more channels":     {amqp.HolderOptions{Messages: n}.PerConsumer(100), n, never, false},
			"by nack":           {amqp.HolderOptions{Messages: n, Nack: true}, n, every(10), true},
			"many, by nack":     {amqp.HolderOptions{Messages: n, Nack: true}.PerConsumer(200), n, never, true},
			"more than it has":  {amqp.HolderOptions{Messages: 2 * n}, n, never, false},
			"up to the bytes":   {amqp.HolderOptions{Messages: n, Bytes: 16 * 1500}, 2000, never, false},
			"acknowledging all": {amqp.HolderOptions{Messages: n, Block: 1000}, n, every(1), false},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				if tc.nack && !target.AtLeast("4.3") {
					t.Skip("nack keeps the order since 4.3")
				}
				queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": kind})
				h := dial(t, target).Holder(queue, tc.options)
				want := 0
				if err := h.Take(t.Context(), func(m amqp.Held) error {
					i := number(t, m.MessageId)
					if i != want {
						return fmt.Errorf("message %d came in the place of %d", i, want)
					}
					want++
					if tc.acks(i) {
						return h.Ack(m)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if took, _ := h.Taken(); took != tc.takes || want != took {
					t.Errorf("took %d, want %d", took, tc.takes)
				}
				for i := range arrivals {
					brokertest.PublishConfirmed(t, ch, "", queue, amqp091.Publishing{MessageId: strconv.Itoa(n + i)})
				}
				if err := h.Release(); err != nil {
					t.Fatal(err)
				}
				rest := sequence(n+arrivals, func(i int) bool { return i >= tc.takes || !tc.acks(i) })
				if got := drained(t, target, queue, len(rest)); !slices.Equal(got, rest) {
					t.Errorf("came back in another order: %v", firstDifference(got, rest))
				}
			})
		}
	}
}

func never(int) bool { return false }

func every(n int) func(int) bool { return func(i int) bool { return i%n == 0 } }

func firstDifference(got, want []int) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("at %d: %v, want %v", i, got[i:min(i+10, len(got))], want[i:min(i+10, len(want))])
		}
	}
	return "one is longer"
}

// A visitor that hangs does not keep the messages: the end of the context gives them back.
func TestAHolderGivesBackWhileItsVisitorHangs(t *testing.T) {
	t.Parallel()
	const n = 300
	target := brokertest.VHost(t)
	queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum"})
	h := dial(t, target).Holder(queue, amqp.HolderOptions{Messages: n})
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("too late")
	err := h.Take(ctx, func(m amqp.Held) error {
		if m.MessageId == "200" {
			cancel(late)
			brokertest.Eventually(t, "the messages to be back", func() bool { return ready(t, ch, queue) == n })
			if err := h.Ack(m); !errors.Is(err, amqp.ErrGivenBack) {
				t.Errorf("acknowledging a message that was given back: %v", err)
			}
		}
		return nil
	})
	if !errors.Is(err, late) {
		t.Errorf("Take ended with %v", err)
	}
	if got := drained(t, target, queue, n); !slices.IsSorted(got) {
		t.Errorf("came back in another order: %v", got)
	}
}

func TestAHolderSaysWhyItCannotTake(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	h := dial(t, target).Holder("nowhere", amqp.HolderOptions{Messages: 1})
	if err := h.Take(t.Context(), func(amqp.Held) error { return nil }); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("error is %v", err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}
