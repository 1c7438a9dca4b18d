package desk

import (
	"context"
	"errors"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// sendEdited parks each message of the hold, and sends the edited one in its place.
//
// Nothing is lost: the message is acknowledged once the broker has confirmed both. A process that
// dies in between parks it twice, and after that sends the edited one twice at most, with the same
// message-id.
func (x *sender) sendEdited(ctx context.Context) error {
	d := x.worker.desk
	in, err := amqp.DialToConsume(ctx, d.endpoint("edits "+x.manifest.Run))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := amqp.Dial(ctx, d.endpoint("publishes "+x.manifest.Run))
	if err != nil {
		return err
	}
	defer out.Close()
	publisher, err := newOutlet(out, 1)
	if err != nil {
		return err
	}
	hold := topology.HoldName(d.Topology.Name, x.manifest.Run)
	ready, _, err := in.Settled(ctx, hold, amqp.Alone)
	if err != nil {
		return err
	}
	h := in.Holder(hold, amqp.HolderOptions{Messages: ready})
	err = h.Take(ctx, func(m amqp.Held) error {
		if isRecord(x.manifest.Run, m.Delivery) {
			return nil
		}
		edited, err := x.router.edited(m.Delivery)
		if err != nil {
			return stopped(err.Error())
		}
		for _, move := range []relay.Move{x.router.park(m.Delivery), edited} {
			if err := publisher.publish(ctx, move.Exchange, move.Key, move.Message); err != nil {
				if errors.Is(err, errReturned) {
					return stopped(err.Error())
				}
				return err
			}
		}
		x.Moved(m.Delivery, edited)
		return h.Ack(m) // nothing is lost: both are confirmed
	})
	return errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
}

// withKey returns the facts of a message with another routing key; empty keeps its own. A message
// that does not tell its exchange cannot be sent there with any key.
func withKey(f deadletter.Facts, key string, to Target) deadletter.Facts {
	if key != "" && !(to.Original && f.Exchange == "" && f.Key == "") {
		f.Key = key
	}
	return f
}

// edited returns where the edited message goes: where the original would.
func (r *router) edited(d amqp091.Delivery) (relay.Move, error) {
	d = r.before(d)
	was, err := deadletter.Original(d)
	if err != nil {
		return relay.Move{}, err
	}
	as, e := was, r.manifest.edited
	as.Headers, as.Body, as.MessageId = e.Headers, e.Body, e.MessageId
	as.ContentType, as.ContentEncoding = e.ContentType, e.ContentEncoding
	return r.replay(d, was, as)
}
