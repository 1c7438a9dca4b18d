package importer_test

import (
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

// crowded is a virtual host with queues and four times as many bindings, as teams make them by
// hand. Of seven work queues four do not dead-letter, one has a policy for that, one dead-letters
// by argument to a queue that keeps dead letters, and one has a retry queue.
func crowded(queues int) topology.State {
	s := topology.State{Version: "4.3.6", VHost: "/"}
	have := &s.Have
	exchange := func(name, typ string) {
		have.Exchanges = append(have.Exchanges, topology.Exchange{Name: name, Type: typ, Durable: true})
	}
	queue := func(name string, args topology.Arguments) {
		args["x-queue-type"] = topology.Classic
		have.Queues = append(have.Queues, topology.Queue{Name: name, Durable: true, Arguments: args})
	}
	bind := func(source, destination, key string) {
		have.Bindings = append(have.Bindings, topology.Binding{
			Source: source, Destination: destination, DestinationType: topology.ToQueue, Key: key,
		})
	}
	exchange("dlx", topology.Direct)
	for e := range 50 {
		exchange(fmt.Sprintf("events-%02d", e), topology.Topic)
		have.Policies = append(have.Policies, topology.Policy{
			Name: fmt.Sprintf("policy-%02d", e), Pattern: fmt.Sprintf(`^team-%02d\.kept\.`, e), ApplyTo: "queues",
			Definition: topology.Arguments{"dead-letter-exchange": "dlx", "dead-letter-routing-key": "by-policy"},
		})
	}
	queue("by-policy.dead", topology.Arguments{})
	bind("dlx", "by-policy.dead", "by-policy")
	work := func(name string, i int, args topology.Arguments) {
		queue(name, args)
		for k := range 5 {
			bind(fmt.Sprintf("events-%02d", (i+k)%50), name, fmt.Sprintf("team.%d.*.%d", i, k))
		}
	}
	for i := 0; len(have.Queues) < queues; i++ {
		name := fmt.Sprintf("team-%02d.queue-%04d", i%50, i)
		dead := topology.Arguments{topology.ArgDeadLetterExchange: "dlx", "x-dead-letter-routing-key": name}
		switch i % 7 {
		case 4:
			work(fmt.Sprintf("team-%02d.kept.queue-%04d", i%50, i), i, topology.Arguments{})
		case 5:
			work(name, i, dead)
			queue(name+".dead", topology.Arguments{})
			bind("dlx", name+".dead", name)
		case 6:
			work(name, i, dead)
			queue(name+".retry", topology.Arguments{
				"x-message-ttl": int64(30000), topology.ArgDeadLetterExchange: "", "x-dead-letter-routing-key": name,
			})
			bind("dlx", name+".retry", name)
		default:
			work(name, i, topology.Arguments{})
		}
	}
	for i := 0; len(have.Bindings) < 4*queues; i++ {
		bind(fmt.Sprintf("events-%02d", i%50), have.Queues[1+i%(queues-1)].Name, fmt.Sprintf("more.%d", i))
	}
	have.Sort()
	s.QueuePolicies = map[string]string{}
	policies := policy.All(s)
	for _, q := range have.Queues {
		if p, ok := policies.For(q); ok {
			s.QueuePolicies[q.Name] = p.Name
		}
	}
	return s
}

// BenchmarkExistingBroker audits and imports a large virtual host, after it was read.
func BenchmarkExistingBroker(b *testing.B) {
	state := crowded(5000)
	b.Run("audit", func(b *testing.B) {
		for b.Loop() {
			if r := audit.Run(audit.Input{State: state}); len(r.Findings) == 0 {
				b.Fatal("audit finds nothing")
			}
		}
	})
	b.Run("import", func(b *testing.B) {
		for b.Loop() {
			if _, err := importer.Import(state, importer.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
