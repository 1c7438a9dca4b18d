package relay

import (
	"errors"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
)

const (
	// tries is how many times a message is published to the first destination that the handler
	// named, before it goes to the destination for refused messages.
	tries = 4
	// nackTries is the same for a destination that nacks, 13 seconds in all: a queue that has just
	// lost its leader nacks until it has another. A full queue nacks too; once one message has
	// waited in vain, tries is enough.
	nackTries = 8
	// firstPause is the pause after the first refusal. It doubles each time.
	firstPause = 100 * time.Millisecond
	// longestPause is the longest pause: messages that no queue accepts keep waiting.
	longestPause = 30 * time.Second
	// absentPause is the longest pause for an exchange that does not exist.
	absentPause = 5 * time.Second
	// idleTime is how long nothing must arrive before basic.get checks whether the queue is empty.
	idleTime = 100 * time.Millisecond
	// longestIdle is the longest idleTime. It doubles each time the queue was not empty after all.
	longestIdle = 2 * time.Second
	// soonest is how long to wait at least before a message is published again while messages are
	// moved one by one.
	soonest = 10 * time.Millisecond
	// roomPause is the pause before Room is asked again.
	roomPause = 20 * time.Millisecond
	// lookTime is how often to check whether a confirm is missing while later ones have arrived.
	lookTime = 500 * time.Millisecond
)

// job is one message in flight.
type job struct {
	delivery amqp091.Delivery
	move     Move
	refusals int
	diverted int       // after how many refusals the handler named another destination; zero if it did not
	due      time.Time // when it is published again; zero while it is published
	done     bool      // confirmed
	held     bool      // not to be published
	taken    time.Time // when it was delivered
}

// loop is the state of one Run. It belongs to one goroutine.
type loop struct {
	*Relay
	deliveries  <-chan amqp091.Delivery // nil once the intake has ended
	canceled    bool                    // the subscription is over, because the queue seems empty
	stopping    bool
	lost        error           // why the broker has ended the subscription
	waited      time.Duration   // how long a message had waited then
	idleTime    time.Duration   // how long nothing must arrive now
	idleSince   time.Time       // since when nothing has arrived; zero while something is in flight
	fruitless   bool            // the renewed subscription has delivered nothing yet
	admitted    bool            // Admit has admitted a message that has not come yet
	pausedSince time.Time       // when the last message that was admitted came, or the loop began
	jobs        []*job          // in the order of delivery
	unsettled   map[uint64]*job // by the number that Publish returned
	waiting     []*job          // refused, to be published again
	behind      []*job          // wait for room
	timer       *time.Timer     // runs out when the first of waiting is due
	gaveUp      bool            // the last message that was nacked repeatedly was given up
	settled     bool            // there may be something to acknowledge
	why         string          // to end with ErrAgain once nothing is in flight; empty is not
	sinkFailed  bool            // the sink is why Run ends
	moved       int             // how many copies were confirmed
	held        int             // how many of jobs are held

	oldest uint64    // the earliest message without a confirm at the last look, or zero
	since  time.Time // when a look found it first
	stuck  bool      // two looks found the same
}

func newLoop(r *Relay) *loop {
	l := &loop{
		Relay: r, deliveries: r.Source.Deliveries(), unsettled: map[uint64]*job{}, timer: time.NewTimer(0),
		idleTime: idleTime, pausedSince: time.Now(),
	}
	l.timer.Stop()
	return l
}

func (l *loop) delivered(d amqp091.Delivery, ok bool) error {
	if ok {
		l.admitted, l.idleSince, l.pausedSince = false, time.Time{}, time.Now()
		d = l.Source.Take(d)
		j := &job{delivery: d, move: l.Handler.Move(d), taken: time.Now()}
		l.jobs = append(l.jobs, j)
		if l.Room != nil {
			l.behind = append(l.behind, j)
			return nil
		}
		return l.publish(j)
	}
	if l.canceled {
		l.deliveries = nil // all that had arrived are handled; finished continues
		return nil
	}
	return l.lose()
}

// lose ends Run after the broker has ended the subscription. If the channel goes on, what is in
// flight is confirmed and acknowledged first: of these messages the queue has taken back only those
// that it waited for too long, and it delivers again what is not acknowledged. So nothing is lost.
func (l *loop) lose() error {
	err := l.Source.Err()
	if !errors.Is(err, amqp.ErrCanceled) {
		return err
	}
	l.lost, l.waited, l.stopping, l.deliveries = err, l.waits(time.Now()), true, nil
	return nil
}

// advance publishes the messages for which there is room, in their order.
func (l *loop) advance() error {
	for len(l.behind) > 0 && !l.stopping && (l.OneByOne == 0 || len(l.unsettled) == 0) && l.Room() {
		j := l.behind[0]
		l.behind = l.behind[1:]
		if err := l.publish(j); err != nil {
			return err
		}
	}
	return nil
}

// crowded returns a channel that fires when Room is to be asked again. Nil: no message waits for
// that.
func (l *loop) crowded() <-chan time.Time {
	if len(l.behind) == 0 || l.stopping {
		return nil
	}
	return time.After(roomPause)
}

func (l *loop) publish(j *job) error {
	if l.Source.Canceled() { // it is delivered again, and would be doubled; it was not acknowledged
		return l.lose()
	}
	if j.move.Drop { // lost on purpose; not doubled, as there is no copy
		l.finish(j)
		return nil
	}
	if l.Hold != nil && l.Hold(j.delivery, j.move) {
		l.hold(j)
		return nil
	}
	if why := l.barred(j.move); why != "" && j.diverted == 0 && !l.absent(j.move) {
		j.refusals++
		l.settled = true // the messages behind it no longer wait for their acknowledgements
		l.divert(j, amqp.Outcome{Refused: why})
		return l.publish(j)
	}
	if why := l.unavailable(j.move); why != "" {
		l.refused(j, amqp.Outcome{Refused: why})
		if soon := time.Now().Add(absentPause); j.due.After(soon) {
			j.due = soon // asking costs the broker nothing
			l.rearm()
		}
		return nil
	}
	seq, err := l.Sink.Publish(j.move.Exchange, j.move.Key, j.move.Message)
	if err != nil {
		l.sinkFailed = true
		return err
	}
	j.due = time.Time{}
	l.unsettled[seq] = j
	return nil
}

// unavailable returns why a message cannot be published now; it is empty if it can be.
func (l *loop) unavailable(m Move) string {
	if l.absent(m) {
		return fmt.Sprintf("nothing can be published to exchange %q", m.Exchange)
	}
	return l.barred(m)
}

// absent reports whether nothing can be published to the exchange of a message: it waits, whatever
// the broker said of its key before.
func (l *loop) absent(m Move) bool { return l.Absent != nil && l.Absent(m.Exchange) }

// barred returns why the user may not publish a message with its key; it is empty otherwise.
func (l *loop) barred(m Move) string {
	if l.Barred == nil {
		return ""
	}
	return l.Barred(m)
}

// divert sends a message to the destination that the handler names for refused messages.
func (l *loop) divert(j *job, o amqp.Outcome) {
	j.move.Partial = j.move.Partial && o.Nacked // no queue has what was returned
	j.diverted, j.move = j.refusals, l.Handler.Refused(j.delivery, j.move, o.Refused)
}

// confirmed settles a published message.
func (l *loop) confirmed(o amqp.Outcome) {
	j, ok := l.unsettled[o.Seq]
	if !ok {
		return
	}
	delete(l.unsettled, o.Seq)
	if o.Refused == "" {
		l.gaveUp = l.gaveUp && (j.refusals == 0 || j.diverted > 0)
		l.finish(j)
		return
	}
	l.refused(j, o)
}

// finish notes that a message is where it belongs, so that it is acknowledged in its turn.
func (l *loop) finish(j *job) {
	j.done, l.settled = true, true
	l.moved++
	l.Handler.Moved(j.delivery, j.move)
}

// refused makes a message wait until it is published again.
func (l *loop) refused(j *job, o amqp.Outcome) {
	l.settled = true // the messages behind it no longer wait for their acknowledgements
	j.refusals++
	enough := tries
	switch {
	case o.Nacked && j.move.Partial:
		enough = 1
	case o.Nacked && !l.gaveUp:
		enough = nackTries
	}
	pause := min(firstPause<<min(j.refusals-j.diverted-1, 20), longestPause)
	switch {
	case j.diverted > 0: // even that destination refuses it
		j.move = l.Handler.Refused(j.delivery, j.move, o.Refused)
	case j.refusals >= enough:
		l.gaveUp = l.gaveUp || o.Nacked
		l.divert(j, o)
		pause = 0 // a new destination is tried at once
	}
	j.due = time.Now().Add(pause)
	l.waiting = append(l.waiting, j)
	l.rearm()
}

// late settles messages that are confirmed although an earlier one is not, and fails when that has
// lasted too long.
func (l *loop) late(now time.Time) error {
	oldest, late := l.Sink.Late()
	for _, o := range late {
		l.confirmed(o)
	}
	l.stuck = oldest != 0 && oldest == l.oldest
	if !l.stuck {
		l.oldest, l.since = oldest, now
		return nil
	}
	l.settled = true // the messages behind it no longer wait for its acknowledgement
	if l.ConfirmTimeout > 0 && now.Sub(l.since) >= l.ConfirmTimeout {
		return fmt.Errorf("%w: none within %s", ErrNoConfirm, text.Duration(l.ConfirmTimeout))
	}
	return nil
}

// again publishes the refused messages that are due.
func (l *loop) again() error {
	now := time.Now()
	waiting := l.waiting
	l.waiting = nil
	for _, j := range waiting {
		if j.due.After(now) || l.stopping || l.OneByOne > 0 && len(l.unsettled) > 0 {
			l.waiting = append(l.waiting, j)
			continue
		}
		if err := l.publish(j); err != nil { // one that is refused at once waits again
			return err
		}
	}
	l.rearm()
	return nil
}

// rearm sets the timer for the first of the waiting messages.
func (l *loop) rearm() {
	if len(l.waiting) == 0 || l.stopping {
		return
	}
	first := l.waiting[0].due
	for _, j := range l.waiting[1:] {
		if j.due.Before(first) {
			first = j.due
		}
	}
	wait := max(0, time.Until(first))
	if l.OneByOne > 0 {
		wait = max(wait, soonest) // another may be in flight
	}
	l.timer.Reset(wait)
}

// acknowledge acknowledges the messages that the broker may delete. Nothing is lost by it: it names
// only messages whose copies are confirmed. One acknowledgement covers all up to the first message
// without a confirm. If that message was refused, or its confirm is missing, it may wait for long:
// then those behind it are acknowledged one by one, or they would fill the prefetch.
func (l *loop) acknowledge() error {
	if !l.settled {
		return nil
	}
	l.settled = false
	n := 0
	for n < len(l.jobs) && l.jobs[n].done {
		n++
	}
	if n > 0 {
		if err := l.Source.Ack(l.jobs[n-1].delivery.DeliveryTag, true); err != nil {
			return err
		}
	}
	clear(l.jobs[:n]) // frees the bodies
	l.jobs = l.jobs[n:]
	if len(l.jobs) == 0 || l.jobs[0].refusals == 0 && !l.jobs[0].held && !l.stuck {
		return nil
	}
	kept := l.jobs[:0]
	for _, j := range l.jobs {
		if !j.done {
			kept = append(kept, j)
		} else if err := l.Source.Ack(j.delivery.DeliveryTag, false); err != nil {
			return err
		}
	}
	clear(l.jobs[len(kept):])
	l.jobs = kept
	return nil
}

// stop ends the intake. The broker redelivers what was delivered and not yet handled once the
// channel is closed.
func (l *loop) stop() error {
	if l.stopping {
		return nil
	}
	l.stopping = true
	l.deliveries = nil
	if l.canceled {
		return nil
	}
	return l.Source.Stop()
}

// idle returns a channel that fires when nothing has arrived for a while in a relay that ends when
// the queue is empty, and nil in any other. The regular looks do not begin that while anew: it may
// be longer than lookTime.
func (l *loop) idle() <-chan time.Time {
	if !l.UntilEmpty || l.canceled || l.stopping || l.paused() || len(l.jobs) > l.held {
		l.idleSince = time.Time{}
		return nil
	}
	if l.idleSince.IsZero() {
		l.idleSince = time.Now()
	}
	return time.After(time.Until(l.idleSince.Add(l.idleTime)))
}

// cancel ends the subscription, so that every ready message is in the queue again or here, and
// basic.get can prove that nothing is left.
func (l *loop) cancel() error {
	l.canceled = true
	return l.Source.Cancel()
}

// finished reports whether everything is done. A relay that ends when the queue is empty handles
// what basic.get still finds.
func (l *loop) finished() (bool, error) {
	if l.lost != nil && len(l.unsettled) == 0 {
		return true, l.lost
	}
	if l.stopping {
		// Refused messages that wait are left to the broker: they were not acknowledged.
		if len(l.unsettled) > 0 || l.why == "" {
			return len(l.unsettled) == 0, nil
		}
		return true, ErrAgain
	}
	if !l.canceled || l.deliveries != nil || l.paused() || len(l.jobs) > l.held {
		return false, nil
	}
	d, found, err := l.Source.Get()
	switch {
	case err != nil:
		return false, err
	case !found && l.held > 0:
		return true, ErrHeld
	case !found:
		return true, nil
	}
	if err := l.delivered(d, true); err != nil || l.lost != nil {
		return false, err
	}
	return false, l.resume()
}

// resume subscribes again when basic.get has found a message: a busy broker was slow to deliver,
// and one message at a time takes many times as long. A renewed subscription that has delivered
// nothing is not renewed again: the messages that are held may fill its prefetch.
func (l *loop) resume() error {
	if l.fruitless {
		return nil
	}
	if err := l.Source.Resume(); err != nil {
		return err
	}
	l.canceled, l.fruitless, l.deliveries = false, true, l.Source.Deliveries()
	l.idleTime = min(2*l.idleTime, longestIdle)
	return nil
}
