package importer_test

import (
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/topology"
)

// large makes a virtual host with many queues, a policy, and dead-lettering by argument for some.
func large(queues, bindings int) topology.State {
	s := topology.State{VHost: "shop", Version: "4.3.6"}
	for i := range 20 {
		s.Have.Exchanges = append(s.Have.Exchanges, topology.Exchange{
			Name: fmt.Sprintf("events.%d", i), Type: topology.Topic, Durable: true,
		})
	}
	s.Have.Exchanges = append(s.Have.Exchanges, topology.Exchange{Name: "failures", Type: topology.Direct, Durable: true})
	for i := range queues {
		q := topology.Queue{
			Name: fmt.Sprintf("team%d.queue%d", i%50, i), Durable: true,
			Arguments: topology.Arguments{topology.ArgQueueType: topology.Classic},
		}
		if i%3 == 0 {
			q.Arguments[topology.ArgDeadLetterExchange] = "failures"
		}
		s.Have.Queues = append(s.Have.Queues, q)
	}
	for i := range bindings {
		s.Have.Bindings = append(s.Have.Bindings, topology.Binding{
			Source: fmt.Sprintf("events.%d", i%20), Destination: s.Have.Queues[i%queues].Name,
			DestinationType: topology.ToQueue, Key: fmt.Sprintf("order.%d.*", i),
		})
	}
	s.Have.Policies = []topology.Policy{{
		Name: "ttl", Pattern: "^team1[.]", ApplyTo: "queues", Definition: topology.Arguments{"max-length": int64(100000)},
	}}
	s.Have.Sort()
	return s
}

// BenchmarkImport imports 5,000 queues with 20,000 bindings.
func BenchmarkImport(b *testing.B) {
	state := large(5000, 20000)
	for b.Loop() {
		if _, err := importer.Import(state, importer.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A large virtual host is imported as a small one is, and one file has room for it.
func TestImportOfThousandsOfQueues(t *testing.T) {
	t.Parallel()
	state := large(5000, 20000)
	checkUnchanged(t, state, importer.Options{})
}
