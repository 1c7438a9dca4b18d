package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/retry"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// A pull takes chosen messages out of a work queue that consumers read. It differs from other runs
// in two ways.
//
// It takes before the consumers, see amqp.HolderOptions.First: they wait, and then get the others
// in order.
//
// It acknowledges nothing before all chosen messages are in the hold. Which of them the queue still
// has does not tell what an earlier process acknowledged, as consumers may have read them. So a
// record in the hold tells whether acknowledgements may have been sent: without it all copies are
// void, and the work queue has, or its consumers had, each message.

// takeTime is how long a pull may hold messages that consumers wait for.
const takeTime = 30 * time.Second

// live reports whether the run takes from a work queue, which consumers read meanwhile.
func (m *manifest) live() bool { return m.Action.Kind().Live }

// takeFirst decides to take the messages of a queue, of which so many are ready, before its
// consumers. It refuses a queue where that would change the order, or take nothing.
func (t *terms) takeFirst(ready int) error {
	name, most := text.Name(t.queue.Name), amqp.MostFirst
	if t.queue.Type() == topology.Classic {
		most = amqp.MostFirstClassic
	}
	switch {
	case t.queue.Type() == topology.Stream:
		return refusef("queue %s is a stream, out of which no message can be taken; skip the message in the consumer", name)
	case t.queue.Arguments.HasAny(topology.ArgMaxPriority):
		return refusef("queue %s has priorities (%s), and what is held would be delivered behind messages of a lower priority; stop the consumers and use a queue without that argument",
			name, topology.ArgMaxPriority)
	case ready > most && t.consumers > 0:
		return refusef("queue %s has %s ready and %s, and no more than %d of a %s queue can be held while consumers read it, or others would overtake them; stop the consumers, or wait until fewer are ready",
			name, text.Count(ready, "message"), text.Count(t.consumers, "consumer"), most, t.queue.Type())
	}
	t.first = ready <= most
	return nil
}

// options returns how to take the messages of a work queue. It stops the run where that would do
// harm by now.
func (t *taking) options(ctx context.Context, ready int) (amqp.HolderOptions, error) {
	state, err := t.worker.desk.inspect(ctx)
	if err != nil {
		return amqp.HolderOptions{}, err
	}
	now, err := termsOf(state, t.manifest.Queue)
	if err == nil {
		now.consumers = int64(t.others)
		err = now.takeFirst(ready)
	}
	if err == nil {
		err = now.refuse(ready, ready, true)
	}
	if errors.Is(err, ErrRefused) {
		err = stopped(err.Error())
	}
	return amqp.HolderOptions{
		Messages: ready, First: now.first, Classic: now.queue.Type() == topology.Classic, Most: max(ready, amqp.MostFirst),
	}, err
}

// pull takes what the manifest names out of a work queue. The hold has nothing but the manifest.
func (t *taking) pull(ctx context.Context) error {
	if t.worker.takeExchange == "" { // an earlier process died before it had one
		if err := t.worker.openIntake(ctx); err != nil {
			return err
		}
	}
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("take messages from %s: %w", t.manifest.Queue, err)
	}
	if t.unsettled {
		t.inDoubt = t.acked
	}
	return nil
}

// acknowledge acknowledges what was copied into the hold, all at once.
//
// Nothing is lost: the broker has confirmed each copy in the hold. Nothing is doubled, unless the
// process, the connection or the node ends between the record and the end of the transaction with
// the acknowledgements: it is not known then whether the queue has them, and the copies stay. If
// they end before the record, nothing was acknowledged, and the copies go, see dropCopies.
func (t *taking) acknowledge(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // nothing is acknowledged: the queue keeps all messages
	}
	hold := topology.HoldName(t.worker.desk.Topology.Name, t.worker.run)
	if err := t.worker.note(ctx, hold, record(t.worker.run, recordAcking, 0, 0, nil)); err != nil {
		return err
	}
	for _, m := range t.copied {
		if err := t.holder.Ack(m); err != nil { // nothing is lost: see above
			return err
		}
		t.acked++
	}
	return nil
}

// resumePull continues a pull that has not taken all.
func (s *session) resumePull(ctx context.Context, has *contents) (Result, error) {
	if has.records[recordAcking] > 0 {
		// The queue may have, or may not have, what the hold has. A double is better than a loss.
		s.doubledBefore += has.messages
		return s.sendTaken(ctx, Result{Missing: s.manifest.Chosen - has.messages}, has.messages)
	}
	has, err := s.worker.dropCopies(ctx, s.manifest, has)
	if err != nil {
		return Result{Left: has.messages}, err
	}
	return s.takeAndSend(ctx, has)
}

// returnPull finds out what of a pull is to be given back, and returns what the hold has of that.
func (s *session) returnPull(ctx context.Context, has *contents) (*contents, error) {
	switch {
	case has.records[recordReturning] > 0:
		s.doubledBefore += min(has.messages, returnWindow)
	case has.records[recordSending] > 0:
	case has.records[recordAcking] > 0:
		s.doubledBefore += has.messages
	default:
		return s.worker.dropCopies(ctx, s.manifest, has)
	}
	return has, nil
}

// dropCopies removes from the hold of a pull what an earlier process had copied there, and returns
// what the hold has then: nothing but records.
//
// Nothing is lost: the hold has no record that acknowledgements were sent, and none is sent before
// the broker has confirmed that record. So the work queue has each of these messages, or had given
// it to a consumer.
func (w *worker) dropCopies(ctx context.Context, m *manifest, has *contents) (*contents, error) {
	name := topology.HoldName(w.desk.Topology.Name, w.run)
	for range mostPasses {
		if has.messages == 0 {
			return has, nil
		}
		if has.records[recordAcking]+has.records[recordSending] > 0 {
			return has, fmt.Errorf("another process has continued the run %s", w.run)
		}
		if err := w.dropCounted(ctx, m, name, maps.Clone(has.prints)); err != nil {
			return has, err
		}
		var err error
		if has, err = w.desk.readHold(ctx, w.run); err != nil {
			return has, err
		}
	}
	return has, fmt.Errorf("the hold %s still has messages that were acknowledged", text.Name(name))
}

// pull returns a move to the dead-letter queue of the work queue that the message was taken from.
// The message looks as a dead letter of the processor.
func (r *router) pull(d amqp091.Delivery) (relay.Move, error) {
	c, m := r.worker.desk.Topology, r.manifest
	work, ok := c.WorkQueue(m.Queue)
	if !ok {
		return relay.Move{}, fmt.Errorf("the topology has no work queue %s any more; put the messages back", text.Name(m.Queue))
	}
	if r.rules == nil {
		backoff, _ := c.Backoff(work.Backoff) // the zero backoff is that of a queue without one
		rules := retry.NewRules(c, backoff, 0)
		r.rules = &rules
	}
	d = fromHold(d)
	why := "pulled by " + m.By
	if m.Reason != "" {
		why += "; reason: " + m.Reason
	}
	made := r.rules.Pull(retry.Message{
		Exchange: d.Exchange, Key: d.RoutingKey, Headers: d.Headers, UserID: d.UserId, Expiration: d.Expiration,
		Table: func(t map[string]any) any { return amqp091.Table(t) },
	}, work.Name, why, r.worker.desk.now())
	if made.Outcome != retry.DeadLettered {
		return relay.Move{}, fmt.Errorf("%s cannot be a dead letter: %s", r.worker.desk.called(d, m.Queue), made.Error)
	}
	exchange, err := r.directExchange(work.DeadLetterQueue)
	if err != nil {
		return relay.Move{}, fmt.Errorf("%s cannot be reached: %w", text.Name(work.DeadLetterQueue), err)
	}
	p := relay.Republish(d, made.Headers)
	p.Headers[deadletter.HeaderRun] = m.Run
	return relay.Move{Exchange: exchange, Key: made.Key, Message: p}, nil
}
