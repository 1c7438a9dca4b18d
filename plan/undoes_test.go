package plan_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Undoes counts what the broker has as another topology declares it.
func TestUndoes(t *testing.T) {
	t.Parallel()
	shop := func(tiers, keys string) topology.Compiled {
		return loaded(t, shopFile("standard: {tiers: ["+tiers+"]}", "{name: billing, backoff: standard"+keys+"}"))
	}
	const limited, single = ", deliveryLimit: 5", ", arguments: {x-single-active-consumer: true}"
	now := shop("1s", "")
	for name, test := range map[string]struct {
		had, with topology.Compiled
		undone    bool
	}{
		"nothing":             {now, shop("1s", limited), false},
		"an argument":         {shop("1s", limited), shop("1s", limited), true},
		"another value":       {shop("1s", limited), shop("1s", ", deliveryLimit: 6"), false},
		"tiers":               {shop("1s, 1h", ""), shop("1s, 1h", ""), true},
		"other tiers":         {shop("1s, 1h", ""), shop("2s", ""), false},
		"no argument":         {shop("1s", single), shop("1s", single), true},
		"a dead-letter queue": {shop("1s", ", dead: shared"), shop("1s", ", dead: shared"), true},
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
