package desk_test

import (
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/desk"
)

// alike is a pair of messages with one handle, of which a filter chooses the second.
type alike struct {
	filter string
	keys   [2]string
	change func(m *amqp091.Publishing)
}

func pairsAlike() map[string]alike {
	none, one := func(*amqp091.Publishing) {}, [2]string{"sensor", "sensor"}
	return map[string]alike{
		"key": {`key == "device.2.off"`, [2]string{"device.1.off", "device.2.off"}, none},
		"published": {`published > date("2026-11-02")`, one, func(m *amqp091.Publishing) {
			m.Timestamp = time.Unix(1_795_000_000, 0)
		}},
		"replays": {`replays == 0`, one, func(m *amqp091.Publishing) { m.Headers = nil }},
	}
}

// publish publishes the pair to a queue.
func (a alike) publish(t *testing.T, s *shop, queue string) {
	t.Helper()
	brokertest.DeclareExchange(t, s.ch, "devices", "fanout", nil)
	brokertest.Bind(t, s.ch, queue, "", "devices", nil)
	for i, key := range a.keys {
		m := amqp091.Publishing{
			DeliveryMode: amqp091.Persistent, Body: []byte("x"), Headers: amqp091.Table{"desk-replays": int64(1)},
			Timestamp: time.Unix(1_793_000_000, 0),
		}
		if i > 0 {
			a.change(&m)
		}
		brokertest.PublishConfirmed(t, s.ch, "devices", key, m)
	}
	s.awaitReady(t, queue, len(a.keys))
}

// chosenOf returns how many of some messages the filter of the pair chooses.
func (a alike) chosenOf(t *testing.T, list []amqp091.Delivery) (n int) {
	t.Helper()
	f, err := deadletter.NewFilter(a.filter)
	if err != nil {
		t.Fatal(err)
	}
	reader := deadletter.Reader{}
	for _, d := range list {
		m := deadletter.Message{Delivery: d, Queue: "shop.unroutable"}
		if ok, err := f.Matches(reader.View(m)); err != nil {
			t.Fatal(err)
		} else if ok {
			n++
		}
	}
	return n
}

// A run takes the message that it chose, and not one before it that has the same id, type, body and
// headers, and so the same handle: with a hold and without one, by a filter and by the handle.
func TestARunTakesNoMessageWithTheSameHandle(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for what, pair := range pairsAlike() {
		for _, how := range []string{"direct", "held", "by handle"} {
			t.Run(what+", "+how, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, "quorum")
				pair.publish(t, s, "shop.unroutable")
				r := desk.Request{Action: desk.Discard, Queue: "shop.unroutable", Forever: true}
				var err error
				if r.Filter, err = deadletter.NewFilter(pair.filter); err != nil {
					t.Fatal(err)
				}
				switch how {
				case "held":
					s.desk.Holding()
				case "by handle":
					names, _ := seen(t, s.desk, "shop.unroutable")
					r.Filter, r.Handles = nil, names[1:]
				}
				if r := s.execute(t, r); r.Moved != 1 {
					t.Fatalf("%+v", r)
				}
				left := s.drained(t, "shop.unroutable")
				if len(left) != 1 || pair.chosenOf(t, left) != 0 {
					t.Errorf("the chosen one is left: %+v", left)
				}
			})
		}
	}
}
