package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

// A delay has a queue for what is published, one for what comes from the levels, and the levels,
// all quorum queues that dead-letter at least once. Without delays there is none of it.
func TestDelay(t *testing.T) {
	t.Parallel()
	file := func(delays string) []Source {
		return []Source{{Name: "f", Data: []byte("version: 1\nname: shop\ndefaults: {type: classic}\n" +
			"exchanges: [{name: events}]\n" + delays)}}
	}
	c, _, err := Load(file("delays: [{name: shop.later, to: events, max: 10s}]"), environment())
	if err != nil {
		t.Fatal(err)
	}
	want := "shop.delay.due.shop.later shop.delay.in.shop.later shop.delay.level.1s.shop.later " +
		"shop.delay.level.2s.shop.later shop.delay.level.4s.shop.later shop.delay.level.8s.shop.later shop.unroutable"
	if got := strings.Join(c.QueueNames(), " "); got != want {
		t.Errorf("the queues are %s", got)
	}
	native, _, err := Load(file("delays: [{name: shop.later, to: events, engine: native, max: 365d}]"), environment())
	if err != nil {
		t.Fatal(err)
	}
	want = "shop.delay.due.shop.later shop.delay.in.shop.later shop.delay.level.12d3h16m16s.shop.later " +
		"shop.delay.level.17m4s.shop.later shop.delay.level.1s.shop.later shop.delay.level.32s.shop.later shop.delay.level.9h6m8s.shop.later " +
		"shop.delay.timer.shop.later shop.unroutable"
	if got := strings.Join(native.QueueNames(), " "); got != want {
		t.Errorf("with engine: native the queues are %s", got)
	}
	// A message that waits while the engine changes comes to no other level.
	goesTo := map[any]string{}
	for _, b := range slices.Concat(c.Bindings, native.Bindings) {
		if b.Source != "shop.delay.levels.shop.later" {
			continue
		}
		value := b.Arguments[topology.HeaderDelayLevel]
		if other := goesTo[value]; other != "" && other != b.Destination {
			t.Errorf("%v leads to %s and to %s", value, b.Destination, other)
		}
		goesTo[value] = b.Destination
	}
	for _, q := range slices.Concat(c.Queues, native.Queues) {
		label, is := topology.QueueLabelOf("shop", q.Name)
		if label.Role != q.Label.Role || label.Delay != q.Label.Delay {
			t.Errorf("the name %s stands for %v, not for %v", q.Name, label, q.Label)
		}
		_, leads := q.Arguments[topology.ArgDeadLetterExchange]
		safe := q.Arguments[topology.ArgDeadLetterStrategy] == topology.AtLeastOnce
		if is && label.Delay != "" && (q.Type() != topology.Quorum || leads != safe) {
			t.Errorf("%s has the arguments %v", q.Name, q.Arguments)
		}
	}
	c, _, err = Load(file("queues: [{name: q, backoff: none}]"), environment())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range c.Queues {
		if q.Label.Delay != "" || len(c.Delays) > 0 {
			t.Errorf("without delays there is %s", q.Name)
		}
	}
}

// What a delay cannot be is refused with its place.
func TestDelaysThatAreRefused(t *testing.T) {
	t.Parallel()
	for delays, want := range map[string]string{
		"{name: later, to: event}":                             `f:4:28: the delay "later" publishes to exchange "event", which is not declared; did you mean "events"?`,
		"{name: later, to: inner}":                             `"inner", which is internal`,
		"{name: events, to: events}":                           `exchange "events" is already declared at f:3:20`,
		"{name: a, to: events}, {name: a, to: events}":         `exchange "a" is already declared at f:4:17`,
		"{name: shop.delay.due.a, to: events}":                 "the exchanges of delays",
		"{name: shop.dead, to: events}":                        "the exchange that routes to dead-letter queues",
		"{name: later, to: events, max: 500ms}":                "f:4:41: max is 500ms",
		"{name: later, to: events, max: 50d}":                  "may not be longer than 49d17h2m47.295s, the broker's limit",
		"{name: later, to: events, engine: native, max: 366d}": "it may not be longer than 365d",
		"{name: later, to: events, engine: processor}":         `engine is "processor"`,
		"{name: later}":                                        "delay has no to",
		"{name: " + strings.Repeat("n", 250) + ", to: events}": "more than the 255 that AMQP allows",
	} {
		_, _, err := Load([]Source{{Name: "f", Data: []byte("version: 1\nname: shop\nexchanges: [{name: events}, {name: inner, internal: true}]\n" +
			"delays: [" + delays + "]\n")}}, environment())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", delays, err, want)
		}
	}
}
