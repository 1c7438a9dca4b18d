package desk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// probeTime is how long the broker may take to show that it accepts messages.
const probeTime = 10 * time.Second

// rescuer copies messages that the broker would drop on their return to the tail of their queue. A
// nil one has nothing to do: no return ends a message of the queue.
type rescuer struct {
	desk  *Desk
	conn  *amqp.Conn
	out   *amqp.Publisher
	terms terms
	// unsaved is why a message that the broker drops on its return could not be copied.
	unsaved error
}

// newRescuer connects, and refuses if no message could be copied: the user may not, or the broker
// accepts none. Nothing is copied to find that out: a mandatory message to a queue that cannot
// exist comes back. During an alarm a connection still accepts its first one (4.3.6, measured).
func (d *Desk) newRescuer(ctx context.Context, t terms) (*rescuer, error) {
	if t.alarm != "" {
		return nil, t.refuseAlarm(t.alarm)
	}
	e := d.Endpoint
	e.ConnectionName = "dlxctl looks at " + t.queue.Name + " (copies)"
	conn, err := amqp.Dial(ctx, e)
	if err != nil {
		return nil, err
	}
	r := &rescuer{desk: d, conn: conn, terms: t}
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

// rescuer returns what saves the messages of a queue which a run holds and gives back by the end of
// a channel. The caller has just inspected the virtual host.
func (w *worker) rescuer(ctx context.Context, queue string) (*rescuer, error) {
	t, err := termsOf(*w.desk.last.Load(), queue)
	if err != nil || !t.limited {
		return nil, nil //nolint:nilerr,nilnil // who takes from the queue says what is wrong with it
	}
	t.closes = true
	return w.desk.newRescuer(ctx, t)
}

// refuseAlarm refuses to hold messages because the broker accepts none.
func (t *terms) refuseAlarm(why string) error {
	return refusef("the broker accepts no messages at the moment (%s), so dlxctl could not save one of queue %s that has used up its returns (delivery limit %d); end the alarm of the broker first, or %s",
		why, text.Name(t.queue.Name), t.limit, t.raise())
}

// refuseFull refuses a full queue that rejects messages, of which so many are ready. What is held
// does not count, but publishers that wait for room get it.
func (r *rescuer) refuseFull(ready int) error {
	if r == nil {
		return nil
	}
	drops, _ := policy.DropsHead(r.terms.queue, r.terms.effective)
	most, _ := policy.LengthLimits(r.terms.effective)
	if drops > 0 || most <= 0 || int64(ready) < most {
		return nil
	}
	return refusef("queue %s rejects messages, as it has %d (max-length), so dlxctl could not save one that has used up its returns (delivery limit %d); raise max-length in the policy or the arguments of the queue; or %s",
		text.Name(r.terms.queue.Name), ready, r.terms.limit, r.terms.raise())
}

func (r *rescuer) close() {
	if r != nil {
		_ = r.conn.Close() // what is not confirmed was reported
	}
}

// saves reports whether the broker would drop a message on its return.
func (r *rescuer) saves(m amqp.Held) bool { return r != nil && r.terms.drops(returnsOf(m)) }

// returnsOf is how often a message was returned.
func returnsOf(m amqp.Held) int64 {
	n, _ := m.Headers[topology.HeaderDeliveryCount].(int64)
	return n
}

// failed returns why a message could not be copied. Nil: each was.
func (r *rescuer) failed() error {
	if r == nil {
		return nil
	}
	return r.unsaved
}

// keep copies a message that would not survive its return to the tail of the queue, for which it
// waits so long at most.
func (r *rescuer) keep(ctx context.Context, h *amqp.Holder, m amqp.Held, most time.Duration) error {
	if !r.saves(m) {
		return nil
	}
	if r.unsaved != nil { // the confirm of that copy may still come, and look like one of this copy
		return r.unsaved
	}
	if err := r.copy(ctx, m.Delivery, most); err != nil {
		queue := r.terms.queue.Name
		r.unsaved = fmt.Errorf("%s has used up the returns that queue %s allows, and could not be copied to its tail: %w",
			r.desk.called(m.Delivery, queue), text.Name(queue), err)
		return r.unsaved
	}
	return h.Ack(m) // nothing is lost: the broker has confirmed the copy in the same queue
}

// holder returns a Holder for take. What Release takes is saved too.
func (r *rescuer) holder(ctx context.Context, conn *amqp.Conn, queue string, o amqp.HolderOptions) (h *amqp.Holder) {
	if r != nil {
		o.Beyond = func(m amqp.Held) error { return r.keep(context.WithoutCancel(ctx), h, m, holdTimeOf(o.Messages)) }
	}
	h = conn.Holder(queue, o)
	return h
}

// take is Take of a Holder for a run, which takes all ready messages of a queue. visit reports
// whether a message needs no copy: it was acknowledged.
//
// All returned messages that are delivered must be visited, or the broker may drop them. So once
// visit has failed, or ctx has ended, it goes on without visit up to the first that was never
// returned, and as long as it saves some.
func (r *rescuer) take(
	ctx context.Context, h *amqp.Holder, ready int, visit func(amqp.Held) (acked bool, err error),
) error {
	if r == nil {
		return h.Take(ctx, func(m amqp.Held) error {
			_, err := visit(m)
			return err
		})
	}
	most := holdTimeOf(ready)
	patient, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	late := time.AfterFunc(2*most, func() { end(context.DeadlineExceeded) })
	defer late.Stop()
	var ended error
	err := h.Take(patient, func(m amqp.Held) error {
		acked := false
		if ended == nil {
			ended = context.Cause(ctx)
		}
		if ended == nil {
			acked, ended = visit(m)
		}
		if !acked && r.saves(m) {
			if err := r.keep(patient, h, m, most); err != nil {
				return err
			}
			late.Reset(2 * most)
		}
		if taken, _ := h.Taken(); taken == ready || !m.Redelivered {
			return ended
		}
		return nil
	})
	if err == nil {
		return ended
	}
	return err
}

// copy publishes a message to the tail of its queue, and waits that long for the confirm.
func (r *rescuer) copy(ctx context.Context, d amqp091.Delivery, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	headers := deadletter.Unaddressed(d.Headers) // CC and BCC would route it to other queues too
	maps.DeleteFunc(headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	message := relay.Republish(d, headers)
	message.Expiration = d.Expiration
	refused, err := r.out.PublishOne(ctx, "", r.terms.queue.Name, message)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("the broker has not accepted it in " + text.Duration(most))
	case err == nil && refused != "":
		err = errors.New(refused)
	}
	return err
}
