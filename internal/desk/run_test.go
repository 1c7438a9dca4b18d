package desk_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// A replay reaches the queue that failed and no other, with the publisher's key, and the rest of
// the dead-letter queue keeps its order.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, typ)
			chosen, rest := s.bury(t, 400)
			r := s.execute(t, request(t, desk.Replay))
			want := desk.Result{Run: r.Run, Moved: len(chosen), Took: r.Took}
			if d := cmp.Diff(want, r); d != "" {
				t.Errorf("result (-want +got):\n%s", d)
			}
			got := s.drained(t, "billing")
			if d := cmp.Diff(chosen, identities(got)); d != "" {
				t.Errorf("billing (-want +got):\n%s", d)
			}
			for _, d := range got {
				if d.RoutingKey != "order.chosen" || d.Headers["desk-run"] != r.Run || d.Headers["desk-replays"] != int64(1) ||
					d.Headers["count"] != nil || d.Headers["retry-queue"] != nil {
					t.Fatalf("key %s, headers %v", d.RoutingKey, d.Headers)
				}
			}
			if n := readyIn(t, s.ch, "audit"); n > 0 {
				t.Errorf("audit has %d", n)
			}
			has := identities(s.drained(t, "billing.dead"))
			if d := cmp.Diff(rest, has); d != "" {
				lost, doubled := compareCounts(rest, has)
				t.Errorf("of the rest %d are lost, %d doubled (-want +got):\n%s", lost, doubled, d)
			}
			s.tidy(t)
		})
	}
}

// What a run has in its hold comes back as it was, before anything was sent and after a part was.
func TestReturn(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"quorum", "classic"} {
		for _, sent := range []int{0, 10} {
			t.Run(fmt.Sprintf("%s, %d sent", typ, sent), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, typ)
				chosen, rest := s.bury(t, 200)
				before := map[string]amqp091.Delivery{}
				for _, d := range s.peeked(t, "billing.dead") {
					before[identity(d.MessageId, d.Body)] = d
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q := request(t, desk.Replay)
				q.Send.Rate = 1000
				p, err := s.desk.Propose(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				r, err := s.desk.Execute(ctx, p, func(p desk.Progress) {
					if p.Phase == desk.Taking && sent == 0 && p.Done == len(chosen) ||
						p.Phase == desk.Sending && p.Done >= sent && sent > 0 {
						cancel()
					}
				})
				if err != nil || r.Stopped != "interrupted" || r.Moved+r.Left != len(chosen) {
					t.Fatalf("%+v, %v", r, err)
				}
				back, err := s.desk.Return(t.Context(), r.Run, nil)
				if err != nil || back.Moved != r.Left || back.Left != 0 {
					t.Fatalf("%+v, %v", back, err)
				}
				s.tidy(t)
				if n := readyIn(t, s.ch, "billing"); n != r.Moved {
					t.Errorf("billing has %d, want %d", n, r.Moved)
				}
				got := s.drained(t, "billing.dead")
				want, has := append(rest, chosen[r.Moved:]...), identities(got)
				if sent > 0 { // a send that stops changes the order of the last messages in the hold
					want, has = sorted(want), sorted(has)
				}
				if d := cmp.Diff(want, has); d != "" {
					t.Errorf("billing.dead (-want +got):\n%s", d)
				}
				for _, d := range got {
					was := before[identity(d.MessageId, d.Body)]
					if diff := cmp.Diff(content(was), content(d)); diff != "" {
						t.Fatalf("a message changed (-was +is):\n%s", diff)
					}
				}
			})
		}
	}
}

// content returns all of a message that a publisher sets, and its key.
func content(d amqp091.Delivery) amqp091.Delivery {
	h := amqp091.Table{}
	for name, v := range d.Headers {
		if name != "x-delivery-count" && name != "x-acquired-count" {
			h[name] = v
		}
	}
	return amqp091.Delivery{
		Headers: h, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId,
		RoutingKey: d.RoutingKey, Body: d.Body,
	}
}
