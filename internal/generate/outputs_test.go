package generate_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/internal/generate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

func shop(t *testing.T) topology.Compiled {
	t.Helper()
	return compiledFile(t, "../../testdata/shop.yaml")
}

// byPolicy returns a topology with queues that dead-letter by a policy: one leaves its retries to
// RabbitMQ, and one is external and live.
func byPolicy(t *testing.T) topology.Compiled {
	t.Helper()
	return spectest.Compile(t, `version: 1
name: shop
backoff: {steady: {engine: native, linear: {first: 10s, attempts: 5}}, standard: {tiers: [10s]}}
exchanges: [{name: events}]
queues:
  - {name: billing, backoff: steady, bindings: [{exchange: events, key: "order.*"}]}
  - {name: inbox, external: true, backoff: standard}
`)
}

func compiledFile(t *testing.T, path string) topology.Compiled {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return spectest.Compile(t, string(data))
}

// output is one of the formats of other tools.
type output struct {
	name  string
	print func(topology.Compiled, string) ([]byte, []generate.Inexpressible, error)
	read  func([]byte, string) (decoded, error)
}

func outputs() []output {
	terraform := func(t topology.Compiled, vhost string) ([]byte, []generate.Inexpressible, error) {
		data, missing := generate.Terraform(t, vhost)
		return data, missing, nil
	}
	operator := func(t topology.Compiled, vhost string) ([]byte, []generate.Inexpressible, error) {
		return generate.Operator(t, vhost, generate.ClusterReference{Name: "rabbitmq"})
	}
	return []output{{"terraform", terraform, readModule}, {"operator", operator, declaredBy}}
}

// check holds an output of t against the law: each object of the topology is in the output exactly
// as it is, or is named as missing, or is external; and resources have names of their own.
func (o output) check(want topology.Compiled, vhost string) error {
	data, missing, err := o.print(want, vhost)
	if err != nil {
		return err
	}
	got, err := o.read(data, vhost)
	if err != nil {
		return err
	}
	slices.Sort(got.labels)
	if distinct := len(slices.Compact(slices.Clone(got.labels))); distinct != len(got.labels) {
		return fmt.Errorf("%d resources have %d names: %v", len(got.labels), distinct, got.labels)
	}
	for _, m := range missing {
		if !strings.Contains(string(data), "#   "+m.String()+"\n") {
			return fmt.Errorf("the comment does not name %v", m)
		}
	}
	left := expressible(want.Topology, missing)
	got.Sort()
	left.Sort()
	if d := cmp.Diff(left, got.Topology, cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(topology.Label{})); d != "" {
		return fmt.Errorf("-topology +output\n%s\n%s", d, data)
	}
	return nil
}

// expressible returns the objects that an output must have.
func expressible(t topology.Topology, missing []generate.Inexpressible) topology.Topology {
	gone := func(o topology.Object) bool {
		return slices.ContainsFunc(missing, func(m generate.Inexpressible) bool { return m.Object.ID() == o.ID() })
	}
	t.Exchanges, t.Queues = slices.Clone(t.Exchanges), slices.Clone(t.Queues)
	t.Bindings, t.Policies = slices.Clone(t.Bindings), slices.Clone(t.Policies)
	t.Exchanges = slices.DeleteFunc(t.Exchanges, func(e topology.Exchange) bool { return e.External || gone(e) })
	t.Queues = slices.DeleteFunc(t.Queues, func(q topology.Queue) bool { return q.External || gone(q) })
	t.Bindings = slices.DeleteFunc(t.Bindings, func(b topology.Binding) bool { return gone(b) })
	t.Policies = slices.DeleteFunc(t.Policies, func(p topology.Policy) bool { return gone(p) })
	return t
}

func TestOutputsHaveAllOfTheTopology(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"shop.yaml", "genomics/topology.yaml"} {
		for _, o := range outputs() {
			t.Run(o.name+" "+path, func(t *testing.T) {
				t.Parallel()
				want := compiledFile(t, "../../testdata/"+path)
				if err := o.check(want, "/"); err != nil {
					t.Error(err)
				}
				if _, missing, _ := o.print(want, "/"); len(missing) > 0 {
					t.Errorf("the output lacks %v", missing)
				}
			})
		}
	}
}

// anyText returns texts that mean something in HCL, JSON, YAML, Kubernetes and the provider's ids.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"billing", "shop.dead", "shop__dead", "shop_.dead", "shop._dead", "a.b", "a-b", "a_b", "a--b", "A.B", "ü",
			"u\u0308",
			"${x}", "%{if}", "$${", `"q"`, "it's", "back\\slash", "a/b", "a@b", "1", "1.5", "-1", "0x10", "1_0", "1:20",
			"true", "yes", "null", "~", "<<", "=", "2020-01-01", "- a", "a: b", "#", "# c", "tab\there", "\x1b[2J", "\x00", "\n",
			"🐇", " ", "x", "_", "-", ".", "..", "null.", strings.Repeat("n", 255), strings.Repeat("é", 120), "a--3f79bb7b43",
		}),
		rapid.StringMatching(`[A-Za-z0-9._-]{1,6}`),
		rapid.StringN(1, 8, 40),
	)
}

func anyValue(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		anyText().AsAny(), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.Int64Range(-3, 100000).AsAny(),
		rapid.Just[any](nil), rapid.SampledFrom([]any{0.5, -2.25, 1e-9, 0.1}),
	}
	if depth > 0 {
		kinds = append(kinds, rapid.SliceOfN(anyValue(depth-1), 0, 3).AsAny(), anyArguments(depth-1).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func anyArguments(depth int) *rapid.Generator[topology.Arguments] {
	return rapid.Custom(func(t *rapid.T) topology.Arguments {
		return topology.Arguments(rapid.MapOfN(anyText(), anyValue(depth), 0, 3).Draw(t, "arguments"))
	})
}

func anyTopology(t *rapid.T) topology.Compiled {
	var out topology.Compiled
	out.Name = "shop"
	names := func(what string) []string { return rapid.SliceOfNDistinct(anyText(), 0, 6, rapid.ID).Draw(t, what) }
	role := func() topology.Label {
		return topology.Label{Role: rapid.SampledFrom([]topology.Role{
			topology.RoleBusiness, topology.RoleWork, topology.RoleReturn, topology.RoleRetry,
		}).Draw(t, "role")}
	}
	for _, name := range names("exchanges") {
		out.Exchanges = append(out.Exchanges, topology.Exchange{
			Name: name, Type: rapid.SampledFrom(topology.ExchangeTypes()).Draw(t, "type"),
			Durable: rapid.Bool().Draw(t, "durable"), AutoDelete: rapid.Bool().Draw(t, "auto-delete"),
			Internal: rapid.Bool().Draw(t, "internal"), External: rapid.Bool().Draw(t, "external"),
			Arguments: anyArguments(1).Draw(t, "arguments"), Label: role(),
		})
	}
	for _, name := range names("queues") {
		q := topology.Queue{
			Name: name, Durable: rapid.Bool().Draw(t, "durable"), AutoDelete: rapid.Bool().Draw(t, "auto-delete"),
			External: rapid.Bool().Draw(t, "external"), Arguments: anyArguments(2).Draw(t, "arguments"), Label: role(),
		}
		if q.Arguments == nil {
			q.Arguments = topology.Arguments{}
		}
		q.Arguments[topology.ArgDeadLetterExchange] = anyText().Draw(t, "dead-letter exchange")
		out.Queues = append(out.Queues, q)
	}
	seen := map[topology.Key]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "bindings") {
		b := topology.Binding{
			Source: anyText().Draw(t, "source"), Destination: anyText().Draw(t, "destination"),
			DestinationType: rapid.SampledFrom([]string{topology.ToQueue, topology.ToExchange}).Draw(t, "to"),
			Key:             rapid.OneOf(rapid.Just(""), anyText()).Draw(t, "key"),
			Arguments:       anyArguments(1).Draw(t, "arguments"), Label: role(),
		}
		if !seen[b.ID()] {
			out.Bindings = append(out.Bindings, b)
		}
		seen[b.ID()] = true
	}
	for _, name := range names("policies") {
		out.Policies = append(out.Policies, topology.Policy{
			Name: name, Pattern: anyText().Draw(t, "pattern"), Priority: rapid.Int64Range(-9, 9).Draw(t, "priority"),
			ApplyTo:    rapid.SampledFrom([]string{"queues", "all", "quorum_queues", "streams"}).Draw(t, "apply-to"),
			Definition: anyArguments(1).Draw(t, "definition"), Label: role(),
		})
	}
	return out
}

func TestOutputsHaveAllOfAnyTopologyOrNameIt(t *testing.T) {
	t.Parallel()
	for _, o := range outputs() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				vhost := rapid.OneOf(rapid.Just("/"), anyText()).Draw(t, "vhost")
				if err := o.check(anyTopology(t), vhost); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestInexpressibleObjects(t *testing.T) {
	t.Parallel()
	exchange := func(e topology.Exchange) topology.Topology {
		e.Type = topology.Topic
		return topology.Topology{Exchanges: []topology.Exchange{e}}
	}
	with := func(argument string, v any) topology.Topology {
		return exchange(topology.Exchange{Name: "e", Arguments: topology.Arguments{argument: v}})
	}
	queue := func(name string, a topology.Arguments) topology.Topology {
		return topology.Topology{Queues: []topology.Queue{{Name: name, Durable: true, Arguments: a}}}
	}
	policy := func(applyTo string, definition topology.Arguments) topology.Topology {
		return topology.Topology{Policies: []topology.Policy{{Name: "p", ApplyTo: applyTo, Definition: definition}}}
	}
	bound := func(source string) topology.Topology {
		return topology.Topology{Bindings: []topology.Binding{{
			Source: source, Destination: "q", DestinationType: topology.ToQueue,
			Arguments: topology.Arguments{"x-match": "all", "n": int64(-1), "list": []any{"a", int64(2)}},
		}}}
	}
	tilde := func(key string) topology.Topology {
		b := bound("e")
		b.Bindings[0].Key = key
		return b
	}
	for name, tc := range map[string]struct {
		of      topology.Topology
		missing string // the outputs that cannot express it
	}{
		"an internal exchange":                {exchange(topology.Exchange{Name: "e", Internal: true}), "terraform operator"},
		"an exchange with an alternate":       {with("alternate-exchange", "f"), ""},
		"an exchange with a number":           {with("hash", int64(1)), "terraform"},
		"a queue with @ in its name":          {queue("a@b", nil), "terraform"},
		"a queue with / in its name":          {queue("a/b", nil), ""},
		"a queue with a decomposed ü":         {queue("u\u0308", nil), "terraform"},
		"a queue with a long ttl":             {queue("q", topology.Arguments{"x-expires": int64(1) << 53}), ""},
		"a queue with a number beyond 2^53":   {queue("q", topology.Arguments{"n": int64(1)<<53 + 1}), "terraform operator"},
		"a binding with headers of all types": {bound("e"), ""},
		"a binding from a name with a slash":  {bound("a/b"), "terraform"},
		"a binding with ~ within its key":     {tilde("a~b"), "terraform operator"},
		"a binding with ~ at the end":         {tilde("a~"), ""},
		"a policy with a ttl":                 {policy("queues", topology.Arguments{"message-ttl": int64(5)}), ""},
		"a policy with digits":                {policy("all", topology.Arguments{"message-ttl": "5"}), "terraform"},
		"a policy with a list":                {policy("queues", topology.Arguments{"nodes": []any{"a"}}), "terraform"},
		"a policy with a bool":                {policy("all", topology.Arguments{"x": true}), "terraform"},
		"a policy for streams":                {policy("streams", topology.Arguments{"max-age": "1h"}), "operator"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cannot []string
			for _, o := range outputs() {
				_, missing, err := o.print(topology.Compiled{Name: "shop", Topology: tc.of}, "/")
				if err != nil {
					t.Fatal(err)
				}
				if len(missing) > 0 {
					cannot = append(cannot, o.name)
				}
			}
			if got := strings.Join(cannot, " "); got != tc.missing {
				t.Errorf("these cannot express it: %q; want %q", got, tc.missing)
			}
		})
	}
}
