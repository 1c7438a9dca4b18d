package topology_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dlxctl/dlxctl/topology"
)

func TestBindingString(t *testing.T) {
	t.Parallel()
	mark := topology.Arguments{"x-managed-by": "dlxctl/shop"}
	for want, b := range map[string]topology.Binding{
		"events -> billing (order.#)": {
			Source: "events", Destination: "billing", DestinationType: "queue",
			Key: "order.#", Arguments: mark,
		},
		"events -> billing": {
			Source: "events", Destination: "billing", DestinationType: "queue",
			Arguments: mark,
		},
		"shop.dlx -> exchange:dead (count=-1)": {
			Source: "shop.dlx", Destination: "dead", DestinationType: "exchange",
			Arguments: mark.With("count", int64(-1)).With("x-match", "all"),
		},
		`docs -> pdf (format="pdf", pages=2)`: {
			Source: "docs", Destination: "pdf", DestinationType: "queue",
			Arguments: topology.Arguments{"pages": int64(2), "format": "pdf"},
		},
		`docs -> pdf (format="pdf")`: {
			Source: "docs", Destination: "pdf", DestinationType: "queue", Key: "unused",
			Arguments: topology.Arguments{"format": "pdf"},
		},
		"events -> exchange:orders.in (#)": {
			Source: "events", Destination: "orders.in", DestinationType: "exchange",
			Key: "#",
		},
		"shop.return -> crm.inbox (@crm.inbox)": {
			Source: "shop.return", Destination: "crm.inbox", DestinationType: "queue",
			Key: topology.AddressKey("crm.inbox"),
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			if got := b.String(); got != want {
				t.Errorf("binding is %q, want %q", got, want)
			}
		})
	}
}

// A binding's identity is equal for equal bindings only, whatever characters
// its names hold.
func TestBindingIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a" \\:{}]{0,3}`)
		draw := func(name string) topology.Binding {
			return topology.Binding{
				Source: text.Draw(t, name), Destination: text.Draw(t, name), Key: text.Draw(t, name),
				DestinationType: rapid.SampledFrom([]string{topology.ToQueue, topology.ToExchange}).Draw(t, name),
				Arguments: rapid.SampledFrom([]topology.Arguments{
					nil, {}, {"count": int64(1)}, {"count": "1"}, {"x-managed-by": "dlxctl/shop"},
				}).Draw(t, name),
			}
		}
		a, b := draw("a"), draw("b")
		a.Label.Queue = "not part of it"
		same := a.Source == b.Source && a.Destination == b.Destination && a.Key == b.Key &&
			a.DestinationType == b.DestinationType && a.Arguments.Equal(b.Arguments)
		if got := a.Identity() == b.Identity(); got != same {
			t.Fatalf("%+v and %+v have one identity: %v", a, b, got)
		}
	})
}

func TestIsRetryQueueName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"shop.standard.retry.10s":    true,
		"shop.standard.retry.1d12h":  true,
		"shop.retry.retry.0s":        true,
		"shop.gone.retry.10s":        true,
		"shop.standard.failed":       false,
		"shop.standard.retry":        false,
		"shop.retry.10s":             false,
		"shop..retry.10s":            false,
		"shop.standard.x.retry.10s":  false,
		"shops.standard.retry.10s":   false,
		"my.shop.standard.retry.10s": false,
		"shop":                       false,
		"":                           false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := topology.IsRetryQueueName("shop", name); got != want {
				t.Errorf("%q is a retry queue's name: %v", name, got)
			}
		})
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args   topology.Arguments
		owner  string
		marked bool
	}{
		"our mark":              {topology.Arguments{"x-managed-by": topology.OwnerMark("shop")}, "shop", true},
		"another tool's mark":   {topology.Arguments{"x-managed-by": "terraform"}, "terraform", false},
		"a mark that is number": {topology.Arguments{"x-managed-by": int64(1)}, "", false},
		"no mark":               {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner, marked := topology.Owner(tc.args)
			if owner != tc.owner || marked != tc.marked {
				t.Errorf("owner is %q, %v", owner, marked)
			}
		})
	}
}

func TestBackoffRetries(t *testing.T) {
	t.Parallel()
	some := topology.Backoff{RetryOn: []topology.Reason{topology.ReasonRejected}}
	for _, tc := range []struct {
		name   string
		loop   topology.Backoff
		reason topology.Reason
		want   bool
	}{
		{"a reason that is named", some, topology.ReasonRejected, true},
		{"a reason that is not", some, topology.ReasonExpired, false},
		{"an unknown reason", some, topology.ReasonUnknown, true},
		{"any reason if none is named", topology.Backoff{}, topology.ReasonMaxLength, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.loop.Retries(tc.reason); got != tc.want {
				t.Errorf("retries %s: %v", tc.reason, got)
			}
		})
	}
}

func TestSortGivesOneOrder(t *testing.T) {
	t.Parallel()
	want := topology.Compiled{
		Topology: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "a"}, {Name: "b"}},
			Queues:    []topology.Queue{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			Bindings:  []topology.Binding{{Source: "a", Key: "1"}, {Source: "a", Key: "2"}, {Source: "b", Key: "1"}},
			Policies:  []topology.Policy{{Name: "a"}, {Name: "b"}},
		},
		Backoffs:   []topology.Backoff{{Name: "a"}, {Name: "b"}},
		WorkQueues: []topology.WorkQueue{{Name: "z"}, {Name: "a"}}, // the order of the file
	}
	got := topology.Compiled{
		Topology: topology.Topology{
			Exchanges: slices.Clone(want.Exchanges), Queues: slices.Clone(want.Queues), Bindings: slices.Clone(want.Bindings),
			Policies: slices.Clone(want.Policies),
		}, Backoffs: slices.Clone(want.Backoffs), WorkQueues: slices.Clone(want.WorkQueues),
	}
	slices.Reverse(got.Exchanges)
	slices.Reverse(got.Queues)
	slices.Reverse(got.Bindings)
	slices.Reverse(got.Policies)
	slices.Reverse(got.Backoffs)
	got.Sort()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	top := topology.Compiled{
		Backoffs:   []topology.Backoff{{Name: "standard", FailedQueue: "shop.standard.failed"}},
		WorkQueues: []topology.WorkQueue{{Name: "billing", Backoff: "standard"}},
	}
	if l, ok := top.Backoff("standard"); !ok || l.FailedQueue != "shop.standard.failed" {
		t.Errorf("loop standard is %+v, %v", l, ok)
	}
	if w, ok := top.WorkQueue("billing"); !ok || w.Backoff != "standard" {
		t.Errorf("work queue billing is %+v, %v", w, ok)
	}
	if _, ok := top.Backoff("none"); ok {
		t.Error("there is a loop none")
	}
	if _, ok := top.WorkQueue("absent"); ok {
		t.Error("there is a work queue absent")
	}
}
