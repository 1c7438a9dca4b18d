package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// RabbitMQ answers 500 for the list of bindings once there is a binding with arguments whose key
// has ~ before other characters. So no plan creates one: later plans could not read the broker.
func TestPlansBlockUnlistableBindings(t *testing.T) {
	t.Parallel()
	file := func(queue, key string) topology.Compiled {
		return spectest.Compile(t, "version: 1\nname: shop\ndefaults: {backoff: a}\nbackoff: {a: {tiers: [10s]}}\n"+
			"exchanges: [{name: events}]\nqueues: [{name: \""+queue+"\", bindings: [{exchange: events, key: \""+key+"\"}]}]\n")
	}
	for _, tc := range []struct {
		queue, key string
		blocked    int
	}{
		{"billing", "order.#", 0},
		{"billing", "order~", 0},
		{"billing", "~", 0},
		{"billing", "a~b", 1},
		{"billing", "~b", 1},
		{"bill~ing", "order", 3}, // its failed, return and dead-letter bindings
	} {
		p := plan.Make(file(tc.queue, tc.key), topology.State{Version: "4.3.6"}, plan.Options{})
		blocked := slices.DeleteFunc(slices.Clone(p.Changes), func(c plan.Change) bool { return c.Action != plan.Blocked })
		if len(blocked) != tc.blocked {
			t.Errorf("queue %q, key %q: %d changes are blocked, want %d", tc.queue, tc.key, len(blocked), tc.blocked)
		}
		for _, c := range blocked {
			if c.Kind != topology.KindBinding || !strings.Contains(c.Reason, "~") {
				t.Errorf("queue %q, key %q: blocks %s %s: %s", tc.queue, tc.key, c.Kind, c.Name, c.Reason)
			}
		}
	}
}
