package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// echoPause is the pause between two counts of the queue from which a run took its messages.
	echoPause = 500 * time.Millisecond
	// echoTime is the least time from the end of a look at it to the next, and echoShare how many
	// times the duration of a look: other dead letters may arrive all the time.
	echoTime  = 2 * time.Second
	echoShare = 10
	// echoLooks is how many looks a run makes at a queue in which each look uses up a return.
	echoLooks = 3
)

// echo hears messages of a run that come back to the queue from which the run took them: a consumer
// has rejected them, or its framework has published them there, and they are dead letters again. It
// is for target queues that do not dead-letter to the topology, to which the brake cannot listen.
//
// It counts the messages of the queue, and looks at the queue when the number has changed. Nothing
// is lost: a look acknowledges nothing and keeps the order, see [Desk.Look]. It has the lock of the
// queue meanwhile, so that no other run takes messages from it that the look holds.
type echo struct {
	session *session
	// listened are the queues whose failures the brake hears.
	listened []string
	// heard is called with all that came back so far.
	heard func(failures)
	end   func()

	mu sync.Mutex
	// looks is how many looks are left; negative means no limit.
	looks int
	ready int // messages that the queue had at the latest look
	// fell: another program takes messages, so that the same number may be other messages.
	fell   bool
	before int // messages of the run that the queue had when this process began
	next   time.Time

	// deaf is why it hears nothing any more; nil if it does. Progress reads it during a look.
	deaf atomic.Pointer[string]
}

// failures are messages that came back.
type failures struct {
	n        int
	why, key string // of the last one
}

// startEcho starts to hear for a brake what comes back. It waits for so long at most while others
// keep it from finding out what had come back before, see patient.
func (s *session) startEcho(
	ctx context.Context, state topology.State, b *brake, longest time.Duration, waiting func(string),
) (*echo, error) {
	e := &echo{session: s, listened: b.listened, heard: b.cameBack, looks: -1, end: func() {}}
	t, err := termsOf(state, s.manifest.Queue)
	switch {
	case err != nil:
	case t.queue.Type() == topology.Stream:
		e.deafen("it is a stream")
	case s.resumed: // what came back before is not a failure of this process
		if err := e.lookBefore(ctx, longest, waiting); err != nil {
			return nil, err
		}
	default:
		e.ready, _, err = s.worker.conn.Holds(s.manifest.Queue)
	}
	if err != nil {
		e.deafen(err.Error())
		return e, nil
	}
	if t.counts() {
		e.looks = echoLooks
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	e.end = func() { cancel(); running.Wait() }
	running.Go(func() {
		for pause(ctx, echoPause) == nil {
			_ = e.check(ctx, false) // the next check follows
		}
	})
	return e, nil
}

// lookBefore counts the messages of the run that came back before this process.
func (e *echo) lookBefore(ctx context.Context, longest time.Duration, waiting func(string)) error {
	busy := patient(ctx, longest, waiting, func() (busy string) {
		var found failures
		found, busy = e.look(ctx, true)
		e.before = found.n
		return busy
	})
	switch {
	case busy == "":
		return nil
	case longest > 0:
		return unseen(busy)
	}
	e.deafen(busy)
	return nil
}

// deafness says why the echo hears nothing any more. Empty: it hears.
func (e *echo) deafness() string {
	if why := e.deaf.Load(); why != nil {
		return *why
	}
	return ""
}

func (e *echo) deafen(why string) { e.deaf.Store(&why) }

// check looks for messages that came back, if the number of messages has changed. With sure it also
// waits for other looks at the queue, and hears nothing any more if it cannot find out. It returns
// why others keep it from finding out at this moment. Empty: they do not.
func (e *echo) check(ctx context.Context, sure bool) (busy string) {
	if e == nil {
		return ""
	}
	e.mu.Lock()
	var found failures
	if e.deafness() == "" && (sure || time.Now().After(e.next)) {
		found, busy = e.count(ctx, sure)
	}
	found.n -= e.before
	e.mu.Unlock()
	if found.n > 0 {
		e.heard(found)
	}
	return busy
}

// consumed is why the queue cannot be looked at while another desk looks.
func (e *echo) consumed() string {
	return fmt.Sprintf("another program consumes from %s; wait until it has ended", text.Name(e.session.manifest.Queue))
}

// count counts the messages of the queue, and looks at it if the number has changed.
func (e *echo) count(ctx context.Context, sure bool) (found failures, busy string) {
	conn, queue := e.session.worker.conn, e.session.manifest.Queue
	ready, consumers, err := conn.Holds(queue)
	if err == nil && (consumers > 0 || ready != e.ready) && (sure || consumers == 0) {
		ready, consumers, err = conn.Settled(ctx, queue, 0) // what a look had is back
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.deafen(err.Error())
	case consumers > 0:
		busy = e.consumed()
	case ready == e.ready && (!sure || !e.fell):
	default:
		e.fell = e.fell || ready < e.ready
		return e.lookAlone(ctx, sure)
	}
	return found, busy
}

// lookAlone looks at the queue while no other run takes messages from it.
func (e *echo) lookAlone(ctx context.Context, sure bool) (found failures, busy string) {
	d, queue := e.session.worker.desk, e.session.manifest.Queue
	l := wish{
		what: "listens at " + queue, queue: topology.DeskLockName(d.Topology.Name, queue),
		taken: "another desk works on " + text.Name(queue), fix: "wait until it has ended",
	}
	if sure {
		l.wait = lockTime
	}
	conn, err := d.lock(ctx, l)
	if err == nil { // also if the run has ended meanwhile: the lock would stay with this process
		defer func() { _ = conn.Close() }() // nothing is in progress on it
	}
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, ErrRefused):
		busy = err.Error()
	case err != nil:
		e.deafen(err.Error())
	default:
		return e.look(ctx, sure)
	}
	return found, busy
}

// look counts the messages of the run that are in the queue. One that is refused, as another desk
// begins to look at this moment, is left to the next check. Without sure so is any that is refused,
// unless it has used up a return: the next one would use up another.
func (e *echo) look(ctx context.Context, sure bool) (found failures, busy string) {
	d, m := e.session.worker.desk, e.session.manifest
	if e.looks == 0 {
		e.deafen("each look uses up a return of its messages")
		return found, ""
	}
	e.looks--
	began := time.Now()
	looked, err := d.Look(ctx, m.Queue, LookOptions{}, func(dead deadletter.Message) error {
		if deadletter.RunOf(dead.Delivery) != m.Run {
			return nil
		}
		v := d.reader().Head(dead)
		if slices.Contains(e.listened, v.WorkQueue) { // the brake has heard it
			return nil
		}
		found.n++
		if d.Reader != nil { // or nothing tells what to mask
			found.why, found.key = cmp.Or(v.Error, v.Cause), v.Key
		}
		return nil
	})
	e.next = time.Now().Add(max(echoTime, echoShare*time.Since(began)))
	if errors.Is(err, ErrRefused) {
		limited := e.looks >= 0
		switch {
		case looked.Looked == 0 && looked.consumers > 0:
			e.looks++
			return failures{}, e.consumed()
		case !sure && (looked.Looked == 0 || !limited):
			e.looks++
			return failures{}, ""
		}
	}
	e.ready = looked.Messages
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.deafen(err.Error())
	case looked.Missed != "":
		e.deafen(fmt.Sprintf("a look reached %d of its %d messages", looked.Looked, looked.Messages))
	}
	return found, ""
}

// comesBack reports whether a message that has this key in a queue goes to another queue when a
// consumer rejects it.
func comesBack(way *route.Router, queue, key, to string) bool {
	result := way.DeadLetter(queue, route.Message{Keys: []string{key}}, route.Rejected)
	return slices.Contains(result.Queues, to)
}
