package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// drawFile gives a topology file: some queues, backoffs and bindings, drawn.
func drawFile(r *rand.Rand, typ string) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: shop\ndefaults: {type: %s, backoff: a}\nbackoff:\n", typ)
	for _, name := range []string{"a", "b"} {
		fmt.Fprintf(&b, "  %s: {tiers: %s}\n", name, pick("[1s]", "[1s, 1m]", "[0s, 1m, 1m]", "[1m, {delay: 1s, attempts: 3}]", "[2m, 3m]"))
	}
	b.WriteString("exchanges:\n  - {name: e}\n  - {name: h, type: headers}\n  - {name: f, type: fanout, bindings: [{exchange: e, key: x}]}\n  - {name: theirs, external: true}\nqueues:\n")
	for i := range 6 {
		if r.IntN(3) == 0 {
			continue // not in this file
		}
		fmt.Fprintf(&b, "  - {name: q%d, backoff: %s, dead: %s, bindings: [{exchange: e, key: k%d}%s]%s}\n", i,
			pick("a", "a", "b", "none"), pick("own", "shared", "{queue: graves}"), r.IntN(3),
			pick("", ", {exchange: f}", ", {exchange: h, headers: {a: 1}}", ", {exchange: theirs, key: z}"),
			pick("", ", arguments: {x-message-ttl: 60000}"))
	}
	b.WriteString("  - {name: always}\n")
	return b.String()
}

// foreign is what other people have in the virtual host.
const foreign = `{
"exchanges": [{"name": "theirs", "type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": {}},
              {"name": "shop.like", "type": "direct", "durable": true, "auto_delete": false, "internal": false, "arguments": {"x-managed-by": "dlxctl/other"}}],
"queues": [{"name": "theirs", "durable": true, "auto_delete": false, "arguments": {"x-max-length": 5}},
           {"name": "other.failed", "durable": true, "auto_delete": false, "arguments": {"x-managed-by": "dlxctl/other"}}],
"bindings": [{"source": "theirs", "destination": "theirs", "destination_type": "queue", "routing_key": "#", "arguments": {}},
             {"source": "shop.like", "destination": "other.failed", "destination_type": "queue", "routing_key": "k", "arguments": {"x-managed-by": "dlxctl/other"}}],
"policies": [{"name": "lazy", "pattern": "^theirs$", "apply-to": "queues", "priority": 0, "definition": {"max-length": 9}}]}`

// The law: whatever topology A was applied, applying B makes the broker as B
// says, and back; and what is foreign is byte for byte as before.
func TestApplyingOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		typ := "classic"
		if seed >= 8 {
			typ = "quorum" // slower: it takes seconds to prove such a queue empty
		}
		t.Run(fmt.Sprintf("seed %d %s", seed, typ), func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			target.Call(t, "POST", "definitions/"+url.PathEscape(target.VHost), json.RawMessage(foreign))
			before := theirs(t, target)
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same topologies each time
			a, b := compiled(t, drawFile(r, typ)), compiled(t, drawFile(r, typ))
			for _, want := range []topology.Topology{a, b, a} {
				converge(t, target, want)
			}
			if d := cmp.Diff(before, theirs(t, target)); d != "" {
				t.Errorf("what is foreign changed (-before +after):\n%s", d)
			}
		})
	}
}

func compiled(tb testing.TB, file string) topology.Topology {
	tb.Helper()
	top, _, err := spec.Load([]spec.Source{{Name: "f", Data: []byte(file)}}, func(string) (string, bool) { return "", false })
	if err != nil {
		tb.Fatalf("%v\n%s", err, file)
	}
	return top
}

// converge applies until nothing is left, which takes two rounds: a retired tier
// is unbound in the first and deleted in the second.
func converge(t *testing.T, target brokertest.Target, want topology.Topology) {
	t.Helper()
	endpoint, err := broker.Config{URL: target.URL, API: target.API}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	m, err := broker.NewManagement(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for round := range 4 {
		state, err := m.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := plan.Make(want, state, plan.Options{})
		p = plan.Make(want, m.AskConsumers(t.Context(), state, plan.Decisive(p, want, state)), plan.Options{}) // of new queues there are no statistics
		if round == 3 && (!p.Empty() || len(p.Drift) > 0 || len(p.Retiring) > 0) {
			var b strings.Builder
			if err := plan.WriteText(&b, p, plan.TextOptions{Verbose: true}); err != nil {
				t.Fatal(err)
			}
			t.Fatalf("left to do after three rounds:\n%s", b.String())
		}
		if err := plan.Check(p, plan.Allow(plan.Hazards()...)); err != nil {
			t.Fatal(err)
		}
		if err := plan.Carry(t.Context(), m, want, p, 0, func(plan.Change) {}); err != nil {
			t.Fatal(err)
		}
	}
}

// theirs gives the broker's own export without what carries our mark.
func theirs(t *testing.T, target brokertest.Target) []string {
	t.Helper()
	return slices.DeleteFunc(target.Definitions(t), func(object string) bool { return strings.Contains(object, `"dlxctl/shop"`) })
}
