package relay

import (
	"cmp"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	// renewTime is how long a message may be unacknowledged before the subscription is renewed. The
	// broker ends the channel of a consumer that takes longer than its consumer_timeout, half an
	// hour by default, with everything in flight then. Caution takes less once it knows of less.
	renewTime = 10 * time.Minute
	// leastRenewTime is the least to which it is set as a queue has canceled a consumer.
	leastRenewTime = 10 * time.Second
	// growAfter is how many messages must be moved before more may be in flight, for each message
	// that may be now. Fewer messages than the prefetch prove nothing.
	growAfter = 64
)

// Why a Run ended with ErrAgain.
const (
	whyPassed = "passed" // OneByOne messages were moved
	whyPlaces = "places" // all Places are taken by messages that wait
	whyBytes  = "bytes"  // deliveries waited for memory
	whyGrow   = "grow"   // messages are small again
	whyRenew  = "renew"  // a message has been unacknowledged for long, or may have
)

// hold leaves a message in the queue. Only its place among the deliveries is kept.
func (l *loop) hold(j *job) {
	j.held, l.settled = true, true // the messages behind it no longer wait for its acknowledgement
	l.held++
	l.Source.Forget(j.delivery.DeliveryTag)
	j.delivery.Body, j.move = nil, Move{}
}

// paused reports whether no message may be taken in until Admit admits one.
func (l *loop) paused() bool { return l.Admit != nil && !l.admitted }

// admission returns Admit while nothing is admitted.
func (l *loop) admission() <-chan struct{} {
	if l.admitted || l.stopping {
		return nil
	}
	return l.Admit
}

// intake returns the deliveries, or nil while messages are moved one by one and one is in flight,
// and while none is admitted. Once the subscription is canceled it returns also those beyond
// OneByOne: Run does not end with ErrAgain then, and asks the queue only when none is left.
func (l *loop) intake() <-chan amqp091.Delivery {
	if l.paused() {
		return nil
	}
	if l.OneByOne > 0 && (len(l.unsettled) > 0 || l.moved >= l.OneByOne && !l.canceled) {
		return nil
	}
	return l.deliveries
}

// end stops the intake, and makes Run return ErrAgain once nothing is in flight. Nothing is in
// doubt then, and the broker redelivers the messages that wait.
func (l *loop) end(why string) error {
	if l.stopping || l.canceled {
		return nil
	}
	l.why = why
	return l.stop()
}

// passed ends a Run that moves messages one by one when it has moved enough, or when the waiting
// messages leave no room for another.
func (l *loop) passed() error {
	switch {
	case l.OneByOne == 0 || len(l.unsettled) > 0:
		return nil
	case l.moved >= l.OneByOne:
		return l.end(whyPassed)
	case len(l.jobs) >= l.Places:
		return l.end(whyPlaces)
	default:
		return nil
	}
}

// look ends a Run whose subscription must be renewed.
func (l *loop) look(now time.Time) error {
	full, largest := l.Source.Full()
	switch {
	case full:
		return l.end(whyBytes)
	case l.waits(now) > cmp.Or(l.RenewAfter, renewTime):
		return l.end(whyRenew)
	case l.moved >= growAfter && largest < l.GrowBelow:
		return l.end(whyGrow)
	default:
		return nil
	}
}

// waits returns for how long a message has waited unacknowledged, or may have: while nothing is
// admitted, messages wait that were delivered and not taken in.
func (l *loop) waits(now time.Time) (longest time.Duration) {
	if len(l.jobs) > 0 && (l.jobs[0].held || l.jobs[0].refusals > 0) {
		longest = now.Sub(l.jobs[0].taken)
	}
	if l.paused() {
		longest = max(longest, now.Sub(l.pausedSince))
	}
	return longest
}

// ended returns how the Run ended.
func (l *loop) ended(err error, lasted time.Duration) ended {
	e := ended{why: l.why, sink: l.sinkFailed, moved: l.moved, held: l.held, lasted: lasted, waited: l.waited}
	if err == nil {
		return e
	}
	for _, j := range l.unsettled {
		e.inDoubt = append(e.inDoubt, Doubt{j.delivery, j.move})
	}
	return e
}
