package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
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
		_, err = r.publish("dlxctl-no-queue-"+rand.Text(), amqp091.Publishing{})
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
func (r *rescuer) copy(d amqp091.Delivery) error {
	headers := deadletter.Unaddressed(d.Headers) // CC and BCC would route it to other queues too
	for name := range headers {
		if topology.IsDeliveryCount(name) {
			delete(headers, name)
		}
	}
	refused, err := r.publish(r.queue, amqp091.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: d.DeliveryMode, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, AppId: d.AppId, Body: d.Body,
	})
	if err == nil && refused != "" {
		err = errors.New(refused)
	}
	if err != nil {
		return fmt.Errorf("message %q has used up the returns that queue %s allows, and could not be copied to its tail: %w",
			d.MessageId, text.Name(r.queue), err)
	}
	return nil
}

// publish publishes one message through the default exchange, and returns why the broker refuses
// it, if it does.
func (r *rescuer) publish(queue string, m amqp091.Publishing) (refused string, err error) {
	if _, err := r.out.Publish("", queue, m); err != nil {
		return "", err
	}
	for {
		_, open := <-r.out.Settled()
		if done := r.out.Outcomes(); len(done) > 0 {
			return done[0].Refused, nil
		}
		if !open {
			return "", r.out.Err()
		}
	}
}
