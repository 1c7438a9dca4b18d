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

// startEcho starts to hear what comes back.
func (s *session) startEcho(
	ctx context.Context, state topology.State, listened []string, heard func(failures),
) *echo {
	e := &echo{session: s, listened: listened, heard: heard, looks: -1, end: func() {}}
	t, err := termsOf(state, s.manifest.Queue)
	switch {
	case err != nil:
	case t.queue.Type() == topology.Stream:
		e.deafen("it is a stream")
	case s.resumed: // what came back before is not a failure of this process
		e.before = e.look(ctx, true).n
	default:
		e.ready, _, err = s.worker.conn.Holds(s.manifest.Queue)
	}
	if err != nil {
		e.deafen(err.Error())
		return e
	}
	if t.counts() {
		e.looks = echoLooks
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	e.end = func() { cancel(); running.Wait() }
	running.Go(func() {
		for pause(ctx, echoPause) == nil {
			e.check(ctx, false)
		}
	})
	return e
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
// waits for other looks at the queue, and hears nothing any more if it cannot find out.
func (e *echo) check(ctx context.Context, sure bool) {
	if e == nil {
		return
	}
	e.mu.Lock()
	var found failures
	if e.deafness() == "" && (sure || time.Now().After(e.next)) {
		found = e.count(ctx, sure)
	}
	found.n -= e.before
	e.mu.Unlock()
	if found.n > 0 {
		e.heard(found)
	}
}

// count counts the messages of the queue, and looks at it if the number has changed.
func (e *echo) count(ctx context.Context, sure bool) (found failures) {
	conn, queue := e.session.worker.conn, e.session.manifest.Queue
	ready, consumers, err := conn.Holds(queue)
	if err == nil && (consumers > 0 || ready != e.ready) && (sure || consumers == 0) {
		ready, consumers, err = conn.Settled(ctx, queue, 0) // what a look had is back
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.deafen(err.Error())
	case consumers > 0 && sure:
		e.deafen("another program consumes from it")
	case consumers > 0, ready == e.ready && (!sure || !e.fell):
	default:
		e.fell = e.fell || ready < e.ready
		return e.lookAlone(ctx, sure)
	}
	return found
}

// lookAlone looks at the queue while no other run takes messages from it.
func (e *echo) lookAlone(ctx context.Context, sure bool) (found failures) {
	d, queue := e.session.worker.desk, e.session.manifest.Queue
	l := wish{
		what: "listens at " + queue, queue: topology.DeskLockName(d.Topology.Name, queue),
		taken: "another desk works on it", fix: "wait until it has ended",
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
	case errors.Is(err, ErrRefused) && !sure:
	case err != nil:
		e.deafen(err.Error())
	default:
		found = e.look(ctx, sure)
	}
	return found
}

// look counts the messages of the run that are in the queue. Without sure, one that is refused, as
// another desk begins to look at this moment, is left to the next check, unless it has used up a
// return: the next one would use up another.
func (e *echo) look(ctx context.Context, sure bool) (found failures) {
	d, m := e.session.worker.desk, e.session.manifest
	if e.looks == 0 {
		e.deafen("each look uses up a return of its messages")
		return found
	}
	e.looks--
	began := time.Now()
	looked, err := d.Look(ctx, m.Queue, LookOptions{}, func(dead deadletter.Message) error {
		if deadletter.RunOf(dead.Delivery) != m.Run {
			return nil
		}
		if v := d.reader().Head(dead); !slices.Contains(e.listened, v.WorkQueue) { // the brake has heard those
			found = failures{found.n + 1, cmp.Or(v.Error, v.Cause), v.Key}
		}
		return nil
	})
	e.next = time.Now().Add(max(echoTime, echoShare*time.Since(began)))
	if limited := e.looks >= 0; errors.Is(err, ErrRefused) && !sure && (looked.Looked == 0 || !limited) {
		e.looks++
		return failures{}
	}
	e.ready = looked.Messages
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.deafen(err.Error())
	case looked.Missed != "":
		e.deafen(fmt.Sprintf("a look reached %d of its %d messages", looked.Looked, looked.Messages))
	}
	return found
}

// comesBack reports whether a message that has this key in a queue goes to another queue when a
// consumer rejects it.
func comesBack(way *route.Router, queue, key, to string) bool {
	result := way.DeadLetter(queue, route.Message{Keys: []string{key}}, route.Rejected)
	return slices.Contains(result.Queues, to)
}
