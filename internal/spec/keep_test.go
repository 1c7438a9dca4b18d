package spec_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// keep needs no name of a queue, comes from defaults, covers matched queues too, and changes no
// object of the broker.
func TestKeep(t *testing.T) {
	t.Parallel()
	file := func(keep, of string) topology.Compiled {
		return spectest.Compile(t, fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: standard%s}
backoff: {standard: {tiers: [1s]}}
queues:
  - {name: billing}
  - {name: crm, dead: {queue: crm.graves%s, external: true}}
  - {name: mail, dead: shared}
  - {match: '^svc[.]x', external: true, dead: {queue: svc.graves%s}}
  - {name: fax, dead: own}
`, keep, of, of))
	}
	const day = 24 * time.Hour
	with, without := file(", dead: {keep: 90d}", ", keep: 1d12h"), file("", "")
	want := []topology.Keep{
		{Queue: "billing.dead", Age: 90 * day},
		{Queue: "crm.graves", Age: 36 * time.Hour},
		{Queue: "svc.graves", Age: 36 * time.Hour},
	}
	if d := cmp.Diff(want, with.Keeps); d != "" {
		t.Errorf("keeps (-want +got):\n%s", d)
	}
	if d := cmp.Diff(without.Topology, with.Topology); d != "" {
		t.Errorf("the objects (-without +with):\n%s", d)
	}
	if with.KeepOf("billing.dead") != 90*day || with.KeepOf("shop.dead") != 0 {
		t.Errorf("billing.dead keeps %s, shop.dead %s", with.KeepOf("billing.dead"), with.KeepOf("shop.dead"))
	}
}
