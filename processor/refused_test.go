package processor_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message that even the unroutable queue does not take waits, unacknowledged,
// and whoever reads the log learns of it.
func TestWhatNothingTakesIsSaid(t *testing.T) {
	t.Parallel()
	s := newStage(t, parkAtOnce)
	for _, queue := range []string{"shop.slow.retry.1h", "work.dead", "shop.unroutable"} {
		if _, err := s.eyes.QueueDelete(queue, false, false, false); err != nil { // they are empty
			t.Fatal(err)
		}
	}
	p := s.processor(t)
	log := listen(p)
	run(t, p)
	s.publish(t, "shop.slow.failed", "@gone", amqp.Publishing{MessageId: "nowhere"})
	s.publish(t, "shop.slow.failed", "@work", amqp.Publishing{MessageId: "refused"})
	for _, id := range []string{"nowhere", "refused"} {
		log.says(t, "level=ERROR msg=\"the unroutable queue does not take the message, which waits; 'dlxctl plan' shows what is missing\" queue="+
			map[string]string{"nowhere": "gone", "refused": "work"}[id]+" message_id="+id)
	}
}
