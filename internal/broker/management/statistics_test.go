package management_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// The statistics of some queues are the same as in the list of all, for users with the tag
// management too, and whatever the names of the queues are. All others are unknown, not zero.
func TestInspectForReadsTheStatisticsOfSomeQueues(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	admin := manage(t, target)
	typed(t, admin)
	queues := []string{topology.Classic, topology.Quorum, topology.Stream}
	for _, name := range oddNames() {
		if name != "." && name != ".." { // the management API cannot address them
			queues = append(queues, name)
			apply(t, admin, topology.Queue{
				Name: name, Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
			})
		}
	}
	apply(t, admin, topology.Queue{
		Name: "other", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
	})
	for _, name := range append(queues, "other") {
		consume(t, target, name)
	}
	consumed := func(u topology.Usage) bool { return u.Consumers == 1 && !u.ConsumersUnknown }
	knows(t, admin, consumed, append(queues, "other")...)
	m := manage(t, target.User(t, "management", "^$", "^$", "^$"))
	all, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string][]string{
		"none": nil,
		"many": append(slices.Clone(queues), strings.Fields(strings.Repeat("missing ", 50))...), // all are read
	}
	for _, queue := range queues {
		lists[queue] = []string{queue, "missing"}
	}
	for name, list := range lists {
		some, err := m.InspectFor(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(all.Usage)
		for queue, u := range want {
			if name != "many" && !slices.Contains(list, queue) {
				u.Consumers, u.ConsumersUnknown = 0, true
				want[queue] = u
			}
		}
		if d := cmp.Diff(want, some.Usage); d != "" {
			t.Errorf("%q (-want +got):\n%s", name, d)
		}
		if some, err = m.ReadStatistics(t.Context(), some, append(queues, "other", "missing")); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(all, some); d != "" {
			t.Errorf("%q, and the others later (-all +some):\n%s", name, d)
		}
	}
}

// What was begun before is used for its own virtual host only.
func TestInspectForTakesWhatWasBegun(t *testing.T) {
	t.Parallel()
	target, other := brokertest.VHost(t), brokertest.VHost(t)
	m, elsewhere := manage(t, target), manage(t, other)
	begun := m.Begin(t.Context())
	before, err := m.InspectFor(t.Context(), begun, nil)
	if err != nil {
		t.Fatal(err)
	}
	queue := topology.Queue{
		Name: "q", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
	}
	apply(t, m, queue)
	apply(t, elsewhere, queue)
	again, err := m.InspectFor(t.Context(), begun, nil)
	if d := cmp.Diff(before, again); err != nil || d != "" {
		t.Errorf("it was read again: %v\n%s", err, d)
	}
	state, err := elsewhere.InspectFor(t.Context(), begun, nil)
	if err != nil || state.VHost != other.VHost || len(state.Have.Queues) != 1 {
		t.Errorf("the state of %q is that of %q, with %d queues: %v", other.VHost, state.VHost, len(state.Have.Queues), err)
	}
}

// An odd answer for one queue is an error, as it is for all: it would make a queue look unused.
func TestMalformedStatisticsOfAQueue(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		``, `null`, `[]`, `{}`, `{"name":"other","consumers":0}`, `{"name":"q","consumers":-1}`,
		`{"name":"q","consumers":"0"}`, `{"consumers":0}`,
	} {
		s := &impostor{answers: map[string]string{"queues": `[{"name":"q","type":"classic"}]`, "statistics": answer}}
		if state, err := s.start(t).InspectFor(t.Context(), nil, []string{"q"}); err == nil {
			t.Errorf("%s is taken for %s", answer, fmt.Sprint(state.Usage["q"]))
		}
	}
	for _, answer := range []string{`{"name":"q"}`, `{"name":"q","consumers":null}`} {
		s := &impostor{answers: map[string]string{"queues": `[{"name":"q","type":"classic"}]`, "statistics": answer}}
		state, err := s.start(t).InspectFor(t.Context(), nil, []string{"q"})
		if err != nil || !state.Usage["q"].ConsumersUnknown {
			t.Errorf("%s is taken for %+v, %v", answer, state.Usage["q"], err)
		}
	}
}

// The statistics of a queue of any name say when the last message arrived, and how many were
// delivered.
func TestMessageStatistics(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	m := manage(t, target.User(t, "management", "^$", "^$", "^$"))
	ch := target.Channel(t)
	const queue = "a/b c?d=ü%2F"
	brokertest.Declare(t, ch, queue, nil)
	if _, known, err := m.LastArrival(t.Context(), queue, time.Minute); known || err != nil {
		t.Errorf("of a queue without a message: known %t, %v", known, err)
	}
	if err := brokertest.Publish(t.Context(), ch, "", queue, amqp091.Publishing{}, amqp091.Publishing{}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same message twice
		d, ok, err := ch.Get(queue, false)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := d.Reject(true); err != nil {
			t.Fatal(err)
		}
	}
	brokertest.Eventually(t, "an arrival within a minute, and one message that was delivered", func() bool {
		ago, known, err := m.LastArrival(t.Context(), queue, time.Minute)
		delivered, err2 := m.Delivered(t.Context(), queue)
		return err == nil && err2 == nil && known && ago < time.Minute && delivered == 1
	})
	if _, err := m.Delivered(t.Context(), "missing"); err == nil {
		t.Error("the statistics of a queue that does not exist are read")
	}
}
