package desk

import (
	"context"
	"errors"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// sendEdited sends the edited message, and parks the original, which is all that the hold has.
//
// Nothing is lost: the original is acknowledged once the broker has confirmed both. What is sent is
// noted in the hold before the original is parked, so that a run that is stopped or killed in
// between only parks it. One that is stopped goes on for sendGrace. A process that dies before the
// note sends the edited message twice at most, with the same message-id, and one that dies after
// the note parks the original twice.
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
	var originals []amqp.Held
	sent := d.hasStep(x.manifest.Run, recordSent)
	err = h.Take(ctx, func(m amqp.Held) error {
		if isRecord(x.manifest.Run, m.Delivery) {
			sent = sent || m.Headers[headerRecord] == recordSent
		} else {
			originals = append(originals, m)
		}
		return nil
	})
	for _, m := range originals {
		if err == nil {
			err = x.sendOneEdited(ctx, publisher, m, sent)
		}
		if err == nil {
			err = h.Ack(m) // nothing is lost: both are confirmed
		}
	}
	return errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
}

// sendOneEdited sends the edited message, unless that is done, and parks the original. It ends
// later than ctx: a consumer may reject the edited message, which stops the run, before it is noted
// that it is sent.
func (x *sender) sendOneEdited(ctx context.Context, publisher *outlet, m amqp.Held, sent bool) error {
	if err := x.stopped(); err != nil {
		return err
	}
	edited := x.moveBy(x.router.edited, m.Delivery)
	if err := x.stopped(); err != nil {
		return err
	}
	grace, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(sendGrace, end) })()
	publish := func(move relay.Move) error {
		err := publisher.publish(grace, move.Exchange, move.Key, move.Message)
		switch {
		case errors.Is(err, errReturned):
			return stopped(err.Error())
		case err != nil: // it may be there, and is sent again
			x.doubt(1)
		}
		return err
	}
	if !sent {
		if err := publish(edited); err != nil {
			x.doubt(partly([][]relay.Move{{edited}}, publisher.nacked))
			return err
		}
		if err := x.worker.noteStep(grace, recordSent); err != nil {
			x.doubt(1) // the next process sends the edited message again
			return err
		}
	}
	if err := publish(x.router.park(m.Delivery)); err != nil {
		return err
	}
	x.Moved(m.Delivery, edited)
	return nil
}

// withKey returns the facts of a message with another routing key; empty keeps its own. A message
// that does not tell its exchange cannot be sent there with any key.
func withKey(f deadletter.Facts, key string, to Target) deadletter.Facts {
	if key != "" && (!to.Original || f.Exchange != "" || f.Key != "") {
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
