package desk_test

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// anyHeaders returns headers such as a publisher may write, with names of the desk among them.
func anyHeaders(r *rand.Rand, depth int) amqp091.Table {
	names := []string{
		"desk-queue", "desk-exchange", "desk-expiration", "desk-user-id", "desk-cc", "desk-bcc", "desk-aside",
		"desk-aside", "desk-parked-from", "desk-parked-key", "desk-parked-as", "desk-manifest", "desk-record",
		"desk-headers", "desk-run", "desk-replays", "desk-handle", "desk-", "CC", "BCC", "mine",
	}
	h := amqp091.Table{}
	for range r.IntN(8) {
		var v any
		switch kind := r.IntN(6); {
		case kind < 2 && depth > 0:
			v = anyHeaders(r, depth-1)
		case kind == 2 && depth > 0:
			v = []any{anyHeaders(r, depth-1), "audit"}
		case kind == 3:
			v = int64(r.IntN(3))
		case kind == 4:
			v = nil
		default:
			v = []string{"1", "soon", "audit", "guest"}[r.IntN(4)]
		}
		h[names[r.IntN(len(names))]] = v
	}
	return h
}

// Whatever headers a message has, also such as the desk writes itself and any number of them inside
// each other, it comes back from a hold and from the parked messages as it was, and has one handle
// everywhere.
func TestAnyHeadersComeBackFromAHold(t *testing.T) {
	t.Parallel()
	s := desk.Desk{}
	s.Topology.Name = "shop"
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
		m := amqp091.Delivery{
			Headers: anyHeaders(r, 3), Exchange: "events", RoutingKey: "k", MessageId: "m", Body: []byte("b"),
			Expiration: []string{"", "60000"}[r.IntN(2)], UserId: []string{"", "guest"}[r.IntN(2)],
		}
		held, back := desk.ThroughHold(m, "w.dead")
		back.RoutingKey = m.RoutingKey
		if !reflect.DeepEqual(m, back) {
			t.Fatalf("%d: through a hold (-was +is):\n%s", seed, cmp.Diff(m, back))
		}
		if held.Headers["desk-queue"] != "w.dead" || held.Headers["desk-exchange"] != "events" ||
			m.Expiration == "" && held.Headers["desk-expiration"] != nil || held.Headers["CC"] != nil {
			t.Fatalf("%d: in a hold %v", seed, held.Headers)
		}
		parked, restored := s.ThroughParked(m, "w.dead", "shop.parked")
		if !reflect.DeepEqual(m, restored) {
			t.Fatalf("%d: parked and restored (-was +is):\n%s", seed, cmp.Diff(m, restored))
		}
		want := deadletter.HandleOf(m)
		for where, h := range map[string]amqp091.Table{
			"in a hold": held.Headers, "parked": parked.Headers,
			"in a hold, from the parked ones": deadletter.Aside(parked.Headers),
			"imported":                        deadletter.Unaddressed(m.Headers),
			"imported twice":                  deadletter.Unaddressed(deadletter.Unaddressed(m.Headers)),
		} {
			if got := deadletter.HandleOf(amqp091.Delivery{Headers: h, MessageId: "m", Body: []byte("b")}); got != want {
				t.Fatalf("%d: the handle %s is %s; want %s\nof %v\nas %v", seed, where, got, want, m.Headers, h)
			}
		}
	}
}

// forged are dead letters of billing whose publisher has written headers of the desk. Each has one
// that was believed, or that could be.
func forged(user string) []amqp091.Publishing {
	var out []amqp091.Publishing
	for i, h := range []amqp091.Table{
		{"desk-expiration": "1"},
		{"desk-expiration": "soon"},
		{"desk-cc": []any{"audit", "billing.dead"}},
		{"desk-cc": "audit", "desk-bcc": []any{"audit"}},
		{"desk-queue": "audit", "desk-exchange": "events", "desk-user-id": user},
		{"desk-user-id": "another", "desk-headers": amqp091.Table{"mine": int64(1)}},
		{"desk-parked-from": "audit", "desk-parked-key": "audit", "desk-parked-by": int64(1)},
		{"desk-aside": amqp091.Table{"desk-expiration": "1", "CC": []any{"audit"}}, "desk-expiration": "1"},
		{"desk-aside": "none", "desk-cc": []any{"audit"}},
		{"desk-manifest": "r", "desk-record": "list", "desk-part": int64(1), "desk-parts": int64(1)},
	} {
		for _, cc := range []bool{true, false} {
			m := deadLetter("billing", "order.chosen", fmt.Sprintf("m-%d-%t", i, cc), i)
			maps.Copy(m.Headers, h)
			if !cc {
				delete(m.Headers, "CC")
			}
			out = append(out, m)
		}
	}
	return out
}

// What a publisher writes under names of the desk is a header as any other: it makes no message
// expire, go elsewhere or stop a run, and comes back as it was.
func TestHeadersOfThePublisherAreNotBelieved(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, in := range map[string]string{
		"return": "billing.dead", "park and restore": "billing.dead", "export and import": "billing.dead",
		"replay": "billing", "park and replay": "billing",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "quorum")
			list := forged(s.target.Username)
			brokertest.PublishConfirmed(t, s.ch, "", "billing.dead", list...)
			s.awaitReady(t, "billing.dead", len(list))
			want := map[string]amqp091.Delivery{}
			for _, d := range s.peeked(t, "billing.dead") {
				want[d.MessageId] = content(d)
			}
			for _, moved := range s.movedBy(t, name, len(list)) {
				if moved != len(list) {
					t.Errorf("%d of %d were moved", moved, len(list))
				}
			}
			s.awaitReady(t, in, len(list))
			for _, d := range s.drained(t, in) {
				was, is := want[d.MessageId], content(d)
				delete(want, d.MessageId)
				switch {
				case in == "billing":
					was.Headers, is.Headers, was.RoutingKey = ownHeaders(was.Headers), ownHeaders(is.Headers), "order.chosen"
				case name == "export and import": // CC would send it elsewhere
					was.Headers = deadletter.Unaddressed(was.Headers)
				}
				if diff := cmp.Diff(was, is); diff != "" {
					t.Errorf("%s (-was +is):\n%s", d.MessageId, diff)
				}
			}
			if len(want) > 0 {
				t.Errorf("lost: %v", slices.Sorted(maps.Keys(want)))
			}
			for _, queue := range []string{"audit", "billing", "billing.dead"} {
				if n := readyIn(t, s.ch, queue); n > 0 {
					t.Errorf("%s has %d messages more", queue, n)
				}
			}
		})
	}
}

// movedBy does what its name says with n messages of billing.dead, and returns how many each step
// has moved.
func (s *shop) movedBy(t *testing.T, name string, n int) []int {
	t.Helper()
	run := func(action desk.Action, queue string) int {
		return s.execute(t, desk.Request{Action: action, Queue: queue}).Moved
	}
	switch name {
	case "return":
		r, err := s.desk.Return(t.Context(), s.takenOnly(t, n), nil)
		if err != nil {
			t.Error(err)
		}
		return []int{r.Moved}
	case "park and restore":
		return []int{run(desk.Park, "billing.dead"), run(desk.Restore, "shop.parked")}
	case "park and replay":
		return []int{run(desk.Park, "billing.dead"), run(desk.Replay, "shop.parked")}
	case "replay":
		return []int{run(desk.Replay, "billing.dead")}
	default:
		list := exported(t, s.drained(t, "billing.dead"))
		im, err := s.desk.Import(t.Context(), "billing.dead", list, nil)
		if err != nil || im.Doubtful > 0 {
			t.Error(im, err)
		}
		return []int{im.Done}
	}
}

// ownHeaders returns headers without those that a processor, a run and the broker write.
func ownHeaders(h amqp091.Table) amqp091.Table {
	out := amqp091.Table{}
	for name, v := range h {
		switch name {
		case "CC", "count", "desk-run", "desk-replays", "desk-handle":
		default:
			if !strings.HasPrefix(name, "retry-") {
				out[name] = v
			}
		}
	}
	return out
}

// exported returns messages as an export has them.
func exported(t *testing.T, list []amqp091.Delivery) iter.Seq2[deadletter.Message, error] {
	t.Helper()
	var file bytes.Buffer
	for _, d := range list {
		m := deadletter.Message{Delivery: d, Queue: "billing.dead", Copy: 1}
		if err := deadletter.WriteArchived(&file, m); err != nil {
			t.Fatal(err)
		}
	}
	return func(yield func(deadletter.Message, error) bool) {
		err := deadletter.ReadArchived(&file, func(a deadletter.Archived) error {
			yield(a.Message, nil)
			return nil
		})
		if err != nil {
			yield(deadletter.Message{}, err)
		}
	}
}
