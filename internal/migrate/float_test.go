package migrate_test

import (
	"errors"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
)

// A binding whose argument is a float without a fraction cannot be made again over
// JSON, and an integer in its place matches nothing on 4.x: it is refused before
// anything is written, and its messages come as before.
func TestFloatsWithoutAFractionAreRefused(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"double": float64(1), "float": float32(2), "large": 1e15, "beyond integers": 1e20,
		"in a list": []any{"a", float64(3)}, "in a table": amqp091.Table{"b": float64(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "classic", nil)
			ch := s.target.Channel(t)
			brokertest.Bind(t, ch, "old", "", "h", amqp091.Table{"version": v, "x-match": "all"})
			r := s.runner(t)
			err := r.Run(t.Context())
			if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), "bound to h with the argument version") ||
				r.Wrote() {
				t.Errorf("it wrote: %t; it ends with %v", r.Wrote(), err)
			}
			if err := ch.PublishWithContext(t.Context(), "h", "", true, false,
				amqp091.Publishing{MessageId: "m", Headers: amqp091.Table{"version": v}}); err != nil {
				t.Fatal(err)
			}
			brokertest.Eventually(t, "the message in the old queue", func() bool { return s.count(t, "old")["m"] == 1 })
		})
	}
}

// What is not such a float, or is looked at by no exchange, is moved.
func TestOtherNumbersAreNotRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	ch := s.target.Channel(t)
	for exchange, v := range map[string]any{"t": float64(1), "d": float64(1), "f": float64(1), "h": 1.5} {
		brokertest.Bind(t, ch, "old", "k", exchange, amqp091.Table{"v": v, "i": int32(1)})
	}
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ch.PublishWithContext(t.Context(), "h", "", true, false,
		amqp091.Publishing{MessageId: "m", Headers: amqp091.Table{"v": 1.5, "i": int64(1)}}); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, "the message in the new queue", func() bool { return s.count(t, "new")["m"] == 1 })
}

// Such a binding that is made after the check stops the cutover, and stays.
func TestAFloatBoundMeanwhileIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, "classic", nil)
	r := s.runner(t)
	ch, bound := s.target.Channel(t), false
	r.Report = func(format string, _ ...any) {
		if !bound && strings.HasPrefix(format, "cutover") {
			bound = true
			if err := ch.QueueBind("old", "", "h", false, amqp091.Table{"version": float64(1)}); err != nil {
				t.Error(err)
			}
		}
	}
	if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrRefused) ||
		!strings.Contains(err.Error(), "the argument version") {
		t.Errorf("it ends with %v", err)
	}
	brokertest.Unbind(t, ch, "old", "", "h", amqp091.Table{"version": float64(1)})
	if err := s.runner(t).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
