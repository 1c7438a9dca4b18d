// Package relay is the one mover of messages: it consumes, lets a [Handler] say
// where each message goes, publishes it there, and acknowledges it.
//
// # Guarantee
//
// A message is acknowledged only after the broker has confirmed its copy, and a
// copy is confirmed only once a queue has it: it is published mandatory, and a
// returned one counts as refused. So a message is never lost. It may be doubled:
//
//   - dies before the publish: the broker delivers the message again; one copy.
//   - dies after the publish, before the confirm: it is delivered again, and the
//     copy may exist: doubled at most.
//   - dies after the confirm, before the acknowledgement: delivered again, and
//     the copy exists: doubled.
//   - dies after the acknowledgement: one copy.
//
// What can be doubled is what was published and not acknowledged at that moment,
// never more than the consumer's prefetch. Doubles carry the same message-id.
// The same holds when the connection or the broker dies in place of the process.
//
// Messages are published in the order in which they are delivered. One that the
// broker refuses is tried again, then goes to the place that the handler names
// for refused ones. One without a confirm, because its queue has no leader, is
// waited for. Neither holds up those behind it, as long as there are fewer of
// them than the prefetch.
package relay

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Move says where a message goes.
type Move struct {
	Exchange string
	Key      string
	Message  amqp.Publishing
	// Note is the handler's own; the relay hands it back in Moved.
	Note any
}

// Handler decides about messages. Its methods are called from the goroutine of
// Run alone, one at a time.
type Handler interface {
	// Move says where a delivered message goes.
	Move(d amqp.Delivery) Move
	// Refused says where a message goes that the broker would not take, again
	// and again, for the reason that it gave. It must be a place that takes
	// everything; if even that refuses it, Refused is asked each time, and Run
	// tries again, less and less often.
	Refused(d amqp.Delivery, m Move, reason string) Move
	// Moved is told of a message whose copy is confirmed.
	Moved(d amqp.Delivery, m Move)
}

// Source is where messages come from: a broker.Consumer.
type Source interface {
	Deliveries() <-chan amqp.Delivery
	// Take makes a delivery whole; it comes before all else.
	Take(d amqp.Delivery) amqp.Delivery
	Ack(tag uint64, multiple bool) error
	// Forget says that a delivery takes no memory any more. It stays with the
	// consumer, unacknowledged.
	Forget(tag uint64)
	// Full reports whether deliveries had to wait for memory, and the size of the
	// largest.
	Full() (full bool, largest int)
	Cancel() error
	// Stop cancels, and throws away what Deliveries has not given yet.
	Stop() error
	Get() (amqp.Delivery, bool, error)
	Err() error
}

// Relay moves the messages of one queue.
type Relay struct {
	Source  Source
	Sink    Sink
	Handler Handler
	// Grace is how long Run goes on with what is in flight after ctx has ended.
	// Zero means not at all.
	Grace time.Duration
	// UntilEmpty makes Run end once nothing is in flight and basic.get finds
	// the queue empty.
	UntilEmpty bool
	// ConfirmTimeout is how long to wait for the confirm of a message before
	// Run gives up with ErrNoConfirm. Zero means for ever. It does not run while
	// the broker takes no messages at all, because of an alarm.
	ConfirmTimeout time.Duration
	// Absent reports whether there is no such exchange. A message for one counts
	// as refused and is not published: the broker would close the channel, with
	// all that is in flight on it. Nil means that all are there.
	Absent func(exchange string) bool
	// Hold reports whether a message must not be published, as that would end the
	// channel or the connection. It stays unacknowledged, and so in the queue. Nil
	// holds none. Caution.Begin sets it, and what follows.
	Hold func(d amqp.Delivery, m Move) bool
	// OneByOne makes Run have one message at a time between its publish and its
	// acknowledgement, for as many messages. Zero is off.
	OneByOne int
	// Places is how many messages may be unacknowledged while OneByOne is on.
	Places int
	// GrowBelow makes Run end with ErrAgain once messages were moved, none of which
	// had more bytes: more of them may be in flight. Zero is off.
	GrowBelow int

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
}

// Doubt is a message that was published and not confirmed.
type Doubt struct {
	Delivery amqp.Delivery
	Move     Move
}

// ErrAgain is the error of Run when nothing is wrong, nothing is in doubt, and the
// queue is to be consumed anew, as Caution.Begin says.
var ErrAgain = errors.New("the queue is to be consumed anew")

// ErrHeld is the error of Run with UntilEmpty when messages are left that must not
// be published.
var ErrHeld = errors.New("messages are left that the broker does not take")

// ErrNoConfirm is the error of Run when the broker did not confirm a message in
// time. What is in flight is then in doubt; the broker delivers it again.
var ErrNoConfirm = errors.New("the broker has not confirmed a message in time: a queue may be without a leader")

// ErrGrace is the error of Run when messages were still in flight at the end of
// the grace. The broker delivers them again.
var ErrGrace = errors.New("messages were still in flight when the time to finish was over; the broker delivers them again")

// Run moves messages until ctx ends. It then takes no more, goes on for up to
// Grace with what is in flight, and returns nil, or ErrGrace if that was not
// enough. If the broker ends the subscription or the channel it returns why; what
// is in flight is then in doubt, and the broker delivers it again. All that is left
// to do with the sink is to close it.
//
// It returns ErrAgain when all is well and Caution is to decide how to go on.
func (r *Relay) Run(ctx context.Context) error {
	l := newLoop(r)
	begin := time.Now()
	err := l.run(ctx)
	l.timer.Stop()
	r.ended = l.ended(err, time.Since(begin))
	return err
}

// run is Run.
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
		if done, err := l.finished(); done || err != nil {
			return err
		}
		select {
		case d, ok := <-l.intake():
			if err := l.delivered(d, ok); err != nil {
				return err
			}
		case _, ok := <-l.Sink.Settled():
			for _, o := range l.Sink.Outcomes() {
				l.confirmed(o)
			}
			if !ok {
				l.sinkFailed = true
				_ = l.acknowledge() // what is not, is delivered again
				return l.Sink.Err()
			}
		case <-l.timer.C:
			if err := l.again(); err != nil {
				return err
			}
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
