package try

import (
	"testing"
	"time"

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
