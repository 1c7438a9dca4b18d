package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// It acknowledges nothing before all chosen messages are in the hold, and then all of them in one
// transaction. Which of them the queue still has does not tell what an earlier process has
// acknowledged, as consumers may have read them. So a record in the hold tells whether that process
// has begun to, and its witness whether it has. If it has not, all copies are void: the work queue
// has, or its consumers had, each message.

// takeTime is how long a pull may hold messages that consumers wait for.
const takeTime = 30 * time.Second

// live reports whether the run takes from a work queue, which consumers read meanwhile.
func (m *manifest) live() bool { return m.Action.Kind().Live }

// pulledTo returns the dead-letter queue to which a pull moves messages.
func (d *Desk) pulledTo(r Request) (string, error) {
	queue, work := text.Name(r.Queue), topology.WorkQueue{}
	if d.Found == nil {
		var isWork bool
		if work, isWork = d.Topology.WorkQueue(r.Queue); !isWork && d.Topology.Name != "" {
			return "", refusef("%s is not a work queue of the topology %s, and %s takes messages from work queues only; 'dlxctl status' lists them",
				queue, text.Name(d.Topology.Name), r.Action)
		}
		return work.DeadLetterQueue, nil
	}
	switch dead := d.Found.DeadLettersOf(r.Queue); {
	case len(dead) == 1:
		return dead[0], nil
	case len(dead) > 1:
		return "", refusef("the dead letters of %s go to %s, and %s moves messages to one queue; name the topology file with -f",
			queue, text.List(text.Names(dead)), r.Action)
	case d.Found.Has(r.Queue):
		return "", refusef("%s is a dead-letter queue, and %s takes messages from work queues only; replay, park or discard its messages",
			queue, r.Action)
	default:
		return "", refusef("no dead-letter queue of %s was found on the broker, and %s moves messages there; set a dead-letter exchange for %s by a policy, or name the topology file with -f",
			queue, r.Action, queue)
	}
}

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
func (t *taking) options(ctx context.Context, in *amqp.Conn, ready int) (amqp.HolderOptions, error) {
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
	if err == nil {
		t.witness, err = t.worker.openWitness(ctx, state, in, t.out)
	}
	return amqp.HolderOptions{
		Messages: ready, First: now.first, Classic: now.queue.Type() == topology.Classic, Most: max(ready, amqp.MostFirst),
		Witness: t.witness,
	}, err
}

// pull takes what the manifest names out of a work queue. The hold has nothing but the manifest.
func (t *taking) pull(ctx context.Context) error {
	if t.worker.takeExchange == "" { // an earlier process died before it had one
		if err := t.worker.openIntake(ctx); err != nil {
			return err
		}
	}
	err := t.run(ctx)
	if err == nil && t.unsettled {
		err = t.doubt(ctx)
	}
	if err != nil {
		return fmt.Errorf("take messages from %s: %w", t.manifest.Queue, err)
	}
	return nil
}

// doubt finds out whether the queue has lost what was acknowledged, after the connection ended.
func (t *taking) doubt(ctx context.Context) error {
	v, err := t.worker.ask(ctx, t.witness)
	switch {
	case err != nil:
		return err
	case v == notAcknowledged:
		return errors.New("the connection ended before the messages were acknowledged")
	case v == notKnown, t.noLeader: // the witness has a node of its own
		t.inDoubt = t.acked
	}
	return nil
}

// acknowledge acknowledges what was copied into the hold, all at once.
//
// Nothing is lost: the broker has confirmed each copy in the hold. A process that ends before the
// record is in the hold has acknowledged nothing, and the copies go, see session.judge. The record
// comes through the exchange of this process, which another one deletes before it reads the hold,
// see awaitInFlight. Of a process that ends after the record, the witness tells.
func (t *taking) acknowledge(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // nothing is acknowledged: the queue keeps all messages
	}
	begins := record(t.worker.run, recordAcking, 0, 0, nil)
	begins.Headers[headerWitness] = t.witness
	if err := t.worker.note(ctx, t.worker.takeExchange, begins); err != nil {
		return err
	}
	// The copies and the record stay, see guard.
	if err := t.guard.await(ctx, time.Now()); err != nil {
		return err
	}
	for _, m := range t.copied {
		if err := t.holder.Ack(m.held); err != nil { // nothing is lost: see above
			return err
		}
		t.taken++
		t.acked++
	}
	return nil
}

// resumePull continues a pull that has not taken all.
func (s *session) resumePull(ctx context.Context, has *contents) (Result, error) {
	has, taken, err := s.judge(ctx, has)
	switch {
	case err != nil:
		return Result{Left: has.messages}, err
	case taken:
		return s.sendTaken(ctx, Result{Missing: s.manifest.Chosen - has.messages}, has.messages)
	default:
		return s.takeAndSend(ctx, has)
	}
}

// returnPull finds out what of a pull is to be given back, and returns what the hold has of that.
func (s *session) returnPull(ctx context.Context, has *contents) (*contents, error) {
	switch {
	case has.records[recordReturning] > 0:
		s.doubledBefore += min(has.messages, returnWindow)
	case has.records[recordSending] > 0:
	default:
		var err error
		has, _, err = s.judge(ctx, has)
		return has, err
	}
	return has, nil
}

// judge reports whether an earlier process has taken what the hold has of a pull. If not, it
// removes the copies. It returns what the hold has then.
//
// Nothing is lost: copies go only if it is known of each process that it has acknowledged nothing,
// and that it will not, see acknowledge and worker.ask. So the work queue has each of these
// messages, or had given it to a consumer. The records of acknowledge go too: what is left of the
// copies if this process ends is void without them as well.
func (s *session) judge(ctx context.Context, has *contents) (_ *contents, taken bool, err error) {
	void := func(m amqp.Held) bool {
		return !isRecord(s.worker.run, m.Delivery) || m.Headers[headerRecord] == recordAcking
	}
	for range mostPasses {
		v, err := s.worker.askAll(ctx, has.witnesses)
		switch {
		case err != nil:
			return has, false, err
		case v == notKnown: // a double is better than a loss
			s.doubt(has.messages)
			return has, true, nil
		case v == acknowledged:
			return has, true, nil
		case has.messages+len(has.witnesses) == 0:
			return has, false, nil
		}
		if err := s.worker.drop(ctx, void); err != nil {
			return has, false, err
		}
		if has, err = s.worker.desk.readHold(ctx, s.worker.run); err != nil {
			return has, false, err
		}
	}
	return has, false, fmt.Errorf("the hold of the run %s still has messages that were acknowledged", s.worker.run)
}

// pull returns a move to the dead-letter queue of the work queue that the message was taken from.
// The message looks as a dead letter of the processor.
func (r *router) pull(d amqp091.Delivery) (relay.Move, error) {
	c, m := r.worker.desk.Topology, r.manifest
	work, ok := c.WorkQueue(m.Queue)
	if len(m.Watch) == 1 { // where the pull was to go when it began, whatever the file says by now: see keepRoom
		work.DeadLetterQueue = m.Watch[0]
	}
	if r.worker.desk.Found != nil {
		work.Name, ok = m.Queue, true
		c.WorkQueues = append(slices.Clone(c.WorkQueues), work)
	}
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
