package desk

import (
	"context"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Return gives back what the hold of a run has to the queue it came from, at its tail.
//
// A message comes back as it was: with its routing key, all properties and headers, those of its
// death included. What a client cannot set stays in a header: the user-id of another user, a BCC,
// and a CC that is not a list.
func (d *Desk) Return(ctx context.Context, id string, progress func(Progress)) (Result, error) {
	return d.onRun(ctx, id, func(ctx context.Context, w *worker) (Result, error) {
		w.record.Resumed, w.record.Returned = true, true
		if err := w.awaitInFlight(ctx); err != nil {
			return Result{}, err
		}
		has, err := d.readHold(ctx, id)
		if err != nil {
			return Result{}, err
		}
		if has.gone {
			return Result{}, refusef("there is no run %s; 'dlxctl desk run list' lists those that have not ended", id)
		}
		if has.messages == 0 && (!has.complete() || has.records[recordSent] > 0) { // it had sent all
			return w.endEmpty(ctx, Result{})
		}
		if has.records[recordSent] > 0 {
			return Result{Left: has.messages}, refusef("the run %s has sent the edited message, and has yet to park the original; 'dlxctl desk run resume %s' does so", id, id)
		}
		if err := d.permit(ctx, d.rightsToReturn(id, has.queues), nil); err != nil {
			return Result{Left: has.messages}, err
		}
		m := has.manifest
		m.Run, m.back = id, true
		if of := w.listed(); !has.complete() {
			m.summary = summary{
				Action: of.Action, Queue: of.Queue, By: of.By, Reason: of.Reason, Started: of.Started, Chosen: of.Chosen,
			}
		}
		m.Goes, m.Bytes = has.queues, has.bytes
		err = w.refuseDroppingNow(ctx, &m, m.Goes, m.Bytes)
		if err == nil {
			err = refuseAlarm(*d.last.Load())
		}
		if err != nil {
			return Result{Left: has.messages}, err
		}
		m.Send = SendOptions{InFlight: returnWindow}
		s := &session{worker: w, manifest: &m, progress: progress}
		switch {
		case has.complete() && has.manifest.deletes(): // no process has sent any
		case has.records[recordSending] > 0, d.hasStep(id, recordSending):
			s.inherit(has.manifest.Send)
		case !has.complete(): // the queue may have each copy too, and nothing tells how many it had
			s.doubt(has.messages)
		}
		if m.live() && has.complete() {
			if has, err = s.returnPull(ctx, has); err != nil {
				return Result{Left: has.messages}, err
			}
		} else if has.records[recordReturning] > 0 && has.complete() {
			inDoubt := 0
			if has, inDoubt, err = w.dropReturned(ctx, &m, has); err != nil {
				return Result{Left: has.messages}, err
			}
			s.doubledBefore += min(inDoubt, returnWindow)
		}
		messages, inDoubt, err := w.beginReturn(ctx, &m, has)
		if err != nil {
			return Result{Left: has.messages}, err
		}
		s.doubt(inDoubt)
		r, err := s.send(ctx, Result{}, messages)
		return w.describe(&m, r), err
	})
}

// returnWindow is how many messages a return has in flight.
const returnWindow = 64

// beginReturn makes sure that nothing is in the hold and in the queue too, and notes that the run
// goes back. It returns how many messages the hold has, and how many of them may be in the queue.
func (w *worker) beginReturn(ctx context.Context, m *manifest, has *contents) (messages, inDoubt int, err error) {
	if has.complete() && !m.live() && has.records[recordSending]+has.records[recordReturning] == 0 {
		if err := w.lockQueue(ctx, m.Queue); err != nil {
			return 0, 0, err
		}
		defer w.freeQueue()
		if has, inDoubt, err = w.dropDoubles(ctx, m, has); err != nil {
			return 0, 0, err
		}
	}
	return has.messages, inDoubt, w.endTaking(ctx, recordReturning)
}

// giveBack returns where a message of the hold goes back to.
func (r *router) giveBack(d amqp091.Delivery) (relay.Move, error) {
	queue, _ := d.Headers[headerQueue].(string)
	if queue == "" {
		return relay.Move{}, fmt.Errorf("a message of the hold does not name the queue that it was taken from")
	}
	if queue == topology.ParkedName(r.worker.desk.Topology.Name) {
		return stayParked(fromHold(d), queue), nil
	}
	return r.exactly(queue, fromHold(d), d.RoutingKey)
}

// exactly returns a move to one queue alone, with all that the message had.
func (r *router) exactly(queue string, d amqp091.Delivery, key string) (relay.Move, error) {
	exchange, err := r.directExchange(queue)
	if err != nil {
		return relay.Move{}, fmt.Errorf("%s cannot be reached: %w; if it was deleted, put it back into the file, and run 'dlxctl apply' first",
			text.Name(queue), err)
	}
	h := d.Headers
	for name, aside := range map[string]string{
		topology.CC: deadletter.HeaderCC, topology.BCC: deadletter.HeaderBCC,
	} {
		v, set := h[name]
		if _, list := v.([]any); set && (!list || name == topology.BCC) {
			delete(h, name) // the broker refuses the one, and removes the other
			deadletter.Set(h, aside, v)
		}
	}
	p := relay.Republish(d, h)
	switch {
	case isNumber(d.Expiration):
		p.Expiration = d.Expiration
	case d.Expiration != "": // the broker accepts no such property, so no run has parked the message
		deadletter.Set(h, headerExpiration, d.Expiration)
	}
	if d.UserId == r.user {
		p.UserId = d.UserId
	} else if d.UserId != "" {
		deadletter.Set(h, headerUserID, d.UserId)
	}
	return relay.Move{Exchange: exchange, Key: key, Message: p}, nil
}
