package try

import (
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/topology"
)

// A virtual host in use is never taken for an empty one.
func TestHolds(t *testing.T) {
	t.Parallel()
	builtIn := []topology.Exchange{{Name: "amq.direct"}, {Name: "amq.topic"}}
	for want, have := range map[string]topology.Topology{
		"":               {Exchanges: builtIn, Policies: []topology.Policy{{Name: "production"}}},
		"queue orders":   {Exchanges: builtIn, Queues: []topology.Queue{{Name: "orders"}}},
		"exchange bus":   {Exchanges: append(builtIn, topology.Exchange{Name: "bus"})},
		"binding a -> b": {Bindings: []topology.Binding{{Source: "a", Destination: "b", DestinationType: topology.ToQueue}}},
		"queue a and 2 more": {
			Queues: []topology.Queue{{Name: "a"}, {Name: "b"}}, Exchanges: []topology.Exchange{{Name: "bus"}},
		},
	} {
		if got := holds(topology.State{Have: have}); got != want {
			t.Errorf("holds %q, want %q", got, want)
		}
	}
}

// Only what a try can have left is proposed to be deleted, with the hazards that destroy has then.
func TestWhatMayBeLeftByAKilledTry(t *testing.T) {
	t.Parallel()
	own := topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("shop")}
	builtIn := topology.Exchange{Name: "amq.direct"}
	for name, tc := range map[string]struct {
		have topology.Topology
		want bool
	}{
		"own objects": {topology.Topology{
			Exchanges: []topology.Exchange{builtIn, {Name: "events", Arguments: own}},
			Queues:    []topology.Queue{{Name: "billing", Arguments: own}},
		}, true},
		"a queue of another team": {topology.Topology{
			Queues: []topology.Queue{{Name: "a", Arguments: own}, {Name: "b"}},
		}, false},
		"the lock of a run": {topology.Topology{
			Queues: []topology.Queue{{Name: "shop.lock", Exclusive: true}},
		}, false},
		"an exchange of another topology": {topology.Topology{Exchanges: []topology.Exchange{
			{Name: "events", Arguments: topology.Arguments{topology.ArgManagedBy: topology.OwnerMark("mail")}},
		}}, false},
	} {
		if got := isAllOf(topology.State{Have: tc.have}, "shop"); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
	h := Host{Endpoint: broker.Endpoint{VHost: "ci empty"}, cluster: "production"}
	const want = "dlxctl destroy --vhost 'ci empty' --allow drops-routing --wait=1m (with a file that does not name another cluster than this one)"
	if got := h.destroying(topology.DropsRouting); got != want {
		t.Errorf("prints %s, want %s", got, want)
	}
}

// A scratch virtual host without a queue may have been made a moment ago.
func TestIsYoung(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 18, 21, 41, 0, time.UTC)
	const name = "dlxctl-try-my-shop-20261122t182141-z4bnrowv"
	for after, want := range map[time.Duration]bool{
		0: true, 59 * time.Second: true, -5 * time.Second: true, time.Minute: false,
	} {
		if got := isYoung(name, now.Add(after)); got != want {
			t.Errorf("%s later it is young: %v", after, got)
		}
	}
	for _, odd := range []string{"dlxctl-try-", "dlxctl-try-shop", "x", ""} {
		if isYoung(odd, now) {
			t.Errorf("%q is young", odd)
		}
	}
}
