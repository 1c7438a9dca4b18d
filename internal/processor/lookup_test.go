package processor_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A queue that a newer file has added is retried, and becomes a dead letter, by a
// processor that was started with the old one.
func TestAQueueThatTheFileDoesNotKnow(t *testing.T) {
	t.Parallel()
	const file = `
version: 1
name: shop
defaults: {backoff: quick}
backoff:
  quick: {tiers: [0s]}
queues:
  - {name: work}
`
	s := newStage(t, file)
	p := s.processor(t)
	log := listen(t, p)
	run(t, p)
	newer, err := compile(file + "  - {name: third}\n")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, newer)
	s.publish(t, "", "third", amqp091.Publishing{MessageId: "a", Expiration: "3600000"})
	reject(t, s.take(t, "third"))
	m := s.take(t, "third")
	if m.Headers["count"] != int32(1) || m.Headers["retry-expiration"] != "3600000" {
		t.Errorf("it came back with %v", m.Headers)
	}
	reject(t, m)
	if m := s.bury(t, "third.dead"); m.Headers["count"] != int32(-1) || m.Headers["retry-expiration"] != "3600000" ||
		m.Expiration != "" {
		t.Errorf("it is a dead letter with %v", m.Headers)
	}
	log.says(t, `msg="dead-lettered message" queue=third`)

	// What the broker cannot route goes to the unroutable queue: a queue that does not exist, and a
	// generated queue.
	for _, key := range []string{"@fourth", "@shop.quick.failed"} {
		s.publish(t, "shop.quick.failed", key, amqp091.Publishing{MessageId: key})
		if m := s.bury(t, "shop.unroutable"); m.MessageId != key || m.Headers["retry-error"] == nil {
			t.Errorf("shop.unroutable holds %q with %v", m.MessageId, m.Headers)
		}
	}
	s.allEmpty(t)
}
