package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// A topology of ours comes, changes and goes beside one that other people run.
// Theirs stays as it was, to the byte, and no plan ever names what is theirs.
func TestBesideRealTopologies(t *testing.T) {
	t.Parallel()
	for name, exchange := range map[string]string{"datban": "user.events", "neic-sda": "sda", "ons-census-rm": "events"} {
		for _, typ := range []string{"classic", "quorum"} {
			t.Run(name+" "+typ, func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				names := load(t, target, "testdata/real/"+name+".json")
				before := theirs(t, target)
				for step, text := range beside(exchange, typ) {
					// A broker under load is late to tell how many consumers a new queue has.
					args := []string{"--allow", "drops-routing", "--allow", "stops-consumers", "-f", file(t, text)}
					p := start(t, target, append([]string{"plan", "-o", "json"}, args...)...)
					p.exits(t, 0)
					for _, n := range named(t, []byte(p.stdout.String())) {
						if names[n] {
							t.Errorf("step %d: the plan names %s, which is theirs:\n%s", step, n, &p.stdout)
						}
					}
					start(t, target, append([]string{"apply", "--yes", "--wait"}, args...)...).exits(t, 0)
					start(t, target, append([]string{"plan", "--detailed-exitcode"}, args...)...).exits(t, 0)
					if d := cmp.Diff(before, theirs(t, target)); d != "" {
						t.Fatalf("step %d: what is theirs changed (-before +after):\n%s", step, d)
					}
				}
				if d := cmp.Diff(before, target.Definitions(t)); d != "" {
					t.Errorf("something of ours is left (-before +after):\n%s", d)
				}
			})
		}
	}
}

// beside gives what is applied beside other people's topology, step by step: a
// queue at their exchange and one at ours; a tier more and a queue less; another
// tier and the other queue, and nothing at their exchange any more; nothing at all.
func beside(exchange, typ string) []string {
	head := "version: 1\nname: shop\n"
	ours := func(tiers string, queues ...string) string {
		return fmt.Sprintf("%sdefaults: {type: %s, backoff: b}\nbackoff: {b: {tiers: %s}}\nexchanges:\n  - {name: %s, external: true}\n  - {name: shop.events}\nqueues:\n  - %s\n",
			head, typ, tiers, exchange, strings.Join(queues, "\n  - "))
	}
	billing := fmt.Sprintf(`{name: shop.billing, bindings: [{exchange: %s, key: "billing.#"}]}`, exchange)
	mail := `{name: shop.mail, dead: shared, bindings: [{exchange: shop.events, key: mail}]}`
	return []string{ours("[1s]", billing, mail), ours("[1s, 1m]", billing), ours("[1m]", mail) + "removed: [shop.billing]\n", head}
}

// definitions is a definitions file, as far as it has to be read.
type definitions struct {
	Exchanges []object `json:"exchanges"`
	Queues    []object `json:"queues"`
	Bindings  []object `json:"bindings"`
	Policies  []object `json:"policies,omitempty"` // null is a server error
}

type object map[string]any

// load imports a definitions file, without what the broker refuses, and gives
// the names in it.
func load(t *testing.T, target brokertest.Target, path string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d definitions
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, o := range slices.Concat(d.Exchanges, d.Queues, d.Policies) {
		names[fmt.Sprint(o["name"])] = true
	}
	// 3.10 drops bindings to what the file lacks in silence, later ones refuse the file.
	d.Bindings = slices.DeleteFunc(d.Bindings, func(b object) bool { return !names[fmt.Sprint(b["destination"])] })
	if target.AtLeast("4.0") { // there are no mirrors any more
		d.Policies = slices.DeleteFunc(d.Policies, func(p object) bool {
			keys, _ := p["definition"].(map[string]any)
			maps.DeleteFunc(keys, func(key string, _ any) bool { return strings.HasPrefix(key, "ha-") })
			return len(keys) == 0
		})
	}
	target.Call(t, "POST", "definitions/"+url.PathEscape(target.VHost), d)
	want := len(d.Exchanges) + len(d.Queues) + len(d.Bindings) + len(d.Policies)
	if got := len(target.Definitions(t)); got != want {
		t.Fatalf("the broker has %d objects of %s, not %d", got, path, want)
	}
	return names
}

// named gives the names of the objects that a plan in JSON would change or calls
// drift; of bindings where they lead, as they may come from an exchange of theirs.
func named(t *testing.T, data []byte) []string {
	t.Helper()
	type change struct{ Name, Destination string }
	var p struct{ Changes, Drift []change }
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	var names []string
	for _, c := range slices.Concat(p.Changes, p.Drift) {
		names = append(names, c.Name, c.Destination)
	}
	return names
}
