package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// calmTime is how long to wait at most until a queue and a hold stop changing. New dead letters may
// arrive all the time.
const calmTime = 5 * time.Second

// dropReturned removes from the hold what an earlier process has returned already: it was killed
// after the broker had confirmed a message in the queue, and before the hold had lost it. It
// returns what the hold has then, and how many of those messages may still be in the queue too.
//
// Nothing is lost. When the run chose, the queue had a number of messages of each fingerprint. If
// the queue and the hold together have more, and an equal message cannot have arrived since, the
// others are copies that the earlier process has published: the queue has one of each message that
// is removed from the hold. Messages of which an equal one may have arrived are left alone.
func (w *worker) dropReturned(ctx context.Context, m *manifest, has *contents) (*contents, int, error) {
	if err := w.lockQueue(ctx, m.Queue); err != nil {
		return has, 0, err
	}
	defer w.freeQueue()
	// What the earlier process has published and the broker has not routed yet reaches no queue.
	name := topology.HoldName(w.desk.Topology.Name, w.run)
	if err := w.conn.DeleteExchange(directExchange(w.desk.Topology.Name, w.run, m.Queue), amqp.Conditions{}); err != nil {
		return has, 0, err
	}
	if err := w.calm(ctx, m.Queue, name); err != nil {
		return has, 0, err
	}
	var err error
	for range mostPasses {
		if has, err = w.desk.readHold(ctx, w.run); err != nil {
			return has, 0, err
		}
		inQueue, err := w.countQueue(ctx, m, true)
		if err != nil {
			return has, 0, err
		}
		returned, inDoubt := m.returned(has, inQueue)
		if len(returned) == 0 {
			return has, inDoubt, nil
		}
		counted := func(h amqp.Held) bool {
			key := m.of(fromHold(h.Delivery))
			if isRecord(w.run, h.Delivery) || returned[key] == 0 {
				return false
			}
			returned[key]--
			return true // the queue has a copy, which was counted
		}
		if err := w.drop(ctx, counted); err != nil {
			return has, 0, err
		}
	}
	return has, 0, fmt.Errorf("the hold %s still has messages that were acknowledged", text.Name(name))
}

// returned returns how many messages of each fingerprint are in the hold and in the queue too, and
// how many others may be.
func (m *manifest) returned(has *contents, inQueue map[fingerprint]uint32) (out map[fingerprint]uint32, inDoubt int) {
	out = map[fingerprint]uint32{}
	for key, inHold := range has.prints {
		e := m.wanted[key]
		both := inHold + inQueue[key]
		certain := m.certain(e)
		switch {
		case certain && both > e.present:
			out[key] = min(both-e.present, inHold, inQueue[key])
		case inQueue[key] == 0:
		case !certain, e.wanted > 1 && has.records[recordSending] > 0: // some of several equal ones were sent
			inDoubt += int(min(inHold, inQueue[key]))
		}
	}
	return out, inDoubt
}

// calm waits until no message is on its way into or out of queues.
func (w *worker) calm(ctx context.Context, queues ...string) error {
	last, since, began := -1, time.Now(), time.Now()
	for time.Since(since) < inFlightTime && time.Since(began) < calmTime {
		total := 0
		for _, queue := range queues {
			ready, err := w.conn.MessagesReady(queue)
			if err != nil {
				return err
			}
			total += ready
		}
		if total != last {
			last, since = total, time.Now()
		}
		if err := pause(ctx, inFlightPause); err != nil {
			return err
		}
	}
	return nil
}

// drop acknowledges messages in the hold of the run, of which the caller knows that they are also
// elsewhere. The caller reads the hold again: acknowledgements may get lost.
func (w *worker) drop(ctx context.Context, goes func(amqp.Held) bool) error {
	conn, err := amqp.DialToConsume(ctx, w.desk.endpoint("cleans "+w.run))
	if err != nil {
		return err
	}
	defer conn.Close()
	hold := topology.HoldName(w.desk.Topology.Name, w.run)
	ready, _, err := conn.Settled(ctx, hold, amqp.Alone)
	if err != nil {
		return err
	}
	h := conn.Holder(hold, amqp.HolderOptions{Messages: ready})
	err = h.Take(ctx, func(m amqp.Held) error {
		if !goes(m) {
			return nil
		}
		return h.Ack(m) // nothing is lost: see dropReturned and session.judge
	})
	released := h.Release() //nolint:contextcheck // it must happen after the end of ctx too
	return errors.Join(err, ignore(released, amqp.ErrUnsettled))
}
