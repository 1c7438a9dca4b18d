package migrate

import (
	"testing"

	"github.com/dlxctl/dlxctl/topology"
)

// Where new messages go, as an interrupted run says it, also where a service has bound a queue
// again.
func TestReceivers(t *testing.T) {
	t.Parallel()
	m := Move{Topology: "shop", Legacy: "old", New: "new"}
	order := []topology.Binding{{Source: "events", Key: "order"}}
	late := []topology.Binding{{Source: "events", Key: "late"}}
	returns := []topology.Binding{{Source: topology.ReturnExchangeName("shop"), Key: topology.AddressKey("new")}}
	leads := func(end string) *topology.Policy {
		return &topology.Policy{Definition: topology.Arguments{topology.ArgAlternateExchange: end}}
	}
	toOld, toNew := leads(m.legacyEnd()), leads(m.successorEnd())
	for name, tc := range map[string]struct {
		found
		want string
	}{
		"before":                   {found{onLegacy: order, onSuccessor: returns}, "old"},
		"in the middle":            {found{onSwitch: order, onSuccessor: returns, policy: toOld}, "old"},
		"after the switch":         {found{onSwitch: order, onSuccessor: returns, policy: toNew}, "new"},
		"after":                    {found{onSuccessor: order}, "new"},
		"bound again":              {found{onLegacy: order, onSuccessor: order}, "old and to new"},
		"bound again, by a key":    {found{onLegacy: late, onSuccessor: order}, "old and to new"},
		"bound again, at a switch": {found{onLegacy: order, onSwitch: order, policy: toNew}, "old and to new"},
		"bound too early":          {found{onSuccessor: order, onSwitch: order, policy: toOld}, "old and to new"},
		"nowhere":                  {found{}, "otherwise"},
	} {
		if got := m.receivers(tc.found, "otherwise"); got != tc.want {
			t.Errorf("%s: %q, not %q", name, got, tc.want)
		}
	}
}
