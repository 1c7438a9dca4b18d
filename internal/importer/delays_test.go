package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/importer"
	"github.com/dlxctl/dlxctl/topology"
)

// withDelays returns a virtual host with the delay queues of a framework, as its installer declares
// them, and a work queue whose messages may be delayed. queue has one name for each bit.
func withDelays(queue, delivery string, strategy topology.Arguments) topology.State {
	const bits = 28
	name := func(bit int) string { return fmt.Sprintf(queue, bit) }
	have := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "sales", Type: topology.Topic, Durable: true},
			{Name: delivery, Type: topology.Topic, Durable: true},
			{Name: "error", Type: topology.Fanout, Durable: true},
		},
		Queues: []topology.Queue{
			{Name: "error", Durable: true},
			{Name: "sales", Durable: true},
			{Name: "sales.retry", Durable: true, Arguments: topology.Arguments{
				topology.ArgMessageTTL: int64(5000), topology.ArgDeadLetterExchange: "", topology.ArgDeadLetterRoutingKey: "sales",
			}},
		},
		Bindings: []topology.Binding{
			{Source: "sales", Destination: "sales", DestinationType: topology.ToQueue, Key: "#.sales"},
			{Source: delivery, Destination: "sales", DestinationType: topology.ToExchange, Key: "#.sales"},
			{Source: delivery, Destination: "error", DestinationType: topology.ToExchange, Key: "#.error"},
			{Source: "error", Destination: "error", DestinationType: topology.ToQueue},
		},
		Policies: []topology.Policy{{Name: "retry", Pattern: "^sales$", ApplyTo: "queues", Definition: topology.Arguments{
			topology.KeyDeadLetterExchange: "", topology.KeyDeadLetterRoutingKey: "sales.retry",
		}}},
	}
	for bit := range bits {
		next, of := delivery, topology.ToExchange
		if bit > 0 {
			next = name(bit - 1)
		}
		before := strings.Repeat("*.", bits-1-bit)
		have.Exchanges = append(have.Exchanges, topology.Exchange{Name: name(bit), Type: topology.Topic, Durable: true})
		have.Queues = append(have.Queues, topology.Queue{Name: name(bit), Durable: true, Arguments: strategy.With(
			topology.ArgMessageTTL, int64(1000)<<bit).With(topology.ArgDeadLetterExchange, next)})
		have.Bindings = append(have.Bindings,
			topology.Binding{Source: name(bit), Destination: name(bit), DestinationType: topology.ToQueue, Key: before + "1.#"},
			topology.Binding{Source: name(bit), Destination: next, DestinationType: of, Key: before + "0.#"})
	}
	return topology.State{VHost: "shop", Version: "4.3.6", Have: have}
}

// The delay queues of NServiceBus and Celery are named as such, in one line, and get no proposal.
// They are not retry queues: their TTLs are in no backoff, and their exchanges are not in the file.
func TestDelaysOfFrameworks(t *testing.T) {
	t.Parallel()
	quorum := topology.Arguments{
		topology.ArgQueueType: topology.Quorum, topology.ArgOverflow: topology.RejectPublish,
		topology.ArgDeadLetterStrategy: topology.AtLeastOnce,
	}
	const lossy = " A delayed message is lost if the next queue cannot take it (dead-letters-at-most-once)."
	for name, tc := range map[string]struct{ queue, delivery, line string }{
		"NServiceBus": {
			"nsb.v2.delay-level-%02d", "nsb.v2.delay-delivery",
			"nsb.v2.delay-level-* (28 queues, each with an exchange): delayed messages of NServiceBus wait here, in one queue after the other. NServiceBus declares them, and needs them unchanged.",
		},
		"NServiceBus, classic queues": {
			"nsb.delay-level-%02d", "nsb.delay-delivery",
			"nsb.delay-level-* (28 queues, each with an exchange): delayed messages of NServiceBus wait here, in one queue after the other. NServiceBus declares them, and needs them unchanged." + lossy,
		},
		"Celery": {
			"celery_delayed_%d", "celery_delayed_delivery",
			"celery_delayed_* (28 queues, each with an exchange): delayed messages of Celery wait here, in one queue after the other. Celery declares them, and needs them unchanged.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := quorum
			if strings.HasSuffix(tc.line, lossy) {
				args = topology.Arguments{topology.ArgQueueType: topology.Classic}
			}
			state := withDelays(tc.queue, tc.delivery, args)
			result, _ := imported(t, state, importer.Options{})
			file := all(result.Files)
			for _, want := range []string{
				"# Delay queues, which this file does not declare:\n#   " + tc.line + "\n",
				"# Retry queues, which this file does not declare:\n#   sales.retry: ",
				"  as-today: {tiers: [{delay: 5s, attempts: 5}]}\n",
				"#   error: keeps dead letters, as its name says: only delay queues dead-letter to it.\n",
				"  - {name: " + tc.delivery + ", type: topic, external: true}\n",
			} {
				if !strings.Contains(file, want) {
					t.Errorf("the file lacks %q", want)
				}
			}
			if n := strings.Count(file, fmt.Sprintf(tc.queue, 3)); n > 0 || result.Queues != 1 {
				t.Errorf("the file has %d queues, and names a delay queue %d times", result.Queues, n)
			}
			if t.Failed() {
				t.Log(file)
			}
			checkUnchanged(t, state, importer.Options{})
		})
	}
}
