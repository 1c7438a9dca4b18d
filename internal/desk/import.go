package desk

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// importWindow is how many messages of an import may be without a confirm.
const importWindow = 256

// importGrace is how long a publish may hang after the end of an import was asked for.
const importGrace = 5 * time.Second

// Import publishes messages into a queue, at its tail and in their order. It returns how many of
// the first ones the broker has confirmed. If it ends early, up to 256 messages behind those may
// be in the queue too, and an import of the rest doubles them. It leaves out the user-id, since
// the broker accepts only the user of the connection, and the expiration, with which a message
// would not stay in the queue.
//
// Nothing can be lost: Import removes nothing, and the messages stay where they are read from.
func (d *Desk) Import(
	ctx context.Context, queue string, messages iter.Seq2[deadletter.Message, error], progress func(done int),
) (done int, err error) {
	if err := d.permit(ctx, []permission{writing(topology.KindExchange, defaultExchange)}, nil); err != nil {
		return 0, err
	}
	conn, err := amqp.Dial(ctx, d.Endpoint)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer amqp.CloseAfter(ctx, importGrace, conn)()
	p, err := conn.Publisher(importWindow)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	im := importing{publisher: p, queue: queue, progress: progress}
	for m, err := range messages {
		if err != nil {
			return im.done, err
		}
		if err := im.publish(ctx, m.Delivery); err != nil {
			return im.done, err
		}
	}
	err = im.await(ctx, 0)
	return im.done, err
}

// importing is an import in progress.
type importing struct {
	publisher  *amqp.Publisher
	queue      string
	sent, done int
	progress   func(done int)
}

// publish publishes a message, and waits while too many are without a confirm.
func (im *importing) publish(ctx context.Context, m amqp091.Delivery) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// CC and BCC would route a copy to other queues.
	headers := deadletter.Unaddressed(m.Headers)
	maps.DeleteFunc(headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	message := relay.Republish(m, headers)
	message.DeliveryMode = amqp091.Persistent
	if _, err := im.publisher.Publish("", im.queue, message); err != nil {
		return err
	}
	im.sent++
	return im.await(ctx, importWindow-1)
}

// await waits until at most so many messages are without a confirm.
func (im *importing) await(ctx context.Context, pending int) error {
	for open := true; ; {
		if err := im.count(); err != nil || im.sent-im.done <= pending {
			return err
		}
		if !open {
			return im.publisher.Err()
		}
		select {
		case _, open = <-im.publisher.Settled():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count counts the messages that are confirmed.
func (im *importing) count() error {
	for _, o := range im.publisher.Outcomes() {
		if o.Refused != "" {
			return fmt.Errorf("message %d was refused by queue %s: %s", o.Seq, text.Name(im.queue), o.Refused)
		}
		im.done++
	}
	if im.progress != nil {
		im.progress(im.done)
	}
	return nil
}
