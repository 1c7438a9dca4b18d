package migrate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// Of the messages that may be doubled, those with a message-id are named. Many publishers set none.
func TestDoubledMessagesAreNamed(t *testing.T) {
	t.Parallel()
	none := slices.Repeat([]string{""}, 12)
	for name, tc := range map[string]struct {
		ids  []string
		list string
	}{
		"one":          {[]string{"m-1"}, ": m-1"},
		"none has one": {none, ""},
		"two have one": {slices.Concat(none, []string{"m-1", "m-2"}), ": m-1, m-2 and 12 more"},
		"more than ten": {
			[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"},
			": 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 1 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := mover{step: func() {}}
			for _, id := range tc.ids {
				h.Moved(amqp091.Delivery{MessageId: id, Redelivered: true}, relay.Move{})
			}
			h.Moved(amqp091.Delivery{MessageId: "first"}, relay.Move{})
			if got := listIDs(h.ids, h.again); got != tc.list {
				t.Errorf("%q", got)
			}
		})
	}
}

// What a successor does with priorities depends on its type and on RabbitMQ.
func TestPrioritiesOfASuccessor(t *testing.T) {
	t.Parallel()
	for at, want := range map[[2]string]string{
		{"3.13.7", topology.Quorum}: "priorities are ignored",
		{"4.2.0", topology.Quorum}:  "two priorities",
		{"4.3.6", topology.Quorum}:  "0 to 31 apart",
		{"4.3.6", topology.Classic}: "priorities are ignored",
	} {
		successor := topology.Queue{Name: "new", Arguments: topology.Arguments{topology.ArgQueueType: at[1]}}
		note := Move{Legacy: "old", New: "new"}.argumentNote(at[0], topology.ArgMaxPriority, int64(10), successor)
		if !note.Decide || !strings.Contains(note.Text, want) {
			t.Errorf("%v: %+v", at, note)
		}
	}
}

// What came through the default exchange came from a publisher that uses the queue's name, unless a
// queue has dead-lettered it there. It is moved only once the broker has the mark.
func TestByNameIsNotedBeforeTheMove(t *testing.T) {
	t.Parallel()
	m := Move{Topology: "shop", Legacy: "old", New: "new"}
	died := func(queue string) amqp091.Table {
		return amqp091.Table{"x-death": []any{amqp091.Table{"queue": queue}, amqp091.Table{"queue": "old"}}}
	}
	delayed := amqp091.Table{"x-death": []any{amqp091.Table{"queue": "delay"}}, "x-first-death-exchange": "e"}
	sentTo := func(exchange string) amqp091.Table {
		return amqp091.Table{"x-death": []any{amqp091.Table{"queue": "wait"}}, "x-first-death-exchange": exchange}
	}
	for name, tc := range map[string]struct {
		amqp091.Delivery
		byName bool
	}{
		"to its name":                  {amqp091.Delivery{RoutingKey: "old"}, true},
		"to another name, with a copy": {amqp091.Delivery{RoutingKey: "other"}, true},
		"to an exchange":               {amqp091.Delivery{Exchange: "e", RoutingKey: "old"}, false},
		"from a feeder":                {amqp091.Delivery{RoutingKey: "old", Headers: died("wait")}, false},
		"from a feeder by its key":     {amqp091.Delivery{RoutingKey: "old", Headers: died("delay")}, false},
		"delayed by a publisher":       {amqp091.Delivery{RoutingKey: "old", Headers: delayed}, true},
		"sent to a feeder by its name": {amqp091.Delivery{RoutingKey: "old", Headers: sentTo("")}, true},
		"routed to a feeder":           {amqp091.Delivery{RoutingKey: "old", Headers: sentTo("e")}, false},
		"published again":              {amqp091.Delivery{RoutingKey: "old", Headers: died("old")}, true},
		"with a made-up history":       {amqp091.Delivery{Headers: amqp091.Table{"x-death": "wait"}}, true},
		"moved back":                   {amqp091.Delivery{Exchange: m.legacyEnd(), RoutingKey: "old"}, true},
		"another one moved back":       {amqp091.Delivery{Exchange: m.legacyEnd(), RoutingKey: "order.placed"}, false},
	} {
		for _, fails := range []bool{false, true} {
			bound := 0
			watch := m.watchLegacy(topology.State{})
			watch.feeders, watch.byKey = []string{"wait", "delay"}, []string{"delay"}
			watch.bind = func(topology.Binding) error {
				if bound++; fails {
					return errors.New("no permission")
				}
				return nil
			}
			h := mover{watched: watch}
			hold := h.hold(func(amqp091.Delivery, relay.Move) bool { return false })
			held := hold(tc.Delivery, relay.Move{})
			if !held {
				hold(tc.Delivery, relay.Move{}) // noted once is enough
			}
			if held != (tc.byName && fails) || bound > 1 || (bound == 1) != tc.byName || (h.unnoted.Load() != nil) != held {
				t.Errorf("%s, bind fails %t: held %t, bound %d times", name, fails, held, bound)
			}
			if watch.seen.Load() != (tc.byName && !fails) {
				t.Errorf("%s, bind fails %t: seen %t", name, fails, watch.seen.Load())
			}
		}
	}
}

// A forwarder does not wait for the end of what a publisher sends, also if an earlier drain has
// noted that. It waits for what feeders return.
func TestForwarderQuitsForPublishers(t *testing.T) {
	t.Parallel()
	watch := Move{Legacy: "old"}.watchLegacy(topology.State{})
	watch.noted, watch.feeders = true, []string{"wait"}
	limits := drainLimits{wait: time.Minute, quits: true, byName: watch}
	returned := amqp091.Table{"x-death": []any{amqp091.Table{"queue": "wait"}, amqp091.Table{"queue": "old"}}}
	if err := watch.notes(amqp091.Delivery{Headers: returned}); err != nil || limits.forComing() != time.Minute {
		t.Errorf("after a retry it waits %s: %v", limits.forComing(), err)
	}
	if err := watch.notes(amqp091.Delivery{RoutingKey: "old"}); err != nil || limits.forComing() != 0 {
		t.Errorf("after a message of a publisher it waits %s: %v", limits.forComing(), err)
	}
}
