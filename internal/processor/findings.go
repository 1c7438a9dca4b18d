package processor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/processor/monitor"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// report logs what was found out about a message that the broker does not accept or
// cannot deliver. Each finding is logged once.
func (q *failedQueue) report(f relay.Finding) {
	ctx := context.Background() // whatever ends now
	blamed := f.Delivery
	if f.Kind == relay.TooLarge { // the broker has not seen it, and the error says no more than sizes
		blamed = amqp091.Delivery{}
	}
	seen := sync.OnceValue(func() notify.Shown { return q.shown(delivered(f.Delivery)) })
	log := q.trouble.With("queue", q.backoff.FailedQueue, "error", q.quoting(f.Err, blamed))
	aboutMessage := log.With("message_id", idOf(seen), "routing_key", keyShown(seen), "exchange", f.Exchange)
	switch f.Kind {
	case relay.NoRight:
		log.ErrorContext(ctx,
			"user lacks write permission on an exchange: messages for it wait; 'dlxctl rights' prints the command that grants it",
			"exchange", f.Exchange, "user", q.Endpoint.AMQP.User)
	case relay.Internal:
		log.ErrorContext(ctx,
			"exchange is internal, and no client may publish to it: messages for it wait; 'dlxctl plan' shows what to do",
			"exchange", f.Exchange)
	case relay.NoKey:
		aboutMessage.ErrorContext(ctx,
			"user lacks a topic permission for the routing key of a message: such messages go to the unroutable queue; rabbitmqctl set_topic_permissions grants it",
			"user", q.Endpoint.AMQP.User)
	case relay.TooLarge:
		aboutMessage.ErrorContext(ctx,
			"message is larger than the broker accepts and stays in the failed queue; raise max_message_size and restart dlxctl process, or remove the message")
	case relay.Deadly:
		aboutMessage.ErrorContext(ctx,
			"publishing a message closes the channel or the connection: it stays in the failed queue and is not published again until dlxctl process is restarted; remove it if it is not needed")
	case relay.Undeliverable:
		log.ErrorContext(ctx,
			"broker closes the connection when it delivers a message of the failed queue: the messages behind it wait; RabbitMQ before 4.0 does so for an x-death header of a publisher whose count is not an integer; if the queue has a leader, remove the first message in the management UI (Get messages, Reject requeue false or Automatic ack)")
	}
}

// quoting returns an error of the broker, which may quote a message, as a log shows it.
func (q *failedQueue) quoting(err error, d amqp091.Delivery) masked {
	return func() string {
		m := delivered(d)
		m.ID = err.Error() // as an id, so that rules for what consumers say hide no error of the broker
		return q.shown(m).ID
	}
}

// held counts a message that stays in the failed queue.
func (q *failedQueue) held(kind relay.Kind) {
	reasons := map[relay.Kind]string{relay.TooLarge: monitor.HeldTooLarge, relay.Deadly: monitor.HeldDeadly}
	q.probe.Held(reasons[kind], 1)
}

// mostRefusals is how many times the unroutable queue may refuse a message before a relay that ends
// when the queue is empty gives up, after some 7 seconds in all.
const mostRefusals = 8

// refusals are the messages that not even the unroutable queue accepts, or that wait for what a
// delay lacks. They wait, unacknowledged, and are published again with pauses.
type refusals struct {
	queue      string // the unroutable queue
	probe      *monitor.Probe
	tries      map[uint64]int // by delivery tag
	untilEmpty bool
	giveUp     func(error)
}

// again records that a message was refused. With UntilEmpty the relay does not wait for the queue,
// and ends. Nothing is lost by it: the message was not acknowledged, so the broker has it.
func (r *refusals) again(log *slog.Logger, tag uint64, reason masked) {
	log.With("error", reason).ErrorContext(context.Background(),
		"unroutable queue does not accept the message, which waits; 'dlxctl plan' shows what is missing",
		"unroutable_queue", r.queue)
	r.waits(tag)
	if r.untilEmpty && r.tries[tag] >= mostRefusals {
		r.giveUp(fmt.Errorf("%w: the unroutable queue %s does not accept a message: %s; 'dlxctl plan' shows what is missing",
			relay.ErrHeld, r.queue, reason()))
	}
}

// waits records that a message was refused and waits.
func (r *refusals) waits(tag uint64) {
	if r.tries[tag]++; r.tries[tag] == 1 {
		r.probe.Held(monitor.HeldRefused, 1)
	}
}

// over records that a message was accepted, whether or not it was refused before.
func (r *refusals) over(tag uint64) {
	if r.tries[tag] > 0 {
		delete(r.tries, tag)
		r.probe.Held(monitor.HeldRefused, -1)
	}
}
