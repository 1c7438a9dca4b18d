package amqp_test

import (
	"context"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A witness loses its first message if a Holder acknowledges, and only then. It has a consumer
// until the channel of the Holder has ended.
func TestAWitness(t *testing.T) {
	t.Parallel()
	const n, witness = 100, "witness"
	for _, kind := range []string{"quorum", "classic"} {
		for name, tc := range map[string]struct {
			acks, cut bool
			want      int
		}{
			"acknowledges":                  {true, false, 1},
			"acknowledges nothing":          {false, false, 2},
			"ends before it is carried out": {true, true, 2},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				queue, ch := filled(t, target, n, amqp091.Table{"x-queue-type": kind})
				brokertest.Declare(t, ch, witness, nil)
				brokertest.PublishConfirmed(t, ch, "", witness, amqp091.Publishing{}, amqp091.Publishing{})
				through, proxy := brokertest.NewProxy(t, target)
				h := dial(t, through).Holder(queue, amqp.HolderOptions{
					Messages: n, First: true, Classic: kind == "classic", Witness: witness,
				})
				taken := 0
				err := h.Take(t.Context(), func(m amqp.Held) error {
					taken++
					if tc.acks && taken%2 == 0 {
						return h.Ack(m)
					}
					return nil
				})
				if err != nil || taken != n {
					t.Fatalf("took %d: %v", taken, err)
				}
				asks := dial(t, target)
				early, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if has, _, err := asks.Settled(early, witness, amqp.Alone); err == nil {
					t.Errorf("the witness answers with %d while the Holder has its channel", has)
				}
				left := n
				if tc.cut {
					proxy.Cut()
				} else if err := h.Release(); err != nil {
					t.Fatal(err)
				} else if tc.acks {
					left = n / 2
				}
				if has, _, err := asks.Settled(t.Context(), witness, amqp.Alone); err != nil || has != tc.want {
					t.Errorf("the witness has %d messages, %v", has, err)
				}
				brokertest.Eventually(t, "the rest to be back", func() bool { return ready(t, ch, queue) == left })
			})
		}
	}
}
