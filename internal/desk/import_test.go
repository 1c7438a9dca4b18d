package desk_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// from returns so many messages as an archive has them, without the first ones.
func from(skip, n int) iter.Seq2[deadletter.Message, error] {
	return func(yield func(deadletter.Message, error) bool) {
		for i := skip; i < n; i++ {
			m := deadletter.Message{Delivery: amqp091.Delivery{MessageId: fmt.Sprint(i), Body: make([]byte, 1<<10)}}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// interrupted returns a context that ends once so many messages are imported, and what reports
// that.
func interrupted(t *testing.T, after int) (context.Context, func(done int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	return ctx, func(done int) {
		if done >= after {
			cancel()
		}
	}
}

// An import that is interrupted knows what is in the queue: one of the rest doubles nothing. What
// it writes is persistent, also if the message was not.
func TestAnInterruptedImportGoesOn(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s, n, skip := newShop(t, typ), 3000, 0
			for _, after := range []int{1, 300, 700} {
				ctx, progress := interrupted(t, after)
				im, err := s.desk.Import(ctx, "billing.dead", from(skip, n), progress)
				if err == nil || im.Doubtful > 0 {
					t.Fatalf("an interrupted import ends with %v, %+v", err, im)
				}
				skip += im.Done
			}
			im, err := s.desk.Import(t.Context(), "billing.dead", from(skip, n), nil)
			if err != nil || skip+im.Done != n {
				t.Fatalf("%d and %d of %d are imported: %v", skip, im.Done, n, err)
			}
			for i, d := range s.drained(t, "billing.dead") {
				if d.MessageId != fmt.Sprint(i) || d.DeliveryMode != amqp091.Persistent {
					t.Fatalf("message %d of the queue is %s, with the delivery mode %d", i, d.MessageId, d.DeliveryMode)
				}
			}
		})
	}
}

// Where the connection breaks, or the queue refuses, an import says how many messages may be there
// beyond those that it counts.
func TestAnImportSaysWhatIsInDoubt(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	through, proxy := brokertest.NewProxy(t, s.target)
	im, err := s.deskOn(t, through).Import(t.Context(), "billing.dead", from(0, 3000), func(done int) {
		if done > 500 {
			proxy.Cut()
		}
	})
	s.holdsAbout(t, im, err)

	s = newShop(t, "quorum")
	s.policy(t, "policies", "billing.dead", map[string]any{"max-length": 5000, "overflow": "reject-publish"})
	im, err = s.desk.Import(t.Context(), "billing.dead", from(0, 9000), nil)
	s.holdsAbout(t, im, err)
}

// holdsAbout fails unless billing.dead gets what an import that failed says. What was on its way
// when a connection broke may come later.
func (s *shop) holdsAbout(t *testing.T, im desk.Imported, err error) {
	t.Helper()
	n := 0
	brokertest.Eventually(t, "what is confirmed", func() bool {
		n = readyIn(t, s.ch, "billing.dead")
		return n >= im.Done
	})
	if err == nil || n > im.Done+im.Doubtful {
		t.Errorf("the queue has %d messages; the import says %+v, %v", n, im, err)
	}
}

// An imported message has the address of its queue. A replay to the original address is refused, as
// it would put the message into the queue from which it takes it.
func TestAnImportedMessageIsNotReplayedIntoItsQueue(t *testing.T) {
	t.Parallel()
	s := newShop(t, "quorum")
	m := deadletter.Message{Delivery: amqp091.Delivery{MessageId: "1", Exchange: "events", RoutingKey: "order.a"}}
	list := func(yield func(deadletter.Message, error) bool) { yield(m, nil) }
	if _, err := s.desk.Import(t.Context(), "billing.dead", list, nil); err != nil {
		t.Fatal(err)
	}
	p, err := s.desk.Propose(t.Context(), desk.Request{
		Action: desk.Replay, Queue: "billing.dead", Target: desk.Target{Original: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "do not tell where they were published; name a target with --to"
	if text := strings.Join(p.Refusals, "\n"); !strings.Contains(text, want) || len(p.Reaches) > 0 {
		t.Errorf("refusals %q, want %q; reaches %+v", text, want, p.Reaches)
	}
}
