package plan_test

import (
	"testing"

	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// A plan with a backoff for a queue in which publishers delay messages says that the delay ends.
func TestABackoffEndsADelay(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nname: shop\nbackoff: {standard: {tiers: [10s]}, rejected: {tiers: [10s], retryOn: [rejected]}}\n"
	waits := func(key string) topology.Arguments {
		return topology.Arguments{
			topology.ArgQueueType: topology.Quorum, topology.ArgMessageTTL: int64(2000),
			topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: key,
		}
	}
	const render = "\n  - {name: render, external: true, deadLetterBy: unmanaged}\n"
	for name, tc := range map[string]struct {
		file string
		key  string
		want string
	}{
		"a successor of a delay queue": {
			"queues:\n  - {name: delay.v2, replaces: delay, arguments: {x-message-ttl: 2000}, backoff: standard}" + render, "render",
			"messages that wait in delay for 2s come to render today; with the backoff standard they are retried, as failures; if publishers delay messages there, leave the queue as it is",
		},
		"a backoff that does not retry what expires": {
			"queues:\n  - {name: delay.v2, replaces: delay, arguments: {x-message-ttl: 2000}, backoff: rejected}" + render, "render",
			"messages that wait in delay for 2s come to render today; with the backoff rejected they become dead letters; if publishers delay messages there, leave the queue as it is",
		},
		"a work queue whose messages expire into a dead-letter queue": {
			"queues:\n  - {name: delay.v2, replaces: delay, arguments: {x-message-ttl: 2000}, backoff: standard}" + render, "delay.dlq", "",
		},
		"a warning that is accepted": {
			"accept: [ends-delay=delay.v2]\nqueues:\n  - {name: delay.v2, replaces: delay, arguments: {x-message-ttl: 2000}, backoff: standard}" + render,
			"render", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var have topology.Topology
			for name, args := range map[string]topology.Arguments{"delay": waits(tc.key), "render": nil, "delay.dlq": nil} {
				have.Queues = append(have.Queues, topology.Queue{Name: name, Durable: true, Arguments: args})
			}
			have.Sort()
			got := ""
			state := topology.State{Version: "4.3.6", Have: have}
			for _, w := range plan.Make(spectest.Compile(t, head+tc.file), state, plan.Options{}).Warnings {
				if w.Name == "ends-delay" {
					got += w.Text
				}
			}
			if got != tc.want {
				t.Errorf("warned: %q, want %q", got, tc.want)
			}
		})
	}
}
