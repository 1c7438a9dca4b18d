package processor_test

import (
	"os"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/spec"
)

// The topology of a real pipeline, applied to an empty broker: a message sent to
// each of its routing keys, rejected until it dies, ends in the dead-letter queue
// of the queue that the key leads to.
func TestTheGenomicsPipeline(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	data, err := os.ReadFile("../../testdata/genomics/topology.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []string{"classic", "quorum"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"TYPE": typ, "TIER_1": "50ms", "TIER_2": "100ms", "TIER_3": "150ms"}
			s := newStageOf(t, spec.Source{Name: "topology.yaml", Data: data},
				func(name string) (string, bool) { v, ok := env[name]; return v, ok })
			run(t, s.processor(t))
			for _, w := range s.topology.WorkQueues {
				rejectAll(t, s, w.Name)
			}
			sent := 0
			for _, b := range s.topology.Bindings {
				if b.Source == "sda" {
					s.publish(t, "sda", b.Key, amqp091.Publishing{MessageId: b.Destination})
					sent++
				}
			}
			if sent != 14 {
				t.Fatalf("%d routing keys were tried, the pipeline has 14", sent)
			}
			for _, b := range s.topology.Bindings {
				if b.Source != "sda" {
					continue
				}
				m := s.bury(t, b.Destination+".dead")
				if m.MessageId != b.Destination || m.Headers["retry-routing-key"] != b.Key ||
					m.Headers["retry-attempts"] != int64(4) {
					t.Errorf("%s.dead holds %q with the headers %v", b.Destination, m.MessageId, m.Headers)
				}
			}
			s.publish(t, "sda.dead", "anything", amqp091.Publishing{MessageId: "stray"})
			if m := s.bury(t, "genomics.dead"); m.MessageId != "stray" {
				t.Errorf("genomics.dead holds %q", m.MessageId)
			}
			s.allEmpty(t)
		})
	}
}
