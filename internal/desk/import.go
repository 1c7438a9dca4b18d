package desk

import (
	"cmp"
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

// importGrace is how long an import that ends early waits for confirms of what it has published.
const importGrace = 5 * time.Second

// Imported says how far an import came.
type Imported struct {
	// Done is how many of the first messages the broker has confirmed.
	Done int
	// Doubtful is how many of those behind them may be in the queue too, some or all: at most 256. It
	// is 0 if the import ended as it should, or all that it had published was confirmed.
	Doubtful int
}

// RefuseImport refuses an import of so many messages, with so many bytes of bodies in all, into a
// queue that would not keep them, or drop others for them: see [DroppingError].
func (d *Desk) RefuseImport(ctx context.Context, queue string, messages int, bytes int64) error {
	state, err := d.inspect(ctx)
	if err != nil {
		return err
	}
	conn, err := amqp.Dial(ctx, d.endpoint("counts"))
	if err != nil {
		return err
	}
	defer conn.Close()
	w := &worker{desk: d, conn: conn}
	return w.refuseDropping(ctx, state, &manifest{}, map[string]int{queue: messages}, bytes)
}

// Import publishes messages into a queue, at its tail and in their order. If it ends early, it
// first waits up to 5 seconds for the confirms of what it has published: an import of what is
// behind Imported.Done doubles at most what Imported.Doubtful counts. It leaves out the user-id,
// since the broker accepts only the user of the connection, and the expiration, with which a
// message would not stay in the queue.
//
// Nothing can be lost: Import removes nothing, and the messages stay where they are read from.
func (d *Desk) Import(
	ctx context.Context, queue string, messages iter.Seq2[deadletter.Message, error], progress func(done int),
) (Imported, error) {
	if err := d.permit(ctx, []permission{writing(topology.KindExchange, topology.DefaultExchange)}, nil); err != nil {
		return Imported{}, err
	}
	conn, err := amqp.Dial(ctx, d.Endpoint)
	if err != nil {
		return Imported{}, err
	}
	defer conn.Close()
	defer amqp.CloseAfter(ctx, importGrace, conn)()
	p, err := conn.Publisher(importWindow)
	if err != nil {
		return Imported{}, err
	}
	defer p.Close()
	im := importing{publisher: p, queue: queue, progress: progress}
	if err = im.all(ctx, messages); err != nil {
		// The broker confirms what it has accepted, though no more is to come.
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), importGrace)
		defer cancel()
		_ = im.await(rest, 0) // what is not confirmed by then is in doubt
	}
	return im.imported(), err
}

type importing struct {
	publisher *amqp.Publisher
	queue     string
	progress  func(done int)

	sent, known int   // published, and those of them whose outcome is known
	done        int   // accepted, of the first ones
	last        int   // the last one that was accepted
	refused     error // the first refusal
}

// all publishes all messages, and waits until they are confirmed.
func (im *importing) all(ctx context.Context, messages iter.Seq2[deadletter.Message, error]) error {
	for m, err := range messages {
		if err != nil {
			return err
		}
		if err := im.publish(ctx, m.Delivery); err != nil {
			return err
		}
	}
	return cmp.Or(im.await(ctx, 0), im.refused)
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
	return cmp.Or(im.await(ctx, importWindow-1), im.refused)
}

// await waits until at most so many messages are without a confirm.
func (im *importing) await(ctx context.Context, pending int) error {
	for open := true; ; {
		if im.count(); im.sent-im.known <= pending {
			return nil
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

// count counts the messages whose outcome is known.
func (im *importing) count() {
	for _, o := range im.publisher.Outcomes() {
		im.known++
		switch {
		case o.Refused == "":
			im.last = im.known
		case im.refused == nil:
			im.refused = fmt.Errorf("message %d of this import was refused by queue %s: %s", o.Seq,
				text.Name(im.queue), o.Refused)
		}
		if im.refused == nil {
			im.done = im.known
		}
	}
	if im.progress != nil {
		im.progress(im.done)
	}
}

// imported says how far the import came. Behind a message that the queue has refused it may have
// accepted others, such as while it was not full for a moment.
func (im *importing) imported() Imported {
	out := Imported{Done: im.done, Doubtful: max(im.last-im.done, 0)}
	if im.known < im.sent {
		out.Doubtful = im.sent - im.done
	}
	return out
}
