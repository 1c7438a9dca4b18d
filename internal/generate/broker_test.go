package generate_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rabbithole "github.com/michaelklishin/rabbit-hole/v2"

	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// odd is a topology file with names, keys and arguments that are hard to pass on.
const odd = `
version: 1
name: odd
defaults: {backoff: a}
backoff: {a: {tiers: [10s]}}
exchanges:
  - {name: events, type: topic}
  - {name: docs, type: headers}
  - {name: "with space", type: fanout, arguments: {alternate-exchange: events}}
queues:
  - name: "ünï-🐇"
    arguments: {x-note: [1, two, {three: 3.5}], x-flag: true}
    bindings:
      - {exchange: events, keys: ["a/b", "a b", "~", "%2F", "#", "a~", "ü", "$${x}", "a+b&c", "line\nbreak"]}
      - {exchange: docs, match: any, headers: {format: pdf, pages: 2, share: 0.5, final: true}}
      - {exchange: "with space"}
`

// declare creates objects as the Terraform provider and the operator do: over the management API,
// with the library that both use.
func declare(t *testing.T, x brokertest.Target, d decoded) {
	t.Helper()
	hole, err := rabbithole.NewClient(x.API, x.Username, x.Password)
	if err != nil {
		t.Fatal(err)
	}
	done := func(response *http.Response, err error) *http.Response {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	for _, e := range d.Exchanges {
		done(hole.DeclareExchange(x.VHost, e.Name, rabbithole.ExchangeSettings{
			Type: e.Type, Durable: e.Durable, AutoDelete: e.AutoDelete, Arguments: e.Arguments,
		}))
	}
	for _, q := range d.Queues {
		done(hole.DeclareQueue(x.VHost, q.Name, rabbithole.QueueSettings{
			Durable: q.Durable, AutoDelete: q.AutoDelete, Arguments: q.Arguments,
		}))
	}
	for _, p := range d.Policies {
		done(hole.PutPolicy(x.VHost, p.Name, rabbithole.Policy{
			Pattern: p.Pattern, ApplyTo: p.ApplyTo, Priority: int(p.Priority),
			Definition: rabbithole.PolicyDefinition(p.Definition),
		}))
	}
	for _, b := range d.Bindings {
		response := done(hole.DeclareBinding(x.VHost, rabbithole.BindingInfo{
			Source: b.Source, Destination: b.Destination, DestinationType: b.DestinationType,
			RoutingKey: b.Key, Arguments: b.Arguments,
		}))
		if err := findsAgain(hole, x.VHost, b, response.Header.Get("Location")); err != nil {
			t.Errorf("the Terraform provider loses the binding %s: %v", b, err)
		}
	}
}

// findsAgain looks for a binding as the Terraform provider does after it has created it: the id of
// the resource has the last part of the Location, and the provider splits the id at each slash.
func findsAgain(hole *rabbithole.Client, vhost string, b topology.Binding, location string) error {
	key, err := url.PathUnescape(location[strings.LastIndex(location, "/")+1:])
	if err != nil {
		return err
	}
	id := strings.Join([]string{url.PathEscape(vhost), b.Source, b.Destination, b.DestinationType, key}, "/")
	parts := strings.Split(id, "/")
	list := hole.ListQueueBindingsBetween
	if b.DestinationType == topology.ToExchange {
		list = hole.ListExchangeBindingsBetween
	}
	found, err := list(vhost, parts[1], parts[2])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(f rabbithole.BindingInfo) bool { return f.PropertiesKey == parts[4] }) {
		return fmt.Errorf("the id is %s, and the bindings are %+v", id, found)
	}
	return nil
}

// What the provider and the operator create from the outputs is what apply creates.
func TestOutputsCreateTheTopology(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]topology.Compiled{"shop": shop(t), "odd": spectest.Compile(t, odd)} {
		for _, o := range outputs() {
			t.Run(o.name+" "+name, func(t *testing.T) {
				t.Parallel()
				x := brokertest.VHost(t)
				data, missing, err := o.print(want, x.VHost)
				if err != nil || len(missing) > 0 {
					t.Fatal(err, missing)
				}
				read, err := o.read(data, x.VHost)
				if err != nil {
					t.Fatal(err)
				}
				declare(t, x, read)
				got, wanted := inspected(t, x), expressible(want.Topology, nil)
				wanted.Sort()
				if d := cmp.Diff(wanted, got, cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(topology.Label{})); d != "" {
					t.Errorf("-topology +broker\n%s", d)
				}
			})
		}
	}
}

// inspected returns the objects of a virtual host, without those that each has.
func inspected(t *testing.T, x brokertest.Target) topology.Topology {
	t.Helper()
	client := managementtest.Client(t, x)
	state, err := client.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := state.Have
	found.Exchanges = slices.DeleteFunc(found.Exchanges, func(e topology.Exchange) bool {
		return e.Name == "" || strings.HasPrefix(e.Name, "amq.")
	})
	found.Bindings = slices.DeleteFunc(found.Bindings, func(b topology.Binding) bool { return b.Source == "" })
	found.Sort()
	return found
}
