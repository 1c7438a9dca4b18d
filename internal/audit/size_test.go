package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/topology"
)

func allRules() []string {
	var out []string
	for _, r := range audit.Rules() {
		out = append(out, r.ID)
	}
	return out
}

// big returns a virtual host with many queues: topic bindings, dead-letter queues, and loops.
func big(queues, bindings int) topology.State {
	var have topology.Topology
	have.Exchanges = []topology.Exchange{
		{Name: "events", Type: topology.Topic, Durable: true},
		{Name: "dlx", Type: topology.Direct, Durable: true},
		{Name: "back", Type: topology.Topic, Durable: true},
	}
	for i := range queues / 2 {
		name := fmt.Sprint("service", i%50, ".queue", i)
		args := topology.Arguments{topology.ArgQueueType: topology.Quorum, topology.ArgDeadLetterExchange: "dlx"}
		switch i % 3 {
		case 1:
			args[topology.ArgDeadLetterRoutingKey] = name
		case 2:
			args[topology.ArgDeadLetterExchange], args[topology.ArgDeadLetterRoutingKey] = "", name+".dead"
		}
		have.Queues = append(have.Queues, topology.Queue{Name: name, Durable: true, Arguments: args},
			topology.Queue{
				Name: name + ".dead", Durable: true, Arguments: topology.Arguments{topology.ArgQueueType: topology.Quorum},
			})
		have.Bindings = append(have.Bindings, topology.Binding{
			Source: "dlx", Destination: name + ".dead", DestinationType: topology.ToQueue, Key: name,
		})
	}
	for i := len(have.Bindings); i < bindings; i++ {
		have.Bindings = append(have.Bindings, topology.Binding{
			Source: "events", Destination: have.Queues[2*(i%(queues/2))].Name, DestinationType: topology.ToQueue,
			Key: fmt.Sprintf("domain%d.*.event%d", i%40, i),
		})
	}
	for i := range 30 {
		have.Policies = append(have.Policies, topology.Policy{
			Name: fmt.Sprint("p", i), Pattern: fmt.Sprintf("^service%d\\.", i), ApplyTo: "queues", Priority: int64(i),
			Definition: topology.Arguments{"max-length": int64(100000)},
		})
	}
	return topology.State{Version: "4.3.6", VHost: "/", Have: have}
}

// Each of 150 queues dead-letters to all of them. To try a fix for each would take minutes.
func TestManyHopsOfDeadLetters(t *testing.T) {
	t.Parallel()
	state := topology.State{Version: "4.3.6", VHost: "/"}
	state.Have.Exchanges = []topology.Exchange{{Name: "all", Type: topology.Fanout, Durable: true}}
	for i := range 150 {
		q := topology.Queue{Name: fmt.Sprint("q", i), Arguments: topology.Arguments{topology.ArgDeadLetterExchange: "all"}}
		state.Have.Queues = append(state.Have.Queues, q)
		state.Have.Bindings = append(state.Have.Bindings,
			topology.Binding{Source: "all", Destination: q.Name, DestinationType: topology.ToQueue})
	}
	if r := audit.Run(audit.Input{State: state}); !strings.Contains(strings.Join(r.Unseen, "\n"), "which fixes help") {
		t.Errorf("it tries fixes for all of them; not seen: %q", r.Unseen)
	}
}

func BenchmarkAudit(b *testing.B) {
	state := big(5000, 20000)
	for b.Loop() {
		audit.Run(audit.Input{State: state})
	}
}
