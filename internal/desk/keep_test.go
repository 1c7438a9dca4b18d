package desk_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// What failed before a time is parked, each message once. What failed at that time or later stays
// in its order, and so does what does not tell when it failed.
func TestParksWhatFailedBefore(t *testing.T) {
	t.Parallel()
	const n = 240
	until := time.Date(2026, 11, 22, 9, 1, 0, 0, time.UTC).Add(n / 2 * time.Millisecond) // of number n/2-1
	for _, tc := range []struct {
		typ   string
		holds bool
	}{{"quorum", false}, {"quorum", true}, {"classic", false}, {"classic", true}} {
		t.Run(tc.typ+map[bool]string{true: " with a hold"}[tc.holds], func(t *testing.T) {
			t.Parallel()
			s := newShop(t, tc.typ)
			if tc.holds {
				s.desk.Holding()
			}
			var order []amqp091.Publishing
			var old, rest []string
			for i := range n {
				number := i * 7 % n // old and young ones are mixed
				m := deadLetter("billing", "order", "", number)
				switch {
				case number%20 == 0:
					delete(m.Headers, "retry-first-failed-at")
					delete(m.Headers, "retry-last-failed-at")
					rest = append(rest, identity("", m.Body))
				case number < n/2-1:
					old = append(old, identity("", m.Body))
				default:
					rest = append(rest, identity("", m.Body))
				}
				order = append(order, m)
			}
			s.buryAll(t, order)
			r := desk.Request{Action: desk.Park, Queue: "billing.dead", Until: until}
			p, err := s.desk.Propose(t.Context(), r)
			if err != nil || p.Chosen != len(old) || len(p.Refusals) > 0 {
				t.Fatalf("%d chosen, want %d: %v, %v", p.Chosen, len(old), p.Refusals, err)
			}
			if result := s.execute(t, r); result.Moved != len(old) || !result.Ended {
				t.Errorf("%+v", result)
			}
			if d := cmp.Diff(old, identities(s.peeked(t, "shop.parked"))); d != "" {
				t.Errorf("shop.parked (-want +got):\n%s", d)
			}
			if d := cmp.Diff(rest, identities(s.peeked(t, "billing.dead"))); d != "" {
				t.Errorf("billing.dead (-want +got):\n%s", d)
			}
			if p, err := s.desk.Propose(t.Context(), r); err != nil || p.Chosen > 0 || len(p.Notes) != 1 {
				t.Errorf("again: %d chosen, %q, %v", p.Chosen, p.Notes, err)
			}
			s.tidy(t)
		})
	}
}
