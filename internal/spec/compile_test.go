package spec

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dlxctl/dlxctl/internal/goldentest"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

// shop is the topology of the design's examples: a file with one queue, billing.
func shop(typ string, tiers ...time.Duration) *Spec {
	b := Backoff{Name: "standard", Pos: Pos{"shop.yaml", 4, 3}}
	for _, d := range tiers {
		b.Tiers = append(b.Tiers, Tier{Delay: d, Attempts: 1})
	}
	return &Spec{
		Name: "shop", CountHeader: "count", Type: typ, Backoffs: []Backoff{b},
		Exchanges: []Exchange{{Name: "events", Type: topology.Topic}},
		Queues: []Queue{{
			Name: "billing", Type: typ, Backoff: "standard", Dead: Dead{Queue: "billing.dead"},
			Bindings: []Binding{{Exchange: "events", Keys: []string{"order.placed", "order.*.cancelled"}}},
			Owner:    "team-billing", Severity: "page", Pos: Pos{"shop.yaml", 8, 5},
		}},
	}
}

// fataler is what a test and a property test have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func mustCompile(t fataler, s *Spec) topology.Compiled {
	t.Helper()
	out, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCompileGolden(t *testing.T) {
	t.Parallel()
	limit := int64(5)
	rich := shop(topology.Quorum, 10*time.Second, time.Minute, 10*time.Minute)
	rich.VHost = "/"
	rich.Exchanges = append(rich.Exchanges,
		Exchange{Name: "docs", Type: topology.Headers},
		Exchange{Name: "legacy.bus", External: true},
		Exchange{
			Name: "orders.in", Type: topology.Direct,
			Bindings: []Binding{{Exchange: "events", Keys: []string{"order.#"}}},
		})
	rich.Queues[0].DeliveryLimit = &limit
	rich.Queues[0].Bindings = append(rich.Queues[0].Bindings, Binding{
		Exchange: "docs", Keys: []string{""},
		Arguments: topology.Arguments{"x-match": "any", "format": "pdf", "pages": int64(2)},
	})
	rich.Backoffs = append(rich.Backoffs, Backoff{Name: "unused", Tiers: []Tier{{Delay: time.Second, Attempts: 1}}})
	rich.Queues = append(rich.Queues,
		Queue{
			Name: "reports", Type: topology.Classic, Backoff: "standard", Dead: Dead{Queue: "shop.dead"},
			Arguments: topology.Arguments{"x-max-length": int64(100000)},
			Bindings:  []Binding{{Exchange: "events", Keys: []string{"report.#"}}}, Severity: "ticket",
		},
		Queue{
			Name: "audit", Type: topology.Quorum, Backoff: "none", Dead: Dead{Queue: "audit.dead"},
			Bindings: []Binding{{Exchange: "legacy.bus", Keys: []string{"#"}}}, Severity: "ticket",
		})

	policy := shop(topology.Quorum, time.Minute)
	policy.Queues[0].ByPolicy, policy.Queues[0].DeliveryLimit = true, &limit
	policy.Queues[0].Arguments = topology.Arguments{"x-max-priority-of-mine": int64(1)}
	policy.Queues = append(policy.Queues, Queue{
		Name: "crm.inbox", External: true, ByPolicy: true, Backoff: "standard", Dead: Dead{Queue: "crm.inbox.dead"},
		Bindings: []Binding{{Exchange: "events", Keys: []string{"crm"}}},
	})

	for name, s := range map[string]*Spec{
		"policy":  policy,
		"quorum":  shop(topology.Quorum, 10*time.Second, time.Minute, 10*time.Minute),
		"classic": shop(topology.Classic, 10*time.Second, time.Minute, 10*time.Minute),
		"rich":    rich,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := mustCompile(t, s)
			var text bytes.Buffer
			if err := topology.WriteText(&text, out); err != nil {
				t.Fatal(err)
			}
			goldentest.Check(t, "testdata/compile/"+name+".txt", text.Bytes())
			var doc bytes.Buffer
			if err := jsondoc.Write(&doc, out); err != nil {
				t.Fatal(err)
			}
			goldentest.Check(t, "testdata/compile/"+name+".json", doc.Bytes())
		})
	}
}

func TestCompileWorkQueueArguments(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		typ  string
		args topology.Arguments
		want topology.Arguments // strategy and overflow
	}{
		"a quorum queue dead-letters at least once": {
			topology.Quorum, nil,
			topology.Arguments{"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
		},
		"a quorum queue with reject-publish does too": {
			topology.Quorum,
			topology.Arguments{"x-overflow": "reject-publish"},
			topology.Arguments{"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
		},
		"a queue that drops its head cannot": {
			topology.Quorum,
			topology.Arguments{"x-overflow": "drop-head"},
			topology.Arguments{"x-overflow": "drop-head"},
		},
		"at-most-once leaves overflow to the broker": {
			topology.Quorum,
			topology.Arguments{"x-dead-letter-strategy": "at-most-once"},
			topology.Arguments{"x-dead-letter-strategy": "at-most-once"},
		},
		"at-least-once brings reject-publish": {
			topology.Quorum,
			topology.Arguments{"x-dead-letter-strategy": "at-least-once"},
			topology.Arguments{"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
		},
		"both given stay": {
			topology.Quorum,
			topology.Arguments{"x-dead-letter-strategy": "at-most-once", "x-overflow": "reject-publish"},
			topology.Arguments{"x-dead-letter-strategy": "at-most-once", "x-overflow": "reject-publish"},
		},
		"a classic queue has neither": {topology.Classic, nil, topology.Arguments{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop(topology.Quorum, time.Second)
			s.Queues[0].Type, s.Queues[0].Arguments = tc.typ, tc.args
			q := queueOf(t, mustCompile(t, s), "billing")
			got := topology.Arguments{}
			for _, name := range []string{"x-dead-letter-strategy", "x-overflow"} {
				if v, ok := q.Arguments[name]; ok {
					got[name] = v
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("arguments (-want +got):\n%s", d)
			}
		})
	}
}

func queueOf(t *testing.T, out topology.Compiled, name string) topology.Queue {
	t.Helper()
	i := slices.IndexFunc(out.Queues, func(q topology.Queue) bool { return q.Name == name })
	if i < 0 {
		t.Fatalf("there is no queue %q", name)
	}
	return out.Queues[i]
}

// TestPlaces finds each declared object in its file: a binding at the line of its key.
func TestPlaces(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]Source{
		{Name: "shop.yaml", Data: []byte(`version: 1
name: shop
defaults: {backoff: none}
exchanges:
  - name: events
  - name: orders
    bindings: [{exchange: events, key: "order.#"}]
`)},
		{Name: "teams/billing.yaml", Data: []byte(`version: 1
queues:
  - name: billing
    bindings:
      - exchange: orders
        keys:
          - order.placed
          - order.paid
`)},
	}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, place := range c.Places {
		got[string(key.Kind)+" "+key.Name] = place.String()
	}
	for _, b := range c.Bindings {
		if place, ok := c.Places[b.ID()]; ok {
			delete(got, "binding "+b.ID().Name)
			got[b.String()] = place.String()
		}
	}
	want := map[string]string{
		"exchange events": "shop.yaml:5", "exchange orders": "shop.yaml:6",
		"events -> exchange:orders (order.#)": "shop.yaml:7", "queue billing": "teams/billing.yaml:3",
		"orders -> billing (order.placed)": "teams/billing.yaml:7", "orders -> billing (order.paid)": "teams/billing.yaml:8",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("places (-want +got):\n%s", d)
	}
}
