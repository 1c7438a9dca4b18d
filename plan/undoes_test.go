package plan_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Undoes counts what the broker has as another topology declares it.
func TestUndoes(t *testing.T) {
	t.Parallel()
	const standard = "standard: {tiers: [1s]}"
	shop := func(backoffs, queue string) topology.Compiled { return loaded(t, shopFile(backoffs, queue)) }
	now := shop(standard, "{name: billing, backoff: standard}")
	for name, test := range map[string]struct {
		had, with topology.Compiled
		undone    bool
	}{
		"nothing":             {now, shop(standard, "{name: billing, backoff: standard, deliveryLimit: 5}"), false},
		"an argument":         {shop(standard, "{name: billing, backoff: standard, deliveryLimit: 5}"), shop(standard, "{name: billing, backoff: standard, deliveryLimit: 5}"), true},
		"another value":       {shop(standard, "{name: billing, backoff: standard, deliveryLimit: 5}"), shop(standard, "{name: billing, backoff: standard, deliveryLimit: 6}"), false},
		"tiers":               {shop("standard: {tiers: [1s, 1h]}", "{name: billing, backoff: standard}"), shop("standard: {tiers: [1s, 1h]}", "{name: billing, backoff: standard}"), true},
		"other tiers":         {shop("standard: {tiers: [1s, 1h]}", "{name: billing, backoff: standard}"), shop("standard: {tiers: [2s]}", "{name: billing, backoff: standard}"), false},
		"no argument":         {shop(standard, "{name: billing, backoff: standard, arguments: {x-single-active-consumer: true}}"), shop(standard, "{name: billing, backoff: standard, arguments: {x-single-active-consumer: true}}"), true},
		"a dead-letter queue": {shop(standard, "{name: billing, backoff: standard, dead: shared}"), shop(standard, "{name: billing, backoff: standard, dead: shared}"), true},
	} {
		p := plan.Make(now, topology.State{Version: "4.3.0", VHost: "/", Have: test.had.Topology}, plan.Options{})
		if got := p.Undoes(test.with) > 0; got != test.undone {
			t.Errorf("%s: %t of\n%s", name, got, written(t, p))
		}
		if p.Undoes(now) > 0 {
			t.Errorf("%s: it undoes what it makes:\n%s", name, written(t, p))
		}
	}
}
