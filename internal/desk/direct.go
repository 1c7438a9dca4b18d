package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// A direct run sends few messages from their queue straight to where they go. It has no hold,
// whose beginning and end take seconds, and leaves nothing that could be resumed: what it has not
// sent is still in the queue.
//
// Nothing is lost: the queue has each message until the broker has confirmed its copy where it
// goes. The run sends in groups, of one message in most cases, and acknowledges each group before
// it sends the next. So a process that dies doubles at most one group. After any other trouble the
// run says what may be doubled, see taking.repair.

const (
	// directMost is how many messages a direct run sends at most, and directBytes how large they
	// are in all: it keeps them in memory.
	directMost  = 100
	directBytes = 8 << 20
	// directLooked is in a queue of how many messages. The others wait meanwhile.
	directLooked = 10_000
	// directGroups is in how many groups a run sends. A channel that has more than 32
	// acknowledgements on their way to a quorum queue may forget some at its end, see amqp.Holder.
	directGroups = 30
)

// direct reports whether a run that has looked at so many messages needs no hold. One that may have
// to wait between two messages needs it, and one that needs an exchange of its own.
func (m *manifest) direct(looked int, bound map[string]bool) bool {
	kind, send := m.Action.Kind(), m.Send
	large := m.Bytes > directBytes
	if m.deletes() && m.Chosen == 1 { // the broker may have accepted it, and refuse it in a hold by now
		large = false
	}
	switch {
	case m.Chosen > directMost || large || looked > directLooked,
		kind.Live || kind.goes == toOrigin || len(m.Echo) > 0,
		len(send.Ramp) > 0 && m.Chosen > send.Ramp[0],
		send.Rate > 0 && float64(m.Chosen) > max(1, send.Rate):
		return false
	case kind.goes == toWork && m.Target == (Target{}):
		return !slices.ContainsFunc(m.Watch, func(queue string) bool { return !bound[queue] })
	default:
		return true
	}
}

// sendDirect does the whole work of a direct run, which has looked at so many messages. state was
// read after the queue was locked. It reports false, and has done nothing, if the run needs a hold.
func (s *session) sendDirect(ctx context.Context, state topology.State, looked int) (r Result, done bool, err error) {
	w, m := s.worker, s.manifest
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := s.newSender(sending, cancel, m.Chosen, state)
	if w.desk.holds || !m.direct(looked, x.router.bound) {
		return r, false, nil
	}
	switch room, err := x.hasRoom(); {
	case err != nil:
		return r, true, unbegun{err}
	case !room:
		return r, false, nil
	}
	if err := w.openTarget(ctx, m, state); err != nil {
		return r, true, unbegun{err}
	}
	t := w.newTaking(m, func(int) {})
	t.direct, s.direct, x.router.direct = x, true, true
	if err = x.startBrake(sending); err == nil {
		defer x.brake.close()
		err = t.passes(ctx)
	}
	if err != nil {
		err = errors.Join(err, t.repair(ctx))
	}
	w.freeQueue()
	if err == nil {
		err = x.endDirect(sending)
	}
	r = x.result(Result{Ended: true, Missing: t.missing, DoubledAtMost: t.inDoubt, Direct: true})
	r.LeftInQueue = m.Chosen - r.Moved - r.Missing
	return r, true, err
}

// hasRoom reports whether all messages may be sent at once.
func (x *sender) hasRoom() (bool, error) {
	most := x.manifest.Send.MaxWaiting
	if most == 0 {
		return true, nil
	}
	has, err := x.waiting()
	return has.total()+x.manifest.Chosen-1 <= most, err
}

// openTarget creates the queue of parked messages if the run puts messages there, and waits until
// it survives a crash of its node. It refuses what openHold does.
func (w *worker) openTarget(ctx context.Context, m *manifest, state topology.State) error {
	if err := w.refuseUnfinished(state, m.Queue); err != nil || m.deletes() { // which publishes none
		return err
	}
	if err := refuseAlarm(state); err != nil || !w.fillsParked(m) {
		return err
	}
	parked := w.desk.parked()
	if err := w.desk.refusePolicies(state, parked); err != nil {
		return err
	}
	if made, err := w.openParked(ctx, m); err != nil || !made {
		return err
	}
	return pause(ctx, amqp.SafeAge)
}

// sendChosen sends what was chosen, group by group, and acknowledges it.
func (t *taking) sendChosen(ctx context.Context) error {
	if len(t.chosen) == 0 {
		return nil
	}
	// The run may have waited for the brake, or for other consumers of its queue.
	if err := t.direct.refuseToSend(t.direct.router.ctx, false); err != nil { //nolint:contextcheck // ctx ends later
		return err
	}
	t.direct.frame = t.frame
	t.direct.pacer.admitted(len(t.chosen))
	size := (len(t.chosen) + directGroups - 1) / directGroups
	for group := range slices.Chunk(t.chosen, max(1, size)) {
		if err := t.sendGroup(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// sendGroup sends a group, and acknowledges what the broker has confirmed of it, also if it refuses
// another.
func (t *taking) sendGroup(ctx context.Context, group []amqp.Held) error {
	moves := make([][]relay.Move, len(group))
	for i, m := range group {
		moves[i] = t.direct.moves(inHold(m.Delivery, t.manifest.Queue))
	}
	// The run was interrupted, too many have failed again, or one of the group cannot be sent:
	// nothing of it is.
	if err := t.direct.stopped(); err != nil {
		return err
	}
	t.pending = len(group)
	nacked := t.out.nacked
	arrived := func(i int) error {
		m := group[i]
		t.pending--
		t.acked++
		t.inHold[t.manifest.of(m.Delivery)]++
		t.direct.Moved(m.Delivery, first(moves[i]))
		return t.holder.Ack(m) // nothing is lost: the broker has confirmed its copy where it goes
	}
	round, err := t.publishGroup(ctx, moves, arrived)
	refused := errors.Is(err, errReturned)
	if err == nil || refused {
		if round == 0 {
			t.pending = partly(moves, t.out.nacked-nacked) // what else was refused is in the queue alone
		}
		err = errors.Join(ignore(err, errReturned), t.holder.Commit())
	}
	switch {
	case !refused || err != nil:
		return err
	case round > 0: // of an edit
		return stopped(fmt.Sprintf("the edited message was sent, and the broker does not accept the original for %s",
			topology.ParkedName(t.worker.desk.Topology.Name)))
	default:
		return stopped("the broker does not accept a message for its target")
	}
}

// partly returns how many of the messages of a group that were nacked a queue may have, see
// relay.Move.
func partly(moves [][]relay.Move, nacked int) int {
	if slices.ContainsFunc(moves, func(of []relay.Move) bool { return first(of).Partial }) {
		return nacked
	}
	return 0
}

// publishGroup publishes the first move of each message, then the second, and calls arrived with
// each message whose last move is confirmed. round is that of the moves of which it did not succeed
// with all: before it, from 0, each message has been somewhere.
func (t *taking) publishGroup(
	ctx context.Context, moves [][]relay.Move, arrived func(int) error,
) (round int, err error) {
	rounds := len(moves[0])
	for i := 0; rounds == 0 && i < len(moves); i++ {
		if err := arrived(i); err != nil {
			return 0, err
		}
	}
	for round = range rounds {
		for i, of := range moves {
			then := func() error { return nil }
			if round == rounds-1 {
				then = func() error { return arrived(i) }
			}
			if err := t.out.send(ctx, of[round].Exchange, of[round].Key, of[round].Message, then); err != nil {
				return round, err
			}
		}
		if err := t.out.flush(ctx); err != nil {
			return round, err
		}
	}
	return round, nil
}

// stopped returns why the run must send no more. Nil: it may.
func (x *sender) stopped() error { return context.Cause(x.router.ctx) }

// moves returns where a message goes: nowhere if it is deleted, and to two queues if it is edited,
// first where the edited message goes, as its target may refuse it.
// If it cannot go it stops the run.
func (x *sender) moves(d amqp091.Delivery) []relay.Move {
	switch {
	case x.manifest.deletes():
		return nil // as a person has asked for
	case x.router.kind.Edits:
		return []relay.Move{x.moveBy(x.router.edited, d), x.router.park(d)}
	default:
		return []relay.Move{x.Move(d)}
	}
}

// first returns the first of some moves, or the zero one.
func first(moves []relay.Move) (m relay.Move) {
	if len(moves) > 0 {
		m = moves[0]
	}
	return m
}

// repair removes from the queue what a direct run has sent, and could not remove when its
// connection ended. What may be doubled after that is in t.inDoubt.
func (t *taking) repair(ctx context.Context) error {
	t.inDoubt = t.pending
	if !t.unsettled {
		return nil
	}
	clear(t.need)
	t.left = 0
	inDoubt, err := t.findDoubles(ctx)
	if err == nil && t.surplus > 0 {
		if err = t.run(ctx); err == nil && t.unsettled {
			err = amqp.ErrUnsettled
		}
	}
	if err != nil {
		inDoubt = t.direct.moved
	}
	t.inDoubt += inDoubt
	return err
}

// endDirect listens for failures of what was sent.
func (x *sender) endDirect(ctx context.Context) error {
	x.pacer.endBatch(ctx)
	x.brake.atEnd(ctx)
	if why, failed := errors.AsType[stopped](context.Cause(ctx)); failed {
		return why
	}
	return nil
}

// inHold returns a message as a hold would have it.
func inHold(d amqp091.Delivery, queue string) amqp091.Delivery {
	d.Headers = toHold(d, queue).Headers
	return d
}
