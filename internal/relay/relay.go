// Package relay moves messages, for all commands: it consumes, asks a [Handler] where each message
// goes, publishes it there, and acknowledges it.
//
// # Guarantee
//
// A message is acknowledged only after the broker has confirmed its copy. A copy is confirmed only
// once a queue has it: it is published as mandatory, and a returned one counts as refused. So a
// message is never lost. It may be duplicated:
//
//   - The relay dies before the publish: the broker redelivers the message; one copy.
//   - It dies after the publish, before the confirm: the message is redelivered, and the copy may
//     exist: at most one duplicate.
//   - It dies after the confirm, before the acknowledgement: the message is redelivered, and the
//     copy exists: one duplicate.
//   - It dies after the acknowledgement: one copy.
//
// Only messages that are published and not acknowledged at that moment can be duplicated, never
// more than the consumer's prefetch. Duplicates carry the same message-id. The same holds when the
// connection or the broker dies in place of the process, but for a classic queue whose node is
// killed: it forgets acknowledgements that it has not written to disk yet.
//
// A nack says that not all queues have the copy; some may. A message that goes to several queues
// gets into the others each time it is published, while one of them refuses it, and a full queue
// with the overflow reject-publish-dlx dead-letters each copy that it refuses. Such a message is
// published once if the handler says so, see [Move], and otherwise up to 8 times, as a queue nacks
// while it has no leader.
//
// Messages are published in the order in which they are delivered. A message that the broker
// refuses is tried again, then goes to the destination that the handler names for refused messages.
// A message without a confirm, because its queue has no leader, is waited for. Neither delays the
// messages behind it, as long as there are fewer of them than the prefetch.
package relay

import (
	"context"
	"errors"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
)

// Move is where a message goes.
type Move struct {
	Exchange string
	Key      string
	Message  amqp091.Publishing
	// Drop: the message goes nowhere. It is acknowledged, and so lost, because the handler says that
	// its owner wants that; the other fields but Note are not used.
	Drop bool
	// Partial: if the broker nacks the message, a queue may have it nevertheless: others of those to
	// which it goes, or the one to which its queue dead-letters what it refuses. It is not published
	// again then, and goes to Refused, as it would be doubled each time. Refused gets it with Partial
	// only if the broker has nacked it.
	Partial bool
	// Note belongs to the handler; the relay passes it to Moved.
	Note any
}

// Handler decides about messages. Its methods are called from the goroutine of Run only, one at a
// time.
type Handler interface {
	// Move returns where a delivered message goes.
	Move(d amqp091.Delivery) Move
	// Refused returns where a message goes that the broker has refused several times, for the
	// reason that it gave. The destination must accept everything; if even that one refuses the
	// message, Refused is asked each time, and Run tries again at growing intervals.
	Refused(d amqp091.Delivery, m Move, reason string) Move
	// Moved is called for a message whose copy is confirmed, or that is dropped.
	Moved(d amqp091.Delivery, m Move)
}

// Source is where messages come from: an amqp.Consumer.
type Source interface {
	Deliveries() <-chan amqp091.Delivery
	// Take returns a delivery with the headers that were published; it is called before anything
	// else.
	Take(d amqp091.Delivery) amqp091.Delivery
	Ack(tag uint64, multiple bool) error
	// Canceled reports whether the broker has ended the subscription, and may deliver again what it
	// had delivered.
	Canceled() bool
	// Forget marks the memory of a delivery as free. The delivery stays unacknowledged.
	Forget(tag uint64)
	// Full reports whether deliveries had to wait for memory, and the size of the largest.
	Full() (full bool, largest int)
	Cancel() error
	// Resume subscribes again after Cancel; Deliveries then returns another channel.
	Resume() error
	// Stop cancels, and discards what Deliveries has not returned yet.
	Stop() error
	// Settle makes sure, after Cancel or Stop, that the queue receives what was acknowledged.
	Settle() error
	Get() (amqp091.Delivery, bool, error)
	Err() error
}

// Sink is where messages go: an amqp.Publisher.
type Sink interface {
	Publish(exchange, key string, m amqp091.Publishing) (uint64, error)
	Settled() <-chan struct{}
	Outcomes() []amqp.Outcome
	Late() (oldest uint64, late []amqp.Outcome)
	Err() error
}

// Relay moves the messages of one queue.
type Relay struct {
	Source  Source
	Sink    Sink
	Handler Handler
	// Grace is how long Run continues with the messages in flight after ctx has ended. Zero is not
	// at all.
	Grace time.Duration
	// UntilEmpty makes Run end once nothing is in flight and basic.get finds the queue empty.
	UntilEmpty bool
	// ConfirmTimeout is how long Run waits for the confirm of a message before it fails with
	// ErrNoConfirm. Zero is forever. The time does not run while the broker accepts no messages at
	// all, because of an alarm.
	ConfirmTimeout time.Duration
	// Absent reports whether an exchange does not exist. A message for such an exchange counts as
	// refused and is not published: the broker would close the channel, with everything in flight
	// on it. Nil means that all exchanges exist.
	Absent func(exchange string) bool
	// Barred returns why the user may not publish a message to this exchange with this routing key:
	// the broker would close the channel. Such a message goes where Handler.Refused says, at once.
	// It is empty for others. Nil: each may be published. Caution.Begin sets it.
	Barred func(m Move) (why string)
	// Hold reports whether a message must not be published, as that would end the channel or the
	// connection. The message stays unacknowledged, and so in the queue. Nil holds none.
	// Caution.Begin sets this field and those below.
	Hold func(d amqp091.Delivery, m Move) bool
	// Admit is received from before each message is taken in: what sends to it sets the pace. Run
	// finds the queue empty only when it may take another message. Nil means no limit.
	Admit <-chan struct{}
	// Room reports whether a message may be published now. If not, it and those behind it wait in
	// their order, and Room is asked again. Nil: each may.
	Room func() bool
	// OneByOne makes Run have one message at a time between its publish and its acknowledgement,
	// for as many messages. Zero is off.
	OneByOne int
	// Places is how many messages may be unacknowledged while OneByOne is on.
	Places int
	// GrowBelow makes Run end with ErrAgain once it has moved enough messages, none of which had
	// more bytes: more of them may be in flight. Zero is off.
	GrowBelow int
	// RenewAfter is how long a message that waits may be unacknowledged before Run ends with
	// ErrAgain. Zero is 10 minutes.
	RenewAfter time.Duration

	ended ended
}

// ended is how a Run ended, for Caution.
type ended struct {
	why     string  // of ErrAgain
	inDoubt []Doubt // what was published and not confirmed
	sink    bool    // the error is of the sink
	moved   int
	held    int
	lasted  time.Duration
	waited  time.Duration // how long a message had waited when the broker canceled the consumer
}

// Doubt is a message that was published and not confirmed.
type Doubt struct {
	Delivery amqp091.Delivery
	Move     Move
}

// ErrAgain is the error of Run when nothing is wrong, nothing is in doubt, and the subscription is
// to be renewed, as Caution.Begin sets it up.
var ErrAgain = errors.New("the subscription must be renewed")

// ErrHeld is the error of Run with UntilEmpty when messages are left that must not be published.
var ErrHeld = errors.New("the broker refuses the messages that are left")

// ErrNoConfirm is the error of Run when the broker did not confirm a message in time. What is in
// flight is then in doubt; the broker redelivers it.
var ErrNoConfirm = errors.New("the broker has not confirmed a message in time; check that its queues have a leader")

// ErrGrace is the error of Run when messages were still in flight at the end of the grace period.
// The broker redelivers them.
var ErrGrace = errors.New("the grace period expired with messages in flight; the broker redelivers them")

// Run moves messages until ctx ends. It then stops the intake, continues for up to Grace with the
// messages in flight, and returns nil, or ErrGrace if that was not enough. If the broker ends the
// channel, Run returns the reason; what is in flight is then in doubt, and the broker redelivers
// it. If it ends the subscription alone, Run finishes what is in flight before. The caller only has
// to close the sink.
//
// It returns ErrAgain when nothing is wrong and Caution is to decide how to continue.
func (r *Relay) Run(ctx context.Context) error {
	l := newLoop(r)
	begin := time.Now()
	err := l.run(ctx)
	l.timer.Stop()
	r.ended = l.ended(err, time.Since(begin))
	return l.settle(err)
}

// settle makes sure that the queue has lost what was moved, before the caller closes the source: it
// would get all of it again otherwise, and a copy of each message exists. A Run that has failed
// reports that its messages are redelivered anyway.
func (l *loop) settle(err error) error {
	ended := err == nil || errors.Is(err, ErrAgain) || errors.Is(err, ErrHeld) || errors.Is(err, ErrGrace)
	if !ended && l.lost == nil {
		return err
	}
	if failed := l.Source.Settle(); failed != nil && !errors.Is(err, ErrGrace) && l.lost == nil {
		return failed
	}
	return err
}

// run is Run without the bookkeeping.
func (l *loop) run(ctx context.Context) error {
	look := time.NewTicker(lookTime)
	defer look.Stop()
	stop := ctx.Done()
	var grace <-chan time.Time
	for {
		if err := l.acknowledge(); err != nil {
			return err
		}
		if err := l.passed(); err != nil {
			return err
		}
		if err := l.advance(); err != nil {
			return err
		}
		if done, err := l.finished(); done || err != nil {
			return err
		}
		select {
		case <-l.admission():
			l.admitted = true
		case d, ok := <-l.intake():
			l.fruitless = l.fruitless && !ok
			if err := l.delivered(d, ok); err != nil {
				return err
			}
		case _, ok := <-l.Sink.Settled():
			for _, o := range l.Sink.Outcomes() {
				l.confirmed(o)
			}
			if !ok {
				l.sinkFailed = true
				_ = l.acknowledge() // the rest is redelivered
				return l.Sink.Err()
			}
		case <-l.timer.C:
			if err := l.again(); err != nil {
				return err
			}
		case <-l.crowded(): // to advance
		case now := <-look.C:
			if err := l.late(now); err != nil {
				return err
			}
			if err := l.look(now); err != nil {
				return err
			}
		case <-l.idle():
			if err := l.cancel(); err != nil {
				return err
			}
		case <-stop:
			stop, l.why = nil, ""
			if err := l.stop(); err != nil {
				return err
			}
			timer := time.NewTimer(l.Grace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			return ErrGrace
		}
	}
}
