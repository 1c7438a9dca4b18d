package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// rescuer copies messages that the broker would drop on their return to the tail of their queue.
type rescuer struct {
	conn  *amqp.Conn
	out   *amqp.Publisher
	queue string
}

// newRescuer connects, and refuses if the user could not copy a message. Nothing is copied to find
// that out: a mandatory message to a queue that cannot exist comes back.
func newRescuer(ctx context.Context, e broker.Endpoint, t terms) (*rescuer, error) {
	e.ConnectionName = "dlxctl looks at " + t.queue.Name + " (copies)"
	conn, err := amqp.Dial(ctx, e)
	if err != nil {
		return nil, err
	}
	r := &rescuer{conn: conn, queue: t.queue.Name}
	if r.out, err = conn.Publisher(1); err == nil {
		_, err = r.out.PublishOne(ctx, "", "dlxctl-no-queue-"+rand.Text(), amqp091.Publishing{})
	}
	if closed, ok := errors.AsType[*amqp.ClosedError](err); ok && closed.Code == amqp091.AccessRefused {
		err = refusef("the broker drops or dead-letters a message of queue %s that was returned %d times, and a look returns messages; user %s may not publish to the default exchange, so dlxctl could not save such a message; raise the limit by a policy (delivery-limit), or grant write on amq.default",
			text.Name(t.queue.Name), t.limit, text.Name(e.AMQP.User))
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rescuer) close() { _ = r.conn.Close() } // everything on it is confirmed

// copy publishes a message to the tail of its queue, and waits for the confirm.
func (r *rescuer) copy(ctx context.Context, d amqp091.Delivery) error {
	headers := deadletter.Unaddressed(d.Headers) // CC and BCC would route it to other queues too
	maps.DeleteFunc(headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	message := relay.Republish(d, headers)
	message.Expiration = d.Expiration
	refused, err := r.out.PublishOne(ctx, "", r.queue, message)
	if err == nil && refused != "" {
		err = errors.New(refused)
	}
	return err
}
