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
	brokertest.Declare(t, ch, name, args)
	brokertest.Fill(t, ch, "", name, n, 16)
	brokertest.Eventually(t, "the messages of the queue", func() bool { return ready(t, ch, name) == n })
	return name, ch
}

func ready(t *testing.T, ch *amqp091.Channel, queue string) int {
	t.Helper()
	return brokertest.Ready(t, ch, queue)
}

// drained consumes a queue to its end and returns the message-ids in order.
func drained(t *testing.T, target brokertest.Target, queue string, n int) []int {
	t.Helper()
	ch := target.Channel(t)
	deliveries := brokertest.Consume(t, ch, queue, 1000)
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

// Whatever a Holder takes comes back in its place, whatever is acknowledged and arrives meanwhile.
func TestAHolderKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const n, arrivals = 5000, 50
	for _, kind := range []string{"classic", "quorum"} {
		for name, tc := range map[string]struct {
			options amqp.HolderOptions
			takes   int
			acks    func(int) bool
		}{
			"all":               {amqp.HolderOptions{Messages: n}, n, never},
			"a part":            {amqp.HolderOptions{Messages: 777}, 777, never},
			"in blocks":         {amqp.HolderOptions{Messages: n, Block: 400}, n, every(7)},
			"many consumers":    {amqp.HolderOptions{Messages: n}.PerConsumer(200), n, every(9)},
			"more channels":     {amqp.HolderOptions{Messages: n}.PerConsumer(100), n, never},
			"by nack":           {amqp.HolderOptions{Messages: n, Nack: true}, n, every(10)},
			"many, by nack":     {amqp.HolderOptions{Messages: n, Nack: true}.PerConsumer(200), n, never},
			"more than it has":  {amqp.HolderOptions{Messages: 2 * n}, n, never},
			"up to the bytes":   {amqp.HolderOptions{Messages: n, Bytes: 16 * 1500}, 2000, never},
			"acknowledging all": {amqp.HolderOptions{Messages: n, Block: 1000}, n, every(1)},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				tc.options.Nack = tc.options.Nack && target.AtLeast("4.3") // before, it scrambles
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

// A quorum queue keeps what was returned in a list of its own. Parts of that list come back in
// their place too, whatever was returned before.
func TestAHolderKeepsTheOrderOfReturnedMessages(t *testing.T) {
	t.Parallel()
	const n = 3000
	for name, parts := range map[string][]int{
		"all, then a part":        {n, 3, 700, 1},
		"a part of a part":        {1500, 400, 1500, 2000, 100},
		"parts, then all of them": {10, 5, n, 5},
	} {
		for _, nack := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, nack %t", name, nack), func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				queue, _ := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(100)})
				for _, part := range parts {
					o := amqp.HolderOptions{Messages: part, Nack: nack && target.AtLeast("4.3")}
					h := dial(t, target).Holder(queue, o)
					want := 0
					if err := h.Take(t.Context(), func(m amqp.Held) error {
						if m.MessageId != strconv.Itoa(want) {
							return fmt.Errorf("message %s came in the place of %d", m.MessageId, want)
						}
						want++
						return nil
					}); err != nil {
						t.Fatal(err)
					}
					if err := h.Release(); err != nil || want != part {
						t.Fatalf("took %d of %d: %v", want, part, err)
					}
				}
				if got := drained(t, target, queue, n); !slices.IsSorted(got) {
					t.Error("the order has changed")
				}
			})
		}
	}
}

// A Holder that may not take enough to keep the order says so.
func TestAHolderSaysThatTheOrderMayHaveChanged(t *testing.T) {
	t.Parallel()
	const n = 500
	target := brokertest.VHost(t)
	queue, _ := filled(t, target, n, amqp091.Table{"x-queue-type": "quorum"})
	for i, o := range []amqp.HolderOptions{{Messages: n}, {Messages: 5, Most: 100}} {
		h := dial(t, target).Holder(queue, o)
		if err := h.Take(t.Context(), func(amqp.Held) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); errors.Is(err, amqp.ErrReordered) != (i == 1) {
			t.Errorf("releasing %d: %v", o.Messages, err)
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
