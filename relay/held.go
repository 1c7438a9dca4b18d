package relay

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// renewTime is how long a message may be unacknowledged before the queue is
	// consumed anew. The broker ends the channel of a consumer that takes longer than
	// its consumer_timeout, half an hour by default, with all that is in flight then.
	renewTime = 10 * time.Minute
	// growAfter is how many messages must be moved before more may be in flight, for
	// each of those that may be now. Less than prefetch ones show nothing.
	growAfter = 64
)

// Why a Run ended with ErrAgain.
const (
	whyPassed = "passed" // OneByOne messages were moved
	whyPlaces = "places" // all Places are taken by messages that wait
	whyBytes  = "bytes"  // deliveries waited for memory
	whyGrow   = "grow"   // messages are small again
	whyRenew  = "renew"  // a message is unacknowledged for long
)

// hold leaves a message where it is. It keeps nothing of it but its place.
func (l *loop) hold(j *job) {
	j.held, l.settled = true, true // those behind it wait no longer for its acknowledgement
	l.held++
	l.Source.Forget(j.delivery.DeliveryTag)
	j.delivery.Body, j.move = nil, Move{}
}

// intake gives the deliveries, but for a message at a time where that was asked for.
func (l *loop) intake() <-chan amqp.Delivery {
	if l.OneByOne > 0 && (len(l.unsettled) > 0 || l.moved >= l.OneByOne) {
		return nil
	}
	return l.deliveries
}

// end takes no more messages, and lets Run return ErrAgain once nothing is in flight.
// Nothing is in doubt then, and what waits the broker delivers again.
func (l *loop) end(why string) error {
	if l.stopping || l.cancelled {
		return nil
	}
	l.why = why
	return l.stop()
}

// passed ends a Run that moves messages one by one when it has moved enough, or
// when those that wait leave no place for another one.
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

// look ends a Run that must consume anew.
func (l *loop) look(now time.Time) error {
	full, largest := l.Source.Full()
	waits := len(l.jobs) > 0 && (l.jobs[0].held || l.jobs[0].refusals > 0)
	switch {
	case full:
		return l.end(whyBytes)
	case waits && now.Sub(l.jobs[0].taken) > renewTime:
		return l.end(whyRenew)
	case l.moved >= growAfter && largest < l.GrowBelow:
		return l.end(whyGrow)
	default:
		return nil
	}
}

// ended says how it ended.
func (l *loop) ended(err error, lasted time.Duration) ended {
	e := ended{why: l.why, sink: l.sinkFailed, moved: l.moved, held: l.held, lasted: lasted}
	if err == nil {
		return e
	}
	for _, j := range l.unsettled {
		e.inDoubt = append(e.inDoubt, Doubt{j.delivery, j.move})
	}
	return e
}
