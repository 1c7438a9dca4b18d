package processor

import (
	"context"
	"log/slog"

	"github.com/dlxctl/dlxctl/relay"
)

// tell logs what was found out about a message that the broker does not take, or
// does not give. Each is told once.
func (l *line) tell(f relay.Finding) {
	ctx := context.Background() // whatever ends now
	log := l.probe.trouble.With("queue", l.loop.Failed, "error", f.Err)
	switch f.Kind {
	case relay.NoRight:
		log.ErrorContext(ctx, "the user may not publish to an exchange: what must go there waits; 'dlxctl rights' prints the command that grants it",
			"exchange", f.Exchange, "user", l.Endpoint.AMQP.User)
	case relay.TooLarge:
		aboutMessage(log, f).ErrorContext(ctx, "a message is larger than the broker takes and stays in the failed queue; raise max_message_size and start dlxctl process again, or take the message out")
	case relay.Deadly:
		aboutMessage(log, f).ErrorContext(ctx, "publishing a message ends the channel or the connection: it stays in the failed queue and is not published again until dlxctl process is started again; take it out if it can be done without")
	case relay.Undeliverable:
		log.ErrorContext(ctx, "the broker ends the connection when it delivers a message of the failed queue: what is behind it waits; RabbitMQ before 4.0 does so where a publisher wrote an x-death header with a count that is no integer; take the first message out through the management UI (Get messages, Reject requeue false or Automatic ack)")
	}
}

// aboutMessage names a message.
func aboutMessage(log *slog.Logger, f relay.Finding) *slog.Logger {
	return log.With("message_id", f.Delivery.MessageId, "routing_key", f.Delivery.RoutingKey, "exchange", f.Exchange)
}
