package e2e_test

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

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// Apply creates, changes and removes a topology in a virtual host with the real topology of another
// team. The objects of the other team stay byte for byte as they were, and no plan names them.
func TestForeignTopologiesStayUntouched(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, exchange := range map[string]string{"datban": "user.events", "neic-sda": "sda", "ons-census-rm": "events"} {
		for _, typ := range []string{"classic", "quorum"} {
			t.Run(name+" "+typ, func(t *testing.T) {
				t.Parallel()
				target := brokertest.VHost(t)
				names := load(t, target, "../testdata/real/"+name+".json")
				before := foreignObjects(t, target)
				for step, text := range steps(exchange, typ) {
					// A broker under load counts the consumers of a new queue late.
					args := []string{"--allow", "drops-routing", "--allow", "stops-consumers", "-f", writeTopology(t, text)}
					p := start(t, target, append([]string{"plan", "-o", "json"}, args...)...)
					p.exits(t, 0)
					for _, n := range named(t, []byte(p.stdout.String())) {
						if names[n] {
							t.Errorf("step %d: the plan names %s, an object of the other team:\n%s", step, n, &p.stdout)
						}
					}
					start(t, target, append([]string{"apply", "--yes", "--wait"}, args...)...).exits(t, 0)
					start(t, target, append([]string{"plan", "--detailed-exitcode"}, args...)...).exits(t, 0)
					if d := cmp.Diff(before, foreignObjects(t, target)); d != "" {
						t.Fatalf("step %d: the other team's objects changed (-before +after):\n%s", step, d)
					}
				}
				if d := cmp.Diff(before, target.Definitions(t)); d != "" {
					t.Errorf("objects of dlxctl are left (-before +after):\n%s", d)
				}
			})
		}
	}
}

// steps returns the files that are applied one after the other: a queue at the other team's
// exchange and one at an exchange of the file; one tier more and one queue less; another tier and
// only the other queue, so nothing at the other team's exchange; no queue at all.
func steps(exchange, typ string) []string {
	head := "version: 1\nname: shop\n"
	file := func(tiers string, queues ...string) string {
		return fmt.Sprintf("%sdefaults: {type: %s, backoff: b}\nbackoff: {b: {tiers: %s}}\n"+
			"exchanges:\n  - {name: %s, external: true}\n  - {name: shop.events}\nqueues:\n  - %s\n",
			head, typ, tiers, exchange, strings.Join(queues, "\n  - "))
	}
	billing := fmt.Sprintf(`{name: shop.billing, bindings: [{exchange: %s, key: "billing.#"}]}`, exchange)
	mail := `{name: shop.mail, dead: shared, bindings: [{exchange: shop.events, key: mail}]}`
	return []string{
		file("[1s]", billing, mail),
		file("[1s, 1m]", billing),
		file("[1m]", mail) + "removed: [shop.billing]\n",
		head,
	}
}

// definitions is a definitions file, with the parts that the test uses.
type definitions struct {
	Exchanges []object `json:"exchanges"`
	Queues    []object `json:"queues"`
	Bindings  []object `json:"bindings"`
	Policies  []object `json:"policies,omitempty"` // the broker answers null with a server error
}

type object map[string]any

// load imports a definitions file, without what the broker refuses, and returns the names in it.
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
	// 3.10 ignores bindings to a destination that the file lacks. Later versions refuse the file.
	d.Bindings = slices.DeleteFunc(d.Bindings, func(b object) bool { return !names[fmt.Sprint(b["destination"])] })
	if target.AtLeast("4.0") { // mirrored queues were removed
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

// named returns the names of the objects that a plan in JSON changes or lists as drift. Of a
// binding it returns the destination, because the source may be an exchange of the other team.
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
