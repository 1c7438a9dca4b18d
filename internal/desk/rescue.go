package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// probeTime is how long the broker may take to show that it accepts messages.
const probeTime = 10 * time.Second

// rescuer copies messages that the broker would drop on their return to the tail of their queue.
type rescuer struct {
	conn  *amqp.Conn
	out   *amqp.Publisher
	queue string
}

// newRescuer connects, and refuses if no message could be copied: the user may not, or the broker
// accepts none. Nothing is copied to find that out: a mandatory message to a queue that cannot
// exist comes back. During an alarm a connection still accepts its first one (4.3.6, measured).
func newRescuer(ctx context.Context, e broker.Endpoint, t terms) (*rescuer, error) {
	if t.alarm != "" {
		return nil, t.refuseAlarm(t.alarm)
	}
	e.ConnectionName = "dlxctl looks at " + t.queue.Name + " (copies)"
	conn, err := amqp.Dial(ctx, e)
	if err != nil {
		return nil, err
	}
	r := &rescuer{conn: conn, queue: t.queue.Name}
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	r.out, err = conn.Publisher(1)
	for i := 0; i < 2 && err == nil; i++ {
		_, err = r.out.PublishOne(probe, "", "dlxctl-no-queue-"+rand.Text(), amqp091.Publishing{})
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = t.refuseAlarm("it has not confirmed one in " + text.Duration(probeTime))
	}
	if closed, ok := errors.AsType[*amqp.ClosedError](err); ok && closed.Code == amqp091.AccessRefused {
		err = refusef("the broker drops or dead-letters a message of queue %s that was returned %d times, and a look returns messages; user %s may not publish to the default exchange, so dlxctl could not save such a message; grant write on amq.default, or %s",
			text.Name(t.queue.Name), t.limit, text.Name(e.AMQP.User), t.raise())
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// refuseAlarm refuses a look because the broker accepts no messages.
func (t *terms) refuseAlarm(why string) error {
	return refusef("the broker accepts no messages at the moment (%s), so dlxctl could not save one of queue %s that has used up its returns (delivery limit %d); end the alarm of the broker first, or %s",
		why, text.Name(t.queue.Name), t.limit, t.raise())
}

func (r *rescuer) close() { _ = r.conn.Close() } // what is not confirmed was reported

// copy publishes a message to the tail of its queue, and waits that long for the confirm.
func (r *rescuer) copy(ctx context.Context, d amqp091.Delivery, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	headers := deadletter.Unaddressed(d.Headers) // CC and BCC would route it to other queues too
	maps.DeleteFunc(headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	message := relay.Republish(d, headers)
	message.Expiration = d.Expiration
	refused, err := r.out.PublishOne(ctx, "", r.queue, message)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("the broker has not accepted it in " + text.Duration(most))
	case err == nil && refused != "":
		err = errors.New(refused)
	}
	return err
}
