package migrate_test

import (
	"slices"
	"testing"

	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/topology"
)

// Canaries are sent only into queues from which they come home and reach no other queue.
func TestCanaryPath(t *testing.T) {
	t.Parallel()
	queue := func(name string, args topology.Arguments) topology.Queue {
		return topology.Queue{Name: name, Durable: true, Arguments: args.With("x-queue-type", "classic")}
	}
	bound := func(source, queue string) topology.Binding {
		return topology.Binding{Source: source, Destination: queue, DestinationType: topology.ToQueue}
	}
	ttl := topology.Arguments{"x-message-ttl": int64(1000), "x-dead-letter-exchange": ""}
	first := queue("first", ttl.With("x-dead-letter-exchange", "onward"))
	for name, tc := range map[string]struct {
		objects []topology.Object
		in      string
		usage   topology.Usage
		last    []string
		why     string
	}{
		"a retry queue": {objects: []topology.Object{queue("shared", ttl)}, in: "shared", last: []string{"shared"}},
		"two in a row": {
			objects: []topology.Object{first, queue("shared", ttl), bound("onward", "shared")},
			in:      "first", last: []string{"shared"},
		},
		"a copy for another queue": {
			objects: []topology.Object{
				first, queue("shared", ttl), queue("other", nil), bound("onward", "other"), bound("onward", "shared"),
			},
			in: "first", why: "it could come to other",
		},
		"a key of its own": {
			objects: []topology.Object{queue("shared", ttl.With("x-dead-letter-routing-key", "old"))}, in: "shared",
			why: "it could come to old",
		},
		"consumers": {
			objects: []topology.Object{queue("shared", ttl)}, in: "shared", usage: topology.Usage{Consumers: 1},
			why: "shared has 1 consumer",
		},
		"no time to live": {
			objects: []topology.Object{queue("shared", ttl.Without("x-message-ttl"))}, in: "shared",
			why: "shared has no x-message-ttl",
		},
		"a long time to live": {
			objects: []topology.Object{queue("shared", ttl.With("x-message-ttl", int64(86_400_001)))}, in: "shared",
			why: "shared has an x-message-ttl of more than a day",
		},
		"priorities": {
			objects: []topology.Object{queue("shared", ttl.With("x-max-priority", int64(9)))}, in: "shared",
			why: "shared has priorities",
		},
		"a limit by a policy": {
			objects: []topology.Object{queue("shared", ttl), topology.Policy{
				Name: "p", Pattern: "shared", ApplyTo: "queues", Definition: topology.Arguments{"max-length": int64(10)},
			}},
			in: "shared", why: "shared has a length limit",
		},
		"gone": {objects: nil, in: "shared", why: "the default exchange does not lead there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := topology.State{Version: "4.3.6", Usage: map[string]topology.Usage{"shared": tc.usage}}
			state.Have.Exchanges = []topology.Exchange{
				{Name: "retry", Type: "headers", Durable: true}, {Name: "onward", Type: "fanout", Durable: true},
			}
			old := topology.Arguments{"x-dead-letter-exchange": "retry", "x-dead-letter-routing-key": "old"}
			state.Have.Queues = []topology.Queue{queue("old", old)}
			state.Have.Bindings = []topology.Binding{bound("retry", tc.in)}
			for _, o := range tc.objects {
				switch o := o.(type) {
				case topology.Queue:
					state.Have.Queues = append(state.Have.Queues, o)
				case topology.Binding:
					state.Have.Bindings = append(state.Have.Bindings, o)
				case topology.Exchange:
					state.Have.Exchanges = append(state.Have.Exchanges, o)
				case topology.Policy:
					state.Have.Policies = append(state.Have.Policies, o)
				}
			}
			last, why := migrate.CanaryPath(migrate.Move{Topology: "shop", Legacy: "old", New: "old.v2"}, state, tc.in)
			if why != tc.why || why == "" && !slices.Equal(last, tc.last) {
				t.Errorf("it comes home from %q, %q; want %q, %q", last, why, tc.last, tc.why)
			}
		})
	}
}
