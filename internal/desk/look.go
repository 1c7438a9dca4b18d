package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// holdMessages is how many messages of a quorum queue a look holds by default, and
	// holdClassic and holdClassicBytes how many of a classic queue: each that is held costs the
	// broker up to 5 KiB there (4.3.6, measured).
	holdMessages     = 1_000_000
	holdClassic      = 100_000
	holdClassicBytes = 128 << 20
	// holdPause is how long a look waits for the next message, and holdTime how long it holds messages
	// at most, unless told otherwise: less than the 30 minutes after which RabbitMQ takes them back.
	// With BesideConsumers, which wait meanwhile, it is holdShared for each 100,000 messages.
	holdPause  = 10 * time.Second
	holdTime   = 10 * time.Minute
	holdShared = 10 * time.Second
	holdGroup  = 100_000
	// proofTime is how long a quorum queue has to confirm that it is empty, which takes milliseconds.
	proofTime = 5 * time.Second
	// leastTimeout is the least x-consumer-timeout of a look.
	leastTimeout = time.Minute
)

// ErrEnough is what visit returns to end a look of which the rest is not needed. Look then returns
// no error.
var ErrEnough = errors.New("enough")

// errOverdue ends a look that holds messages for too long, and errStalled one that does not go on.
var (
	errOverdue = errors.New("held for too long")
	errStalled = errors.New("stood still")
)

// errSilent ends the question whether a quorum queue is empty.
var errSilent = errors.New("no answer")

// ErrUnreached is wrapped by the error of a look that chose among some messages of a queue, and not
// among all.
var ErrUnreached = errors.New("not all messages were looked at")

type look struct {
	desk    *Desk
	options LookOptions
	terms   terms
	conn    *amqp.Conn
	visit   func(deadletter.Message) error
	reader  *deadletter.Reader
	copies  deadletter.Copies
	rescuer *rescuer // nil where returning a message never ends it
	done    Looked
	// returned is the highest x-delivery-count so far.
	returned int64
	// ended is why the rest is not shown. What was delivered with it is still copied if the broker
	// would drop it.
	ended error
	// expiring is how many messages have an expiration of their own.
	expiring int
	rescued  int
	// watches end the look when it stands still.
	watches []watch
}

// watch is a timer that each message sets anew.
type watch struct {
	timer *time.Timer
	after time.Duration
}

// Look reads messages from the head of a queue in order, passes each to visit, and gives all of
// them back in the same order. The body of a message is valid only during the call. An error of
// visit ends the look and is returned. It refuses, with ErrRefused and before it consumes, a
// queue that a look would harm, and one that cannot say what it holds: its node is down, or its
// leader does not answer. A stream is read by offset: nothing is held.
//
// Nothing can be lost: Look acknowledges no message of which the queue has no confirmed copy. If
// the process, the connection or the channel ends, the broker takes all messages back. After
// LookOptions.Hold everything is given back, whatever visit does.
//
// A quorum queue with a finite delivery limit counts each return before 4.3. Look stops before the
// messages at the head have used up their limit, though even a look that is refused counts once for
// the first message; one that would be dropped on its return is copied to the tail of the queue.
//
// On 4.3 the return of a look does not count, but a message brings its count along from the queue
// in which it died. At the limit, the message is dropped if the look is killed or its connection
// ends; above it, on any return (measured). Look refuses if the first message is at the limit, and
// copies each that is above it to the tail.
func (d *Desk) Look(
	ctx context.Context, queue string, o LookOptions, visit func(deadletter.Message) error,
) (Looked, error) {
	state, err := d.inspect(ctx)
	if err != nil {
		return Looked{}, err
	}
	return d.lookIn(ctx, state, queue, o, visit)
}

// lookIn is Look for a caller that has just inspected the virtual host.
func (d *Desk) lookIn(
	ctx context.Context, state topology.State, queue string, o LookOptions, visit func(deadletter.Message) error,
) (_ Looked, err error) {
	l := &look{desk: d, options: o, visit: visit, reader: d.reader(), done: Looked{Queue: queue}}
	if l.terms, err = termsOf(state, queue); err != nil {
		return Looked{}, err
	}
	e := d.Endpoint
	e.ConnectionName = cmp.Or(e.ConnectionName, "dlxctl looks at "+queue)
	if l.conn, err = amqp.DialToConsume(ctx, e); err != nil {
		return Looked{}, err
	}
	defer l.conn.Close()
	if err := l.begin(ctx); err != nil {
		return l.done, d.mayRead(queue, err)
	}
	switch {
	case l.done.Messages == 0:
		return l.done, nil
	case l.done.Type == topology.Stream:
		err = l.stream(ctx)
	default:
		err = l.hold(ctx)
	}
	return l.done, d.mayRead(queue, err)
}

// begin asks the queue what it has, and refuses what would do harm.
func (l *look) begin(ctx context.Context) error {
	t := &l.terms
	l.done.Type = t.queue.Type()
	ready, err := l.conn.MessagesReady(l.done.Queue)
	if err == nil && t.queue.Type() != topology.Stream {
		t.consumers, err = l.conn.ConsumersOf(l.done.Queue)
	}
	if err == nil && ready == 0 {
		ready, err = l.prove(ctx)
	}
	if err != nil {
		return l.unanswered(err)
	}
	l.done.consumers = int(t.consumers)
	if l.options.Live {
		if err := t.takeFirst(ready); err != nil {
			return err
		}
	}
	// Statistics are up to 5 seconds old: what an earlier look held is ready again.
	l.done.Unacknowledged = int(min(t.usage.Held(), max(0, t.usage.Ready+t.usage.Unacknowledged-int64(ready))))
	l.done.Messages = ready
	return t.refuse(l.wanted(), ready, l.options.BesideConsumers)
}

// prove returns how many messages are ready in a queue that has just reported none. RabbitMQ
// reports none, at once, also for a quorum queue whose leader is gone (4.0.5 and 4.3.6, measured).
// The zero is right
//   - of a classic queue, which answers itself: if its node is down, the broker says that there is
//     no such queue;
//   - with a consumer, as only the leader counts consumers;
//   - where basic.get, which goes through the log of the leader, finds nothing.
//
// Nothing proves that a stream is empty, which has no basic.get. To a user who may not read the
// queue, the broker confirms nothing: if its list has a count, the leader was there seconds ago.
func (l *look) prove(ctx context.Context) (int, error) {
	t := &l.terms
	if t.queue.Type() != topology.Quorum || t.consumers > 0 || t.single() {
		return 0, nil // a queue with a single active consumer is refused
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proofTime, errSilent)
	defer cancel()
	ready, _, err := l.conn.Settled(ctx, l.done.Queue, 0)
	if errors.Is(err, broker.ErrForbidden) && !t.usage.Uncounted {
		return 0, nil
	}
	return ready, err
}

// unanswered refuses a queue that does not say what it holds.
func (l *look) unanswered(err error) error {
	name := text.Name(l.done.Queue)
	closed, isClosed := errors.AsType[*amqp.ClosedError](err)
	switch {
	case errors.Is(err, broker.ErrInUse):
		return refusef("queue %s belongs to another connection alone (exclusive), and the broker refuses all others; read it in the program that declared it", name)
	case errors.Is(err, broker.ErrNotFound) && l.terms.usage.Uncounted: // the list of queues has it
		return refuseDown(l.done.Queue)
	case errors.Is(err, broker.ErrRefused), errors.Is(err, errSilent), isClosed && closed.Code == amqp091.InternalError:
		return refusef("the leader of queue %s does not answer, and what the queue holds is not known; check that most of its nodes are up", name)
	}
	return err
}

// wanted is how many messages to look at.
func (l *look) wanted() int {
	n := min(l.done.Messages, l.holdable())
	if l.options.Messages > 0 {
		n = min(n, l.options.Messages+l.options.Skip)
	}
	return n
}

// holdable is how many messages may be held.
func (l *look) holdable() int {
	switch {
	case l.done.Type == topology.Stream:
		return l.done.Messages
	case l.options.HoldMessages > 0:
		return l.options.HoldMessages
	case l.done.Type == topology.Classic:
		return holdClassic
	default:
		return holdMessages
	}
}

// holdableBytes is how many bytes of bodies may be held. Zero means no limit.
func (l *look) holdableBytes() int64 {
	if l.done.Type == topology.Classic {
		return cmp.Or(l.options.HoldBytes, holdClassicBytes)
	}
	return l.options.HoldBytes
}

// time is how long messages may be held.
func (l *look) time() time.Duration {
	if l.options.Hold == 0 && l.options.BesideConsumers {
		return time.Duration((l.wanted()+holdGroup-1)/holdGroup) * holdShared
	}
	return cmp.Or(l.options.Hold, holdTime)
}

// pause is how long the look waits for the next message.
func (l *look) pause() time.Duration { return cmp.Or(l.desk.pause, holdPause) }

// within returns a context that ends with the time of the look, and when no message has come for a
// while, each times as late.
func (l *look) within(ctx context.Context, times time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeoutCause(ctx, times*l.time(), errOverdue)
	if l.options.Hold > 0 {
		return ctx, end
	}
	ctx, stall := context.WithCancelCause(ctx)
	after := times * l.pause()
	w := watch{time.AfterFunc(after, func() { stall(errStalled) }), after}
	l.watches = append(l.watches, w)
	return ctx, func() { w.timer.Stop(); stall(nil); end() }
}

func (l *look) hold(ctx context.Context) error {
	o := amqp.HolderOptions{
		Messages: 1, Bytes: l.holdableBytes(), Nack: l.terms.nack(),
		Classic: l.done.Type == topology.Classic, Most: l.holdable(),
	}
	if l.terms.first {
		o.First, o.Bytes = true, 0
	}
	if l.terms.timesOut() {
		o.Timeout = max(leastTimeout, 2*l.time())
	}
	if l.terms.limited {
		var err error
		if l.rescuer, err = l.desk.newRescuer(ctx, l.terms); err != nil {
			return err
		}
		defer l.rescuer.close()
	}
	if !l.terms.limited || l.terms.first {
		o.Messages = l.wanted()
	}
	var h *amqp.Holder
	o.Beyond = func(m amqp.Held) error {
		if err := l.keep(context.WithoutCancel(ctx), h, m); l.rescuer.failed() == nil {
			return err
		}
		return nil // it is reported below
	}
	h = l.conn.Holder(l.done.Queue, o)
	within, cancel := l.within(ctx, 1)
	defer cancel()
	began := time.Now()
	err := l.take(within, h)
	_, bytes := h.Taken()
	released := h.Release() //nolint:contextcheck // everything goes back also after ctx has ended
	l.done.Took = jsondoc.Seconds(time.Since(began))
	l.done.Missed = l.missed(err, bytes)
	l.done.spent = l.terms.runSpends(l.returned)
	l.done.Cost = l.cost(errors.Is(released, amqp.ErrReordered))
	if errors.Is(released, amqp.ErrReordered) {
		released = nil
	}
	switch {
	case l.rescuer.failed() != nil: // also where the look has ended before
		err = l.rescuer.failed()
	case isEnd(err):
		err = nil
	case errors.Is(err, broker.ErrInUse):
		err = refusef("queue %s has an exclusive consumer, and the broker lets no other consume; stop that consumer, or let it consume without exclusive",
			text.Name(l.done.Queue))
	case err != nil && l.conn.Closed():
		err = fmt.Errorf("the connection ended, and the broker has taken back the %s that the look held: %w",
			text.Count(l.done.Looked, "message"), err)
	}
	return errors.Join(err, released)
}

// goesOn notes that the look does not stand still.
func (l *look) goesOn() {
	for _, w := range l.watches {
		w.timer.Reset(w.after)
	}
}

// isEnd reports whether an error ended a look that has not failed.
func isEnd(err error) bool {
	return errors.Is(err, errOverdue) || errors.Is(err, errStalled) || errors.Is(err, ErrEnough)
}

// take takes the messages: where returns are limited, the first one alone.
func (l *look) take(ctx context.Context, h *amqp.Holder) error {
	if l.rescuer == nil {
		return h.Take(ctx, func(m amqp.Held) error { return l.show(m.Delivery) })
	}
	// All that is delivered must be visited, or the broker may drop it. So each visit finds out that
	// ctx has ended, and the end of patient is for a visitor that hangs.
	patient, cancel := l.within(context.WithoutCancel(ctx), 2)
	defer cancel()
	visit := func(m amqp.Held) error { return l.held(ctx, h, m) }
	if err := errors.Join(h.Take(patient, visit), l.ended); err != nil || l.terms.first {
		return err // runSpends says whether the messages have returns left
	}
	if err := l.terms.refuseSpent(l.returned); err != nil {
		return err
	}
	h.Extend(l.wanted() - 1)
	return errors.Join(h.Take(patient, visit), l.ended)
}

// held visits a message of a queue that limits returns.
func (l *look) held(ctx context.Context, h *amqp.Holder, m amqp.Held) error {
	l.goesOn() // also once the look has ended: what was delivered must be visited
	if err := l.keep(context.WithoutCancel(ctx), h, m); err != nil {
		return err
	}
	if l.ended == nil && ctx.Err() != nil {
		l.ended = context.Cause(ctx)
	}
	if l.ended == nil {
		l.ended = l.show(m.Delivery)
	}
	return nil
}

// keep copies a message that would not survive its return to the tail of the queue.
func (l *look) keep(ctx context.Context, h *amqp.Holder, m amqp.Held) error {
	l.returned = max(l.returned, returnsOf(m))
	if m.Expiration != "" {
		l.expiring++
	}
	if !l.rescuer.saves(m) {
		return nil
	}
	// It is held as long as a look may last: the alarm may end for which the broker accepts nothing.
	for _, w := range l.watches {
		w.timer.Stop()
	}
	if err := l.rescuer.keep(ctx, h, m, l.time()); err != nil {
		return err
	}
	l.goesOn()
	l.rescued++
	return nil
}

// show passes a message on.
func (l *look) show(d amqp091.Delivery) error {
	l.goesOn()
	m := deadletter.Message{Delivery: d, Queue: l.done.Queue, Position: l.done.Looked}
	m.Handle = l.reader.Handle(d, m.Queue)
	m.Copy = l.copies.Next(m.Handle)
	l.done.Looked++
	if m.Position < l.options.Skip {
		l.done.skipped++
		return nil
	}
	return l.visit(m)
}

// stream reads a stream from its first message on.
func (l *look) stream(ctx context.Context) error {
	within, cancel := l.within(ctx, 1)
	defer cancel()
	began := time.Now()
	err := l.conn.ReadStream(within, l.done.Queue, l.wanted(), l.show)
	l.done.Took = jsondoc.Seconds(time.Since(began))
	l.done.Cost, l.done.costs = "changed nothing: a stream is read by offset", l.options.TellCost
	l.done.Missed = l.missed(err, 0)
	closed, isClosed := errors.AsType[*amqp.ClosedError](err)
	switch {
	case isEnd(err):
		err = nil
	case isClosed && closed.Code == amqp091.PreconditionFailed:
		err = refusef("queue %s is a stream, which is read on a node that has a replica of it; connect to one: %s",
			text.Name(l.done.Queue), closed.Reason)
	}
	return err
}

// missed says why fewer messages were looked at than the queue had.
func (l *look) missed(err error, bytes int64) string {
	rest := l.done.Messages - l.done.Looked
	switch {
	case rest <= 0:
		return ""
	case errors.Is(err, errOverdue):
		return fmt.Sprintf("the look ended after %s; --hold-time sets another", text.Duration(l.time()))
	case errors.Is(err, errStalled):
		return fmt.Sprintf("the look stood still for %s; --hold-time sets how long it may last", text.Duration(l.pause()))
	case errors.Is(err, ErrEnough):
		l.done.enough = true
		return "the look ended when it had enough"
	case err != nil:
		return "the look failed"
	case l.done.Looked < l.wanted() && l.holdableBytes() > 0 && bytes >= l.holdableBytes():
		// Not how many bytes there are: that could tell the length of a masked value.
		return fmt.Sprintf("the messages that were held reach the limit of %d bytes; --hold-limit sets another", l.holdableBytes())
	case l.done.Looked < l.wanted():
		return "others have taken the rest meanwhile"
	case l.options.Messages > 0 && l.done.Looked == l.options.Messages+l.options.Skip:
		l.done.enough = true
		if l.options.Skip > 0 {
			return fmt.Sprintf("only %d behind the first %d were asked for", l.options.Messages, l.options.Skip)
		}
		return fmt.Sprintf("only the first %d were asked for", l.options.Messages)
	default:
		return fmt.Sprintf("a look holds at most %s of a %s queue; --hold-limit sets another",
			text.Count(l.holdable(), "message"), l.done.Type)
	}
}

// cost says what the look has changed in the queue, as the end of a sentence about the look.
func (l *look) cost(reordered bool) string {
	if l.done.Looked == 0 {
		return ""
	}
	parts := []string{"marked the messages as redelivered"}
	withheld := l.terms.first && l.done.consumers > 0
	if withheld {
		parts = append(parts, fmt.Sprintf("made %s wait for %s", text.Count(l.done.consumers, "consumer"),
			text.Took(time.Duration(l.done.Took))))
	}
	l.done.costs = l.options.TellCost || withheld || l.terms.counts() || l.rescued > 0 || reordered ||
		l.terms.expires() || l.expiring > 0
	switch {
	case l.terms.counts():
		left := max(0, l.terms.limit-min(l.returned, l.terms.limit-1)-1)
		parts = append(parts, fmt.Sprintf("raised x-delivery-count by 1: %s %s left before the broker drops or dead-letters a message",
			text.Count(left, "return"), text.Choose(left, "is", "are")))
	case l.done.Type == topology.Quorum && !l.terms.nack():
		parts = append(parts, "raised x-delivery-count by 1, which nothing limits here")
	}
	if l.rescued > 0 {
		parts = append(parts, fmt.Sprintf("moved %s to the tail, as the broker would have dropped or dead-lettered %s",
			text.Count(l.rescued, "message"), text.Choose(l.rescued, "it", "them")))
	}
	switch {
	case reordered && l.terms.first:
		parts = append(parts, "may have let messages that arrived meanwhile overtake others")
	case reordered:
		parts = append(parts, "may have put the messages behind others that were returned earlier")
	}
	if l.terms.expires() || l.expiring > 0 {
		parts = append(parts, "delayed the expiry of messages that were due in that time until their return")
	}
	return strings.Join(parts, "; ")
}
