package route_test

import (
	"fmt"
	"testing"

	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// large is a virtual host with 5,000 queues that dead-letter, 20,000 bindings from exchanges of a
// type, and 40 policies. With few exchanges each has many bindings.
func large(exchangeType string, exchanges int) topology.State {
	var t topology.Topology
	for i := range exchanges {
		t.Exchanges = append(t.Exchanges, exchange(fmt.Sprint("x", i), exchangeType))
	}
	for i := range 5000 {
		t.Queues = append(t.Queues, deadLettering(fmt.Sprintf("team%d.queue%d", i%20, i), "x0"))
		for n := range 4 {
			b := bind(fmt.Sprint("x", (i+n)%exchanges), fmt.Sprintf("team%d.*.event%d", i%20, i*n), t.Queues[i].Name)
			if exchangeType == topology.Headers {
				b.Arguments = topology.Arguments{"team": int64(i % 20), "event": fmt.Sprint(i * n), "kind": "order"}
			}
			t.Bindings = append(t.Bindings, b)
		}
	}
	for i := range 40 {
		t.Policies = append(t.Policies, topology.Policy{
			Name: fmt.Sprint("p", i), Pattern: fmt.Sprintf(`^team%d\.`, i), ApplyTo: "queues", Priority: int64(i),
			Definition: topology.Arguments{"dead-letter-exchange": "x0"},
		})
	}
	return topology.State{Version: "4.3.6", Have: t}
}

func BenchmarkNew(b *testing.B) {
	state := large(topology.Topic, 50)
	for b.Loop() {
		route.New(state)
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, exchangeType := range topology.ExchangeTypes() {
		for _, exchanges := range []int{50, 1} {
			b.Run(fmt.Sprintf("%s/exchanges=%d", exchangeType, exchanges), func(b *testing.B) {
				router := route.New(large(exchangeType, exchanges))
				headers := map[string]any{"team": int32(7), "event": "4007", "kind": "order"}
				for b.Loop() {
					router.Publish("x0", "team7.x.event4007", headers)
				}
			})
		}
	}
}

func BenchmarkDeadLetter(b *testing.B) {
	router := route.New(large(topology.Topic, 1))
	m := router.Publish("x0", "team7.x.event4007", nil).Message
	for b.Loop() {
		router.DeadLetter("team7.queue7", m, route.Rejected)
	}
}
