package desk_test

import (
	"context"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// A message that equals a chosen one may have arrived after the choice, if nothing tells when
// exactly it failed. It stays in the queue, whatever else arrives while the run takes, and when the
// run is stopped and resumed.
func TestAnEqualMessageThatArrivedLaterStays(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, stopped := range map[string]bool{"another arrives": false, "stopped and resumed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			s.desk = s.desk.Holding()
			equal := amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte("tick")}
			if stopped {
				equal = deadLetter("billing", "order.chosen", "", 999) // failed at a whole second
			}
			arrive := func() { brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", equal) }
			arrive()
			p, err := s.desk.Propose(t.Context(), desk.Request{Action: desk.Park, Queue: "billing.dead"})
			if err != nil || p.Chosen != 1 {
				t.Fatalf("%+v, %v", p, err)
			}
			arrive()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
				switch {
				case p.Phase != desk.Taking:
				case stopped:
					cancel()
				default:
					arrive()
				}
			})
			want := 2
			if stopped {
				want = 1
				if r, err = s.desk.Resume(t.Context(), r.Run, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err != nil || !r.Ended {
				t.Fatalf("%+v, %v", r, err)
			}
			if doubled := 2 - want; r.DoubledAtMost != doubled { // it may be a copy that a kill has left
				t.Errorf("%d doubled at most, want %d", r.DoubledAtMost, doubled)
			}
			parked, left := readyIn(t, s.ch, "shop.parked"), readyIn(t, s.ch, "billing.dead")
			if parked != 1 || left != want {
				t.Errorf("%d parked, %d left in the queue, want 1 and %d", parked, left, want)
			}
		})
	}
}

// A run that did not look at the whole queue does not know how many equal messages it had. None of
// those behind is taken for a copy.
func TestAnEqualMessageThatWasNotLookedAtStays(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := newShop(t, "quorum")
	s.desk = s.desk.Holding()
	equal := deadLetter("billing", "order.chosen", "", 1)
	brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", equal, equal, equal)
	if _, err := s.desk.Look(t.Context(), "billing.dead", desk.LookOptions{}, ignoreMessage); err != nil {
		t.Fatal(err) // all are marked as redelivered
	}
	r := request(t, desk.Park)
	r.Look.HoldMessages = 1
	p, err := s.desk.Propose(t.Context(), r)
	if err != nil || p.Chosen != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
		if p.Phase == desk.Taking {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if result, err = s.desk.Resume(t.Context(), result.Run, nil, nil); err != nil || !result.Ended {
		t.Fatalf("%+v, %v", result, err)
	}
	parked, left := readyIn(t, s.ch, "shop.parked"), readyIn(t, s.ch, "billing.dead")
	if parked != 1 || left != 2 {
		t.Errorf("%d parked, %d left in the queue, want 1 and 2", parked, left)
	}
}

func ignoreMessage(deadletter.Message) error { return nil }
