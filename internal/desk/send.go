package desk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// sendGrace is how long a run that stops waits for the messages in flight.
	sendGrace = 30 * time.Second
	// sendBytes is how many bytes may be in flight, headers included.
	sendBytes = 32 << 20
	// spare is how many messages may be held back without taking a place in flight.
	spare = 16
	// nowhere is an exchange that no message is published to.
	nowhere = "(no destination)"
)

// sender is one send of a hold. It is the handler of the relay.
type sender struct {
	*session
	router *router
	pacer  *pacer
	brake  *brake
	cancel context.CancelCauseFunc
	frame  int
	moved  int
	tried  int // messages that this pass of the relay has published, or is about to
	left   int
	read   time.Time // when the virtual host was read last, before the first message

	counting sync.Mutex
	goes     map[string]int // how many messages still go to each queue, see keepRoom
	bytes    int64          // of the bodies that are left
	deadly   string         // why a message must stay in the hold
}

// send moves what the hold has to where it goes, and ends the run once nothing is left.
//
// Nothing is lost: the relay acknowledges a message in the hold once the broker has confirmed its
// copy. A process that dies doubles at most the messages in flight, with the same message-id.
func (s *session) send(ctx context.Context, r Result, messages int) (Result, error) {
	r.Left, r.DoubledAtMost = messages, s.doubledAtMost(messages)
	if made, err := s.worker.openParked(ctx, s.manifest); err != nil {
		return r, err
	} else if made {
		if err := pause(ctx, amqp.SafeAge); err != nil {
			return r, err
		}
	}
	if s.manifest.deletes() {
		r.DoubledAtMost = min(s.worker.inDoubt, messages) // no process has sent any
		return s.deleteForever(ctx, r, messages)
	}
	whole := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	state, err := s.worker.desk.inspect(ctx)
	if err != nil {
		return r, err
	}
	x := s.newSender(ctx, cancel, messages, state)
	if err := x.startBrake(ctx); err != nil {
		return r, err
	}
	defer x.brake.close()
	if err := x.refuseToSend(ctx, false); err != nil { // to take, or to wait for the brake, may last minutes
		return r, err
	}
	kept := x.keepRoom(ctx)
	err = x.sendAll(ctx, r.DoubledAtMost)
	kept()
	r.DoubledAtMost = s.doubledAtMost(messages)
	switch {
	case err == nil && x.left > 0: // basic.get has found the hold empty
		r.Gone, x.left = x.left, 0
		err = stopped("the hold has no more messages: it was purged, a policy expired or dropped them, or another program has them unacknowledged")
	case err == nil:
		r.Ended, err = x.end(whole, ctx)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = context.Cause(ctx) // what was in progress says only that it was canceled
	}
	r.Left = x.left
	return x.result(r), err
}

// newSender returns a sender of so many messages, which does not listen yet. cancel ends ctx. state
// was read at this moment.
func (s *session) newSender(
	ctx context.Context, cancel context.CancelCauseFunc, messages int, state topology.State,
) *sender {
	x := &sender{
		session: s, router: s.worker.newRouter(ctx, s.manifest, state), cancel: cancel, left: messages,
		goes: maps.Clone(s.manifest.Goes), bytes: s.manifest.Bytes, read: time.Now(),
	}
	for queue, n := range x.goes {
		x.goes[queue] = min(n, messages)
	}
	x.pacer = &pacer{
		o: s.manifest.Send, waiting: x.waiting, backlogs: x.backlogs, say: x.tellSending, stop: cancel,
		idle: x.idle, named: s.manifest.Target.named(), messages: messages, wake: make(chan struct{}, 1),
		certain: func(ctx context.Context) string { return x.brake.certain(ctx) }, // startBrake sets it
	}
	return x
}

// startBrake begins to listen for failures. The caller closes the brake.
func (x *sender) startBrake(ctx context.Context) (err error) {
	if x.brake, err = x.listen(ctx, x.pacer.pause, x.failedAgain, x.unheard); err != nil {
		return err
	}
	x.pacer.pause("")
	if x.pacer.brake = x.brake; x.brake == nil {
		return nil
	}
	if x.brake.conn != nil { // it has read the virtual host, with the lock
		x.read = time.Now()
	}
	close(x.brake.begun)
	return nil
}

// result adds to r what was sent, and what was heard of it.
func (x *sender) result(r Result) Result {
	_, _ = x.idle() // it notes which
	r.Moved, r.FailedAgain, r.Unheard = x.moved, x.brake.count(), x.brake.unheard()
	r.SoFar = x.router.kind.goes == toWork && !x.manifest.back && !x.pacer.judged
	return r
}

// end ends a run of which all messages are sent. It closes the hold, and listens for failures
// meanwhile: both take some seconds, and neither needs the other. sending ends when too many
// messages have failed again, which is the error then: the hold is closed nevertheless, as nothing
// is left to resume.
func (x *sender) end(ctx, sending context.Context) (ended bool, err error) {
	var listening sync.WaitGroup
	listening.Go(func() { x.pacer.endBatch(sending) })
	err = x.worker.closeHold(ctx)
	listening.Wait()
	x.brake.atEnd(sending)
	if why, failed := errors.AsType[stopped](context.Cause(sending)); failed && err == nil {
		return true, why
	}
	return err == nil, err
}

// sendAll sends what the hold has. doubled is how many messages earlier processes may have doubled.
func (x *sender) sendAll(ctx context.Context, doubled int) error {
	if err := x.noteInFlight(ctx, doubled); err != nil {
		return err
	}
	if x.router.kind.Edits && !x.manifest.back {
		return x.sendEdited(ctx)
	}
	return x.run(ctx)
}

// run relays what the hold has.
func (x *sender) run(ctx context.Context) error {
	list, err := x.holdList(ctx)
	if err != nil {
		return err
	}
	defer list.Close() // the list comes back to the head of the hold
	d, run := x.worker.desk, x.manifest.Run
	caution := relay.Caution{Prefetch: x.prefetch(), Bytes: sendBytes, Report: x.report}
	var admit chan struct{}
	err = relay.Drive{
		Queue: topology.HoldName(d.Topology.Name, run), In: d.endpoint("sends " + run),
		Out: d.endpoint("publishes " + run), Caution: &caution,
		Relay: relay.Relay{
			Handler: x, Grace: sendGrace, UntilEmpty: true,
			Absent: func(exchange string) bool { return exchange == nowhere || caution.Refused(exchange) },
		},
		Open: func(_ context.Context, _, out *amqp.Conn) error { x.frame = out.FrameMax(); return nil },
		Start: func(move *relay.Relay) {
			deadly := move.Hold
			move.Hold = func(d amqp091.Delivery, m relay.Move) bool { return isRecord(run, d) || deadly(d, m) }
			admit = x.pacer.again()
			move.Admit = admit
		},
		Meanwhile: func(ctx context.Context) error {
			if admit != nil {
				x.pacer.run(ctx, admit)
			}
			<-ctx.Done()
			return nil
		},
		Passed: func(err error) { x.passed(ctx, err) },
	}.Run(ctx)
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, relay.ErrHeld) && (x.left == 0 || x.deadly == ""): // it held back records alone
		return nil
	case errors.Is(err, relay.ErrHeld):
		return stopped(x.deadly)
	default:
		return err
	}
}

// passed notes how many messages a pass of the relay may have doubled that has failed. The hold
// gets back what the broker knows no acknowledgement of: what it has not confirmed, and what was
// acknowledged just before the connection ended. That is no more than it may deliver at once.
func (x *sender) passed(ctx context.Context, err error) {
	ended := err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, relay.ErrAgain) || errors.Is(err, relay.ErrHeld)
	if !ended {
		x.doubt(min(x.tried, x.prefetch()))
	}
	x.tried = 0
}

// prefetch is how many messages of the hold are delivered at once.
func (x *sender) prefetch() int {
	if x.manifest.Send.paced() {
		return x.manifest.Send.inFlight() + spare // the pacer limits what is in flight
	}
	return x.manifest.Send.inFlight()
}

// report notes a message that stays in the hold.
func (x *sender) report(f relay.Finding) { x.deadly = fmt.Sprintf("%s: %v", f.Kind, f.Err) }

// holdList holds the list of the run unacknowledged, so that the relay does not meet it at the
// head: it acknowledges one by one behind a message that it holds back. The list stays in the
// hold until the end.
func (x *sender) holdList(ctx context.Context) (*amqp.Conn, error) {
	conn, err := amqp.DialToConsume(ctx, x.worker.desk.endpoint("keeps "+x.manifest.Run))
	if err != nil {
		return nil, err
	}
	others := false
	h := conn.Holder(topology.HoldName(x.worker.desk.Topology.Name, x.manifest.Run),
		amqp.HolderOptions{Messages: x.manifest.records()})
	err = h.Take(ctx, func(m amqp.Held) error {
		others = others || !isRecord(x.manifest.Run, m.Delivery)
		return nil
	})
	if err == nil && others { // it is not at the head; the relay holds it back
		err = h.Release() //nolint:contextcheck // it must happen after the end of ctx too
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// records is how many messages of the hold are the list.
func (m *manifest) records() int {
	n := max(1, (len(m.wanted)+entriesPerPart-1)/entriesPerPart)
	if m.edited != nil {
		n++
	}
	return n
}

// Move decides where a message goes.
func (x *sender) Move(d amqp091.Delivery) relay.Move {
	if isRecord(x.manifest.Run, d) {
		x.pacer.unused()
		return relay.Move{Exchange: nowhere} // it is held back
	}
	x.tried++
	return x.moveBy(x.router.route, d)
}

// moveBy decides where a message goes, and stops the run if it can go nowhere.
func (x *sender) moveBy(route func(amqp091.Delivery) (relay.Move, error), d amqp091.Delivery) relay.Move {
	m, err := route(d)
	if err == nil && x.frame > 0 && relay.HeaderSize(m.Message) > x.frame {
		err = fmt.Errorf("the headers of %s do not fit a frame", x.worker.desk.called(d, x.manifest.Queue))
	}
	if err != nil {
		x.cancel(stopped(err.Error()))
		return relay.Move{Exchange: nowhere}
	}
	m.Partial = x.router.partial(m)
	return m
}

// Refused stops the run: the message stays in the hold, and is not published again.
func (x *sender) Refused(_ amqp091.Delivery, m relay.Move, reason string) relay.Move {
	x.cancel(stopped("the broker does not accept a message for its target: " + reason))
	if m.Partial {
		x.doubt(1)
	}
	return relay.Move{Exchange: nowhere}
}

// Moved counts a message that has reached its target.
func (x *sender) Moved(_ amqp091.Delivery, m relay.Move) {
	x.arrived(m)
	x.moved++
	x.left--
	x.pacer.moved(x.moved)
	x.tellSending()
}

func (x *sender) tellSending() {
	if x.progress == nil {
		return
	}
	p := x.pacer.progress()
	p.Phase = Sending
	p.FailedAgain, p.LastFailure, p.LastFailureKey = x.brake.last()
	p.Unheard = x.brake.unheard()
	x.tell(p)
}

// waiting counts the messages that are ready in the queues that the run sends to, without streams.
func (x *sender) waiting() (counts, error) { return x.counted(x.ready) }

// counted counts something in each queue that the run sends to, without streams.
func (x *sender) counted(count func(queue string) (int, error)) (out counts, err error) {
	out = counts{}
	for _, queue := range x.router.drained {
		if out[queue], err = count(queue); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// idle names the queues that the run sends to and that have messages and no consumer. The brake
// notes them: that nothing failed there says nothing.
func (x *sender) idle() (out []string, err error) {
	for _, queue := range x.router.drained {
		ready, consumers, err := x.worker.conn.Holds(queue)
		if err != nil {
			return nil, fmt.Errorf("count the consumers of %s: %w", queue, err)
		}
		if ready > 0 && consumers == 0 {
			out = append(out, queue)
		}
	}
	x.brake.noteIdle(out)
	return out, nil
}

// ready returns how many messages are ready in a queue that the run sends to.
func (x *sender) ready(queue string) (int, error) {
	n, err := x.worker.conn.MessagesReady(queue)
	if err != nil {
		return 0, fmt.Errorf("count the messages of %s: %w", queue, err)
	}
	return n, nil
}

// deleteForever deletes the hold with the messages in it, as asked for: each is of the list, which
// a person has confirmed by its number.
func (s *session) deleteForever(ctx context.Context, r Result, messages int) (Result, error) {
	has, err := s.worker.desk.readHold(ctx, s.manifest.Run)
	if err != nil {
		return r, err
	}
	for key, n := range has.prints {
		if n > s.manifest.wanted[key].wanted {
			return r, fmt.Errorf("the hold has %d messages %s, and the list has %d", n, key, s.manifest.wanted[key].wanted)
		}
	}
	if has.messages != messages {
		return r, fmt.Errorf("the hold has %d messages, and %d were taken", has.messages, messages)
	}
	name := s.worker.desk.Topology.Name
	// Of a process that ends here the hold has all that the list wants: the next one takes nothing.
	step := stepExchange(name, s.manifest.Run, recordSending)
	if err := s.worker.conn.DeleteExchange(step, amqp.Conditions{}); err != nil {
		return r, err
	}
	hold := topology.HoldName(name, s.manifest.Run)
	// These messages are discarded: the hold has what the list says and nothing else, and nothing
	// but this run, whose only worker this process is, puts messages into it.
	if err := s.worker.conn.DeleteQueue(hold, amqp.Conditions{}); err != nil {
		return r, err
	}
	r.Moved, r.Left, r.Ended = messages, 0, true
	return r, nil
}
