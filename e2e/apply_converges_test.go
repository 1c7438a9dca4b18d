package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/planview"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// randomFile returns a topology file with random queues, backoffs and bindings.
func randomFile(r *rand.Rand, typ string) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: shop\ndefaults: {type: %s, backoff: a}\nbackoff:\n", typ)
	for _, name := range []string{"a", "b"} {
		tiers := pick("[1s]", "[1s, 1m]", "[0s, 1m, 1m]", "[1m, {delay: 1s, attempts: 3}]", "[2m, 3m]")
		fmt.Fprintf(&b, "  %s: {tiers: %s}\n", name, tiers)
	}
	b.WriteString("exchanges:\n  - {name: e}\n  - {name: h, type: headers}\n" +
		"  - {name: f, type: fanout, bindings: [{exchange: e, key: x}]}\n  - {name: foreign, external: true}\nqueues:\n")
	for i := range 6 {
		if r.IntN(3) == 0 {
			continue // not in this file
		}
		fmt.Fprintf(&b, "  - {name: q%d, backoff: %s, dead: %s, bindings: [{exchange: e, key: k%d}%s]%s}\n", i,
			pick("a", "a", "b", "none"), pick("own", "shared", "{queue: graves}"), r.IntN(3),
			pick("", ", {exchange: f}", ", {exchange: h, headers: {a: 1}}", ", {exchange: foreign, key: z}"),
			pick("", ", arguments: {x-message-ttl: 60000}"))
	}
	b.WriteString("  - {name: always}\n")
	return b.String()
}

// foreign are the objects of another team in the virtual host, some of another topology.
const foreign = `{
"exchanges": [
  {"name": "foreign", "type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": {}},
  {"name": "shop.like", "type": "direct", "durable": true, "auto_delete": false, "internal": false,
   "arguments": {"x-managed-by": "dlxctl/other"}}],
"queues": [
  {"name": "foreign", "durable": true, "auto_delete": false, "arguments": {"x-max-length": 5}},
  {"name": "other.failed", "durable": true, "auto_delete": false, "arguments": {"x-managed-by": "dlxctl/other"}}],
"bindings": [
  {"source": "foreign", "destination": "foreign", "destination_type": "queue", "routing_key": "#", "arguments": {}},
  {"source": "shop.like", "destination": "other.failed", "destination_type": "queue", "routing_key": "k",
   "arguments": {"x-managed-by": "dlxctl/other"}}],
"policies": [
  {"name": "lazy", "pattern": "^foreign$", "apply-to": "queues", "priority": 0, "definition": {"max-length": 9}}]}`

// After any topology A, apply makes the broker match any topology B, and A again. Foreign objects
// stay byte for byte as they were.
func TestApplyConvergesFromAnyTopologyToAnyOther(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for seed := range uint64(10) {
		typ := "classic"
		if seed >= 8 {
			typ = "quorum" // slower: dlxctl needs seconds to verify that such a queue is empty
		}
		t.Run(fmt.Sprintf("seed %d %s", seed, typ), func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			target.Call(t, "POST", "definitions/"+url.PathEscape(target.VHost), json.RawMessage(foreign))
			before := foreignObjects(t, target)
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same topologies each time
			a, b := compiled(t, randomFile(r, typ)), compiled(t, randomFile(r, typ))
			for _, want := range []topology.Compiled{a, b, a} {
				converge(t, target, want)
			}
			if d := cmp.Diff(before, foreignObjects(t, target)); d != "" {
				t.Errorf("foreign objects changed (-before +after):\n%s", d)
			}
		})
	}
}

// printed returns the whole text of a plan.
func printed(t *testing.T, p plan.Plan) string {
	t.Helper()
	var b strings.Builder
	if err := planview.WriteText(&b, p, planview.TextOptions{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// converge applies a topology until no change is left. That needs two rounds: a retired tier is
// unbound in the first and deleted in the second.
func converge(t *testing.T, target brokertest.Target, want topology.Compiled) {
	t.Helper()
	m := managementtest.Client(t, target)
	for round := range 4 {
		state, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := plan.Make(want, state, plan.Options{})
		// The broker has no statistics of new queues yet, and a busy one may answer too late.
		for range 10 {
			p = plan.Make(want, m.AskConsumers(t.Context(), state, plan.Decisive(p, want, state)), plan.Options{})
			if plan.Check(p, plan.Allow(topology.Hazards()...)) == nil {
				break
			}
		}
		if round == 3 && (!p.Empty() || len(p.Drift) > 0 || len(p.Retiring) > 0) {
			t.Fatalf("changes are left after three rounds:\n%s", printed(t, p))
		}
		if err := plan.Check(p, plan.Allow(topology.Hazards()...)); err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, printed(t, p))
		}
		if err := apply.ExecuteWithReroutes(t.Context(), m, want, p, 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
	}
}

// foreignObjects returns the broker's own export without the objects that have the owner mark of
// the topology shop.
func foreignObjects(t *testing.T, target brokertest.Target) []string {
	t.Helper()
	return slices.DeleteFunc(target.Definitions(t), func(object string) bool {
		return strings.Contains(object, `"dlxctl/shop"`)
	})
}
