package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
)

const (
	// takeWindow is how many messages are on their way into a hold at once.
	takeWindow = 256
	// fewAcks is how many steps of the broker acknowledgements one by one may cost in one channel:
	// each costs its position. A channel of takeBlock messages costs a fraction (measured).
	fewAcks   = 100_000_000
	takeBlock = 2000
)

// taking moves chosen messages of a queue into a hold. The rest of the queue keeps its order.
//
// Nothing is lost: a message is acknowledged only once the broker has confirmed its copy in the
// hold, and no policy takes that away, see guard. A process that dies in between leaves doubles,
// one copy in the hold and one in the queue. The next one counts: of equal messages the queue had
// as many as the manifest says, so hold and queue together have as many more as there are doubles.
// It removes that many of them from the hold, see dropDoubles. A process whose own acknowledgements
// were lost acknowledges them in the queue once more: the hold has a copy of each that stays. Only
// messages that the broker has delivered before count, since one that has arrived later is no
// double, but where returns are limited: there a double may have been copied to the tail, see
// rescuer. Any look marks what has arrived later too, so only messages of which no equal one can
// have arrived are dropped, see manifest.certain.
type taking struct {
	worker   *worker
	manifest *manifest
	// need is how many messages of each fingerprint are still to be taken, and left in all.
	need map[fingerprint]uint32
	left int
	// doubles is how many of each fingerprint are to be acknowledged, and surplus in all.
	doubles map[fingerprint]uint32
	surplus int
	// inDoubt is how many messages may be in the hold and in the queue: an earlier process may have
	// left them there, or a connection of this one that ended.
	inDoubt int
	// inHold is how many of each fingerprint the hold has, and taken how many in all.
	inHold map[fingerprint]uint32
	taken  int
	// before is how many messages the queue had, and acked how many of them were acknowledged.
	before, acked int
	// others is how many consumers the queue had.
	others int
	// reordered: consumers of a work queue may have got messages before those that were held.
	reordered bool
	// copied are the messages of which the hold has a confirmed copy, and that are not acknowledged
	// yet: until guard knows that the copies stay, or all of a pull.
	copied []copied
	guard  *guard
	// confirmed is how many copies the hold has confirmed.
	confirmed int
	// direct sends what was chosen, without a hold: then inHold counts what was sent. Nil: there is
	// a hold.
	direct *sender
	// largest is the largest message that was chosen in this pass.
	largest amqp.Held
	// chosen are the messages that were found, of a direct run, and missing how many were not.
	chosen  []amqp.Held
	missing int
	// pending is how many were published, and neither confirmed nor refused by all queues.
	pending int
	// unsettled: the queue may not have lost all that was acknowledged.
	unsettled bool
	noLeader  bool   // of a pull: it may have forgotten what was acknowledged
	witness   string // of a pull
	report    func(done int)

	holder  *amqp.Holder
	rescuer *rescuer // of a pull none: it acknowledges all or nothing
	// again: copies of chosen messages are at the tail of the queue.
	again bool
	out   *outlet
	frame int // the size of the largest header of a message that the broker accepts; zero means no limit
}

// errTaken ends a pass over a queue in which nothing is left to take. It is not an error.
var errTaken = errors.New("all is taken")

// newTaking returns the taking of a run whose hold has nothing but the manifest.
func (w *worker) newTaking(m *manifest, report func(int)) *taking {
	t := &taking{
		worker: w, manifest: m, report: report, need: map[fingerprint]uint32{}, doubles: map[fingerprint]uint32{},
		inHold: map[fingerprint]uint32{},
	}
	for key, e := range m.wanted {
		t.need[key] = e.wanted
		t.left += int(e.wanted)
	}
	return t
}

// adopt notes what another process has taken.
func (t *taking) adopt(has *contents) {
	for key, n := range has.prints {
		t.inHold[key] = n
		taken := min(t.need[key], n)
		t.need[key] -= taken
		t.left -= int(taken)
		t.taken += int(taken)
		t.confirmed += int(taken)
	}
}

// findDoubles finds out which messages that this process has acknowledged are in the queue too. It
// returns how many others may be: they are left alone.
func (t *taking) findDoubles(ctx context.Context) (inDoubt int, err error) {
	inQueue, err := t.worker.countQueue(ctx, t.manifest, false)
	if err != nil {
		return 0, err
	}
	t.doubles, inDoubt = t.manifest.doubles(t.inHold, inQueue)
	t.surplus = 0
	for _, n := range t.doubles {
		t.surplus += int(n)
	}
	return inDoubt, nil
}

// doubles returns how many messages of each fingerprint are in the hold and in the queue too, and
// how many others may be.
func (m *manifest) doubles(inHold, inQueue map[fingerprint]uint32) (out map[fingerprint]uint32, inDoubt int) {
	out = map[fingerprint]uint32{}
	for key, e := range m.wanted {
		both := inHold[key] + inQueue[key]
		if both <= e.present {
			continue
		}
		n := min(both-e.present, inQueue[key], inHold[key])
		switch {
		case n == 0:
		case m.certain(e):
			out[key] = n
		default: // a double is better than a loss
			inDoubt += int(n)
		}
	}
	return out, inDoubt
}

// dropDoubles removes from the hold what an earlier process has copied and not acknowledged: the
// queue has it too. It returns what the hold has then, and how many of those messages may still be
// in the queue.
//
// Nothing is lost: the queue has one of each message that is removed. It is the hold that loses it,
// as a policy may delete that copy, see guard. Of equal messages the hold loses the copies that
// came last: of the others the earlier process may have known that they stay.
func (w *worker) dropDoubles(ctx context.Context, m *manifest, has *contents) (*contents, int, error) {
	for range mostPasses {
		inQueue, err := w.countQueue(ctx, m, false)
		if err != nil {
			return has, 0, err
		}
		doubles, inDoubt := m.doubles(has.prints, inQueue)
		if len(doubles) == 0 {
			return has, inDoubt, nil
		}
		first := map[fingerprint]uint32{} // how many stay
		for key, n := range doubles {
			first[key] = has.prints[key] - n
		}
		last := func(h amqp.Held) bool {
			if isRecord(w.run, h.Delivery) {
				return false
			}
			key := m.of(fromHold(h.Delivery))
			switch {
			case doubles[key] == 0:
				return false
			case first[key] > 0:
				first[key]--
				return false
			}
			doubles[key]--
			return true // the queue has one, which was counted
		}
		if err := w.drop(ctx, last); err != nil {
			return has, 0, err
		}
		if has, err = w.desk.readHold(ctx, w.run); err != nil {
			return has, 0, err
		}
	}
	return has, 0, fmt.Errorf("the hold of the run %s still has messages that were acknowledged", w.run)
}

// countQueue counts the messages in the queue that the manifest names: all, or those that may have
// been there when an earlier process took, see taking. Of a stream there is nothing to count: no
// message was taken out of it.
func (w *worker) countQueue(ctx context.Context, of *manifest, all bool) (map[fingerprint]uint32, error) {
	if isStream(*w.desk.last.Load(), of.Queue) {
		return map[fingerprint]uint32{}, nil
	}
	conn, err := amqp.DialToConsume(ctx, w.desk.endpoint("counts "+w.run))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rescuer, err := w.rescuer(ctx, of.Queue)
	if err != nil {
		return nil, err
	}
	defer rescuer.close()
	for again := false; ; again = true {
		ready, _, err := conn.Settled(ctx, of.Queue, min(of.others(), 0))
		if err == nil {
			err = rescuer.refuseFull(ready)
		}
		if err != nil {
			return nil, err
		}
		out := map[fingerprint]uint32{}
		h := rescuer.holder(ctx, conn, of.Queue, amqp.HolderOptions{Messages: ready})
		err = rescuer.take(ctx, h, ready, func(m amqp.Held) (bool, error) {
			if all || m.Redelivered || rescuer != nil {
				if key := of.of(m.Delivery); of.wanted[key].wanted > 0 {
					out[key]++
				}
			}
			return false, nil
		})
		taken, _ := h.Taken()
		err = errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
		// If fewer came, another client that has just begun to consume may hold the others.
		if err != nil || again || taken >= ready || of.others() != amqp.Alone {
			return out, err
		}
	}
}

// run takes. When ctx ends it takes no more, waits for the messages on their way, and returns the
// cause of ctx.
func (t *taking) run(ctx context.Context) error {
	in, err := amqp.DialToConsume(ctx, t.worker.desk.endpoint("takes "+t.worker.run))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := amqp.Dial(ctx, t.worker.desk.endpoint("fills "+t.worker.run))
	if err != nil {
		return err
	}
	defer out.Close()
	if t.out, err = newOutlet(out, takeWindow); err != nil {
		return err
	}
	t.frame = out.FrameMax()
	ready, others, err := in.Settled(ctx, t.manifest.Queue, t.manifest.others())
	if err != nil {
		return err
	}
	t.before, t.others, t.acked, t.chosen, t.again = ready, others, 0, nil, false
	t.largest = amqp.Held{}
	o := amqp.HolderOptions{Messages: ready, Block: t.block(ready)}
	if t.manifest.live() {
		o, err = t.options(ctx, in, ready)
	} else if t.rescuer, err = t.worker.rescuer(ctx, t.manifest.Queue); err == nil {
		defer t.rescuer.close()
		err = t.rescuer.refuseFull(ready)
	}
	if err != nil {
		return err
	}
	t.holder = t.rescuer.holder(ctx, in, t.manifest.Queue, o)
	// It ends by itself, with ctx in visit, so that what is confirmed can be acknowledged.
	longest := holdTimeOf(ready)
	if t.manifest.live() {
		longest = takeTime
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	if t.direct == nil {
		if t.guard, err = t.worker.guardHold(grace, t.manifest); err != nil {
			return err
		}
		defer t.guard.end()
	}
	err = t.rescuer.take(grace, t.holder, ready, func(m amqp.Held) (bool, error) {
		acked, err := t.visit(ctx, grace, m)
		if taken, _ := t.holder.Taken(); err == nil && taken == ready {
			// The consumer stays until Release: by it another process knows that a classic queue will get
			// messages back, see manifest.others.
			return acked, errTaken
		}
		return acked, err
	})
	_, tooLarge := errors.AsType[stopped](err)
	if err == nil || tooLarge || errors.Is(err, errTaken) || ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = errors.Join(ignore(err, errTaken), t.out.flush(grace))
		if t.direct == nil && !t.manifest.live() {
			err = errors.Join(err, t.acknowledgeCopied(grace, true))
		}
	}
	switch {
	case err != nil:
	case t.direct != nil:
		t.missing = t.left
		err = t.sendChosen(grace)
	case t.manifest.live():
		err = t.acknowledge(ctx)
	}
	released := t.holder.Release() //nolint:contextcheck // it must happen after the end of ctx too
	t.unsettled = errors.Is(released, amqp.ErrUnsettled)
	if t.manifest.live() {
		t.reordered = errors.Is(released, amqp.ErrReordered)
		t.noLeader = errors.Is(released, amqp.ErrNoLeader)
		released = ignore(released, amqp.ErrReordered)
	}
	return t.refusedSize(errors.Join(err, ignore(released, amqp.ErrUnsettled)))
}

// refusedSize returns why the run stops if the broker has closed the channel as a message is too
// large for it: that would happen again each time. Other errors stay as they are.
func (t *taking) refusedSize(err error) error {
	why, closed := errors.AsType[*amqp.ClosedError](err)
	if !closed {
		return err
	}
	limit, is := why.SizeLimit()
	if !is {
		return err
	}
	name, rest := "a message", "choose without it"
	if len(t.largest.Body) > limit {
		name = t.worker.desk.called(t.largest.Delivery, t.manifest.Queue)
	}
	if t.direct == nil {
		rest = "put back what was taken, and " + rest
	}
	return stopped(fmt.Sprintf("%s is larger than the broker accepts (max_message_size %d); raise that limit, or %s (--where 'size <= %d')",
		name, limit, rest, limit))
}

// block is how many messages a channel holds: all where few of them are acknowledged.
func (t *taking) block(ready int) int {
	if (t.left+t.surplus)*ready < fewAcks {
		return 0
	}
	return takeBlock
}

// visit takes a message, drops it as a double, or leaves it. It reports whether it has dropped it.
func (t *taking) visit(ctx, grace context.Context, m amqp.Held) (acked bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if t.left == 0 && t.surplus == 0 {
		return false, errTaken
	}
	if t.guard != nil && t.guard.why() != nil {
		return false, errTaken // acknowledgeCopied returns why
	}
	if err := t.out.settle(); err != nil {
		return false, err
	}
	key := t.manifest.of(m.Delivery)
	if t.need[key] > 0 && len(m.Body) > len(t.largest.Body) {
		t.largest = m
	}
	switch {
	case t.doubles[key] > 0 && (m.Redelivered || t.rescuer != nil):
		t.doubles[key]--
		t.surplus--
		t.acked++
		// Nothing is lost: the hold has a copy, which was counted, see taking. Of a direct run the
		// queue has one to which it was sent.
		return true, t.holder.Ack(m)
	case t.rescuer.saves(m):
		// Also if it is chosen, as it may have to go back: the next pass takes its copy.
		t.again = t.again || t.need[key] > 0
		return false, nil
	case t.need[key] > 0 && t.direct != nil:
		t.need[key]--
		t.left--
		t.chosen = append(t.chosen, m)
		return false, nil
	case t.need[key] > 0:
		if err := t.throttle(grace); err != nil {
			return false, err
		}
		p := toHold(m.Delivery, t.manifest.Queue)
		if t.frame > 0 && relay.HeaderSize(p) > t.frame { // the broker would end the connection
			return false, t.tooLarge(m)
		}
		t.need[key]--
		t.left--
		held := m
		held.Body = nil
		return false, t.out.send(grace, t.worker.takeExchange, m.RoutingKey, p, func() error {
			t.copied = append(t.copied, copied{held, key, time.Now()})
			t.confirmed++
			t.report(t.confirmed)
			return nil
		})
	default:
		return false, nil
	}
}

// throttle acknowledges what it may, and waits while too much is in the queue and in the hold too.
func (t *taking) throttle(ctx context.Context) error {
	if t.manifest.live() {
		return nil
	}
	err := t.acknowledgeCopied(ctx, len(t.copied) >= cmp.Or(t.worker.desk.copies, copiedMost))
	if err != nil && t.guard.why() != nil {
		return errTaken // acknowledgeCopied returns it again
	}
	return err
}

// tooLarge says why a message stays in the queue, and stops the run.
func (t *taking) tooLarge(m amqp.Held) error {
	return stopped(fmt.Sprintf("%s cannot be moved into a hold: its headers are too large for a frame with those of the hold; put back what was taken, and choose without that message",
		t.worker.desk.called(m.Delivery, t.manifest.Queue)))
}

// take takes what the manifest names, with the lock of the queue.
func (w *worker) take(ctx context.Context, m *manifest, has *contents, report func(int)) (*taking, error) {
	if err := w.lockQueue(ctx, m.Queue); err != nil {
		return nil, err
	}
	t := w.newTaking(m, report)
	if err := w.waitUntilDurable(ctx); err != nil {
		return t, err
	}
	if m.live() {
		return t, t.pull(ctx)
	}
	if has != nil {
		if w.takeExchange == "" { // it died before it had one
			if err := w.openIntake(ctx); err != nil {
				return t, err
			}
		}
		var err error
		if has, t.inDoubt, err = w.dropDoubles(ctx, m, has); err != nil {
			return t, err
		}
		t.adopt(has)
	}
	if err := t.passes(ctx); err != nil {
		return t, fmt.Errorf("take messages from %s: %w", m.Queue, err)
	}
	return t, nil
}

// mostPasses is how often a queue is gone through to be sure that acknowledgements have arrived.
const mostPasses = 5

// passes takes, and makes sure that the queue has lost what was acknowledged. Release proves that,
// unless the connection ends at that moment. The count is for what Release cannot see: a queue that
// gets another leader after it has received acknowledgements, and before it has applied them.
func (t *taking) passes(ctx context.Context) error {
	for n := 1; t.left > 0 || t.surplus > 0; n++ {
		if err := t.run(ctx); err != nil {
			return err
		}
		ready, consumers, err := t.count(ctx)
		if err == nil && t.left > 0 && consumers > t.others {
			t.missing = 0
			return fmt.Errorf("another client began to consume from queue %s, and may hold %s that the run chose; stop it, or wait until it ends",
				text.Name(t.manifest.Queue), text.Count(t.left, "message"))
		}
		if err == nil && t.again && !t.unsettled && n < mostPasses {
			continue
		}
		if err != nil || !t.unsettled && ready <= t.before-t.acked {
			return err
		}
		if n == mostPasses {
			return fmt.Errorf("the queue %s still has messages that were acknowledged", t.manifest.Queue)
		}
		// More came back than should have, or others have arrived.
		inDoubt, err := t.findDoubles(ctx)
		if t.unsettled {
			t.inDoubt = max(t.inDoubt, inDoubt)
		}
		if err != nil || t.surplus == 0 {
			return err
		}
	}
	return nil
}

// count returns how many messages are ready in the queue once all of them are back, and how many
// consumers it has.
func (t *taking) count(ctx context.Context) (ready, consumers int, err error) {
	conn, err := amqp.Dial(ctx, t.worker.desk.endpoint("counts "+t.worker.run))
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	return conn.Settled(ctx, t.manifest.Queue, t.others)
}

// ignore returns err unless it is the one that is not an error.
func ignore(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
}
