package processor_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// docs/scale.md tells users to write this into advanced.config.
const fastDeadLettering = "[{rabbit, [{dead_letter_worker_consumer_prefetch, 512}]}]."

// A queue keeps the setting that it began to dead-letter with, and takes that of advanced.config
// when the node restarts. It does not have to be made anew. A new queue takes the setting of the
// running node.
//
// How many dead letters are in flight is seen by those of a target that accepts none: if they are
// all in flight, one behind them arrives.
func TestQueuesTakeTheDeadLetterPrefetchAtARestart(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	node := brokertest.Node(t)
	target := node.VHost(t)
	ch := target.Confirming(t)
	in := func(queue string, n int) {
		t.Helper()
		brokertest.Eventually(t, "the messages in "+queue, func() bool { return brokertest.Ready(t, ch, queue) == n })
	}

	declareSource(t, ch, "old")
	deadLetterMany(t, ch, "old")
	in("old.open", 1) // it has begun: what dead-letters starts a moment after the queue
	node.Eval(t, "application:set_env(rabbit, dead_letter_worker_consumer_prefetch, 512).")
	declareSource(t, ch, "new")
	deadLetterMany(t, ch, "new")
	in("new.open", 2)
	in("old.open", 1)

	node.Eval(t, `ok = file:write_file(os:getenv("RABBITMQ_ADVANCED_CONFIG_FILE", "/etc/rabbitmq/advanced.config"), "`+
		fastDeadLettering+`\n").`)
	node.Stop(t)
	node.Start(t)
	ch = target.Channel(t)
	in("old.open", 2)
}

// declareSource declares a queue that dead-letters at least once to two others: NAME.open and
// NAME.full, which accepts no message.
func declareSource(t *testing.T, ch *amqp091.Channel, name string) {
	t.Helper()
	declare := func(queue, exchange, key string, args amqp091.Table) {
		t.Helper()
		args["x-queue-type"] = "quorum"
		brokertest.Declare(t, ch, queue, args)
		brokertest.Bind(t, ch, queue, key, exchange, nil)
	}
	declare(name, "amq.topic", name+".*", amqp091.Table{
		"x-dead-letter-exchange": "amq.direct", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	})
	declare(name+".open", "amq.direct", name+".open", amqp091.Table{})
	declare(name+".full", "amq.direct", name+".full", amqp091.Table{
		"x-max-length": int32(1), "x-overflow": "reject-publish",
	})
	brokertest.PublishConfirmed(t, ch, "", name+".full", amqp091.Publishing{})
}

// deadLetterMany dead-letters one message of a source that its target accepts, 40 that no queue
// accepts, and one more that its target accepts.
func deadLetterMany(t *testing.T, ch *amqp091.Channel, name string) {
	t.Helper()
	const waiting = 40
	for i := range waiting + 2 {
		key := name + ".full"
		if i == 0 || i == waiting+1 {
			key = name + ".open"
		}
		brokertest.PublishConfirmed(t, ch, "amq.topic", key, amqp091.Publishing{})
	}
	for range waiting + 2 {
		reject(t, brokertest.Take(t, ch, name))
	}
}
