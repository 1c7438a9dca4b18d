package desk

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/jsondoc"
	"github.com/dlxctl/dlxctl/topology"
)

// holdTimeOf is how long a pass over a queue with that many messages may hold them.
func holdTimeOf(messages int) time.Duration {
	return time.Minute + time.Duration(messages)*time.Millisecond
}

// newRun returns a name that no other run has.
func (d *Desk) newRun() string {
	return d.now().UTC().Format("20060102-150405-") + strings.ToLower(rand.Text()[:6])
}

// Execute does what was proposed: it writes the list of chosen messages into a hold, takes the
// messages, and sends them; a few it sends without a hold, see sendDirect. When ctx ends it stops
// at a moment where nothing is lost, and a run with a hold can be resumed. progress may be nil.
func (d *Desk) Execute(ctx context.Context, p Proposal, progress func(Progress)) (Result, error) {
	if len(p.Refusals) > 0 {
		return Result{}, refusef("%s", p.Refusals[0])
	}
	if p.Chosen == 0 {
		return Result{}, nil
	}
	m := p.manifest
	m.Run, m.By = d.newRun(), d.By
	return d.onRun(ctx, m.Run, func(ctx context.Context, w *worker) (Result, error) {
		// Before the hold exists: a run that finds the queue locked leaves nothing behind.
		if err := w.lockQueue(ctx, m.Queue); err != nil {
			return Result{}, unbegun{err}
		}
		// The proposal may be old. This read serves a direct run, too: it is later than the lock of the
		// queue, so that no other run of the topology can begin to take from it.
		state, err := d.inspect(ctx)
		if err == nil {
			err = refuseStream(state, m.Queue) // it may be another queue by now
		}
		if err == nil {
			err = w.refuseDropping(ctx, state, &m, m.Goes, m.Bytes)
		}
		if err != nil {
			return Result{}, unbegun{err}
		}
		m.Started, m.TTL = d.now().UTC(), ttlIn(state, m.Queue)
		s := &session{worker: w, manifest: &m, progress: progress}
		if r, done, err := s.sendDirect(ctx, state, p.Looked.Looked); done {
			return w.describe(&m, r), err
		}
		if err := refuseAlarm(state); err != nil {
			return Result{}, unbegun{err}
		}
		if err := w.openHold(ctx, &m); err != nil {
			return Result{}, err
		}
		r, err := s.takeAndSend(ctx, nil)
		return w.describe(&m, r), err
	})
}

// describe adds to the result of a run what its list tells.
func (w *worker) describe(m *manifest, r Result) Result {
	d := w.desk
	w.record.ChosenBy, w.record.Returned = m.ChosenBy, m.back
	r.Action, r.Queue, r.Chosen, r.Begun, r.By, r.Reason = m.Action, m.Queue, m.Chosen, m.Started, m.By, m.Reason
	r.Deletes, r.Parked = m.deletes(), m.Queue == topology.ParkedName(d.Topology.Name)
	r.InDoubt = min(w.inDoubt, r.DoubledAtMost)
	if d.By != m.By {
		r.Continued = d.By
	}
	switch goes := m.Action.Kind().goes; {
	case m.back:
		r.To = []string{m.Queue}
	case goes == toWork, goes == toOrigin, goes == toDead:
		r.To = slices.Clone(m.Watch)
	case m.parks():
		r.To = []string{topology.ParkedName(d.Topology.Name)}
	}
	return r
}

// onRun works on a run as its only worker, and says how the work ended. If it could not begin the
// result is empty.
func (d *Desk) onRun(
	ctx context.Context, run string, work func(context.Context, *worker) (Result, error),
) (r Result, err error) {
	began := time.Now()
	if err := d.permit(ctx, d.ownRights(run), nil); err != nil {
		return Result{}, err
	}
	w, within, err := d.work(ctx, run)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	defer func() {
		if r.Ended {
			d.keep(ctx, w.ended(r, err))
		}
	}()
	r, err = work(within, w)
	if r.Ended && within.Err() == nil {
		w.dropEmptyParked(within)
	}
	begin, notBegun := errors.AsType[unbegun](err)
	if cause := context.Cause(within); cause != nil && errors.Is(err, context.Canceled) {
		err, begin = cause, unbegun{cause} // a request that was in progress says only that it was canceled
	}
	if notBegun {
		return Result{}, begin.error
	}
	r.Run, r.Took = run, jsondoc.Seconds(time.Since(began))
	if why, ok := errors.AsType[stopped](err); ok {
		r.Stopped, err = string(why), nil
	}
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		r.Stopped = "interrupted"
		return r, nil
	case errors.Is(err, ErrRefused):
		return r, err
	case r.Direct:
		return r, fmt.Errorf("run %s: %w; nothing is lost: what was not sent is still in the queue", run, err)
	default:
		return r, fmt.Errorf("run %s: %w; nothing is lost: 'dlxctl desk run resume %s' continues, and 'dlxctl desk run return %s' gives back",
			run, err, run, run)
	}
}

// unbegun is why a run has no hold yet: nothing was moved, and there is nothing to continue.
type unbegun struct{ error }

// Unwrap returns the cause.
func (e unbegun) Unwrap() error { return e.error }

// session is the work of one process on a run.
type session struct {
	worker   *worker
	manifest *manifest
	progress func(Progress)
	telling  sync.Mutex
	// direct: the run has no hold, see sendDirect.
	direct bool
	// resumed: an earlier process may have sent some.
	resumed bool
	// doubledBefore is how many messages the process before this one may have doubled, and
	// doubledEarlier how many those before that one.
	doubledBefore, doubledEarlier int
}

// doubt notes that n messages may be doubled although no process was killed.
func (s *session) doubt(n int) {
	s.doubledBefore += n
	s.worker.inDoubt += n
}

// doubledAtMost returns how many of so many messages may be doubled.
func (s *session) doubledAtMost(messages int) int {
	return s.doubledEarlier + min(s.doubledBefore, messages)
}

// again is what continues the run once the reason is gone for which it stopped.
func (s *session) again() string {
	if s.direct {
		return "do the rest"
	}
	return fmt.Sprintf("'dlxctl desk run resume %s'", s.manifest.Run)
}

func (s *session) tell(p Progress) {
	if s.progress == nil {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	p.Run, p.Chosen = s.manifest.Run, s.manifest.Chosen
	s.progress(p)
}

// takeAndSend takes what is still to be taken, and sends what the hold has. has is what another
// process has left in the hold; nil is nothing.
func (s *session) takeAndSend(ctx context.Context, has *contents) (Result, error) {
	w, m := s.worker, s.manifest
	if has != nil {
		if err := w.refuseSpent(ctx, m); err != nil {
			return Result{Left: has.messages}, err
		}
	}
	t, err := w.take(ctx, m, has, func(done int) { s.tell(Progress{Phase: Taking, Done: done}) })
	if err != nil {
		left := 0
		if t != nil {
			left = t.taken
		}
		return Result{Left: left}, err
	}
	r := Result{Missing: t.left, Reordered: t.reordered}
	s.doubt(t.inDoubt)
	return s.sendTaken(ctx, r, t.taken)
}

// refuseSpent refuses to take once more from a queue that limits returns, if a message of it has
// too few left: each process that takes returns what it does not choose. It looks, as others may
// have returned messages too since the run began. A look harms none.
func (w *worker) refuseSpent(ctx context.Context, m *manifest) error {
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	if t, err := termsOf(state, m.Queue); err != nil || !t.limited {
		return err
	}
	o := LookOptions{Live: m.live(), BesideConsumers: true}
	looked, err := w.desk.Look(ctx, m.Queue, o, func(deadletter.Message) error { return nil })
	if errors.Is(err, ErrRefused) {
		looked.spent = err.Error()
	} else if err != nil {
		return err
	}
	if looked.spent == "" {
		return nil
	}
	return refusef("%s; then 'dlxctl desk run resume %s' continues, or 'dlxctl desk run return %s' gives back what was taken",
		looked.spent, m.Run, m.Run)
}

// sendTaken notes that all is taken, and sends what the hold has.
func (s *session) sendTaken(ctx context.Context, r Result, taken int) (Result, error) {
	if err := s.worker.endTaking(ctx, recordSending); err != nil {
		r.Left = taken
		return r, err
	}
	s.worker.freeQueue()
	return s.send(ctx, r, taken)
}

// endTaking notes the step with which nothing may be taken any more. Until then the exchange keeps
// other runs away from the queue, see refuseUnfinished.
func (w *worker) endTaking(ctx context.Context, step string) error {
	if err := w.noteStep(ctx, step); err != nil || w.takeExchange == "" {
		return err
	}
	return w.conn.DeleteExchange(w.takeExchange, amqp.Conditions{})
}

// completeSending does the rest of endTaking after a process that was stopped once the hold had the
// record that it sends. The record is not written again: each counts as a message that is left.
func (w *worker) completeSending(ctx context.Context) error {
	if w.takeExchange == "" {
		return nil // it had done all
	}
	if err := w.markStep(ctx, recordSending); err != nil {
		return err
	}
	return w.conn.DeleteExchange(w.takeExchange, amqp.Conditions{})
}

// Resume continues a run. Options that are not nil replace those of the run.
func (d *Desk) Resume(ctx context.Context, id string, o *SendOptions, progress func(Progress)) (Result, error) {
	return d.onRun(ctx, id, func(ctx context.Context, w *worker) (Result, error) {
		w.record.Resumed = true
		if err := w.awaitInFlight(ctx); err != nil {
			return Result{}, err
		}
		has, err := d.readHold(ctx, id)
		if err != nil {
			return Result{}, err
		}
		switch {
		case has.gone:
			return Result{}, refusef("there is no run %s; 'dlxctl desk run list' lists those that have not ended", id)
		case !has.complete() && has.messages == 0 && w.takeExchange == "":
			return w.endEmpty(ctx, Result{}) // it had taken all, and sent it
		case !has.complete() && has.messages == 0:
			return w.endEmpty(ctx, Result{Stopped: notStarted})
		case !has.complete():
			return Result{Left: has.messages}, refusef("the list of the run %s is gone; 'dlxctl desk run return %s' gives back what its hold has, and may double messages", id, id)
		case has.records[recordReturning] > 0:
			return Result{Left: has.messages}, refusef("the run %s is being returned; 'dlxctl desk run return %s' continues", id, id)
		}
		m := has.manifest
		if o != nil {
			m.Send = *o
		}
		m.Goes = goesStill(&m, has)
		state, err := d.inspect(ctx)
		if err == nil {
			err = d.permit(ctx, d.rightsOf(&m, state), m.watched())
		}
		if err == nil {
			err = w.refuseHarm(state, &m, has.records[recordSending] == 0)
		}
		if err == nil && (!m.deletes() || has.records[recordSending] == 0) {
			err = refuseAlarm(state)
		}
		if err != nil {
			return Result{Left: has.messages}, err
		}
		if has.records[recordSending] > 0 {
			if m.edited == nil { // the hold has the original of an edit, and the list what is sent
				m.Bytes = has.bytes
			}
			if err := w.completeSending(ctx); err != nil {
				return Result{Left: has.messages}, err
			}
		}
		if err := w.refuseDropping(ctx, state, &m, m.Goes, m.Bytes); err != nil {
			return Result{Left: has.messages}, err
		}
		s := &session{worker: w, manifest: &m, progress: progress, resumed: true}
		var r Result
		if m.live() && has.records[recordSending] == 0 {
			r, err = s.resumePull(ctx, has)
		} else if has.records[recordSending] > 0 {
			s.inherit(has.manifest.Send)
			r, err = s.send(ctx, Result{}, has.messages)
		} else {
			r, err = s.takeAndSend(ctx, has)
		}
		return w.describe(&m, r), err
	})
}

// goesStill returns how many messages still go to each queue: all of a run that has not taken all,
// and otherwise what its hold has for that queue, as far as the messages tell where they go.
func goesStill(m *manifest, has *contents) map[string]int {
	out := maps.Clone(m.Goes)
	if has.records[recordSending] == 0 {
		return out
	}
	goes := m.Action.Kind().goes
	for queue, n := range out {
		left := has.messages
		switch {
		case goes == toWork && m.Target == (Target{}):
			left = has.work[queue]
		case goes == toOrigin:
			left = has.origins[queue]
		}
		out[queue] = min(n, left)
	}
	return out
}

// notStarted is why a run ends that was killed before it moved anything.
const notStarted = "an earlier process died before it took anything; the run is gone, start it again"

// listed returns what the hold of the run tells without its list. The caller has just inspected the
// virtual host.
func (w *worker) listed() (r Run) {
	for _, of := range RunsOf(w.desk.Topology.Name, *w.desk.last.Load(), time.Time{}) {
		if of.ID == w.run {
			r = of
		}
	}
	return r
}

// endEmpty ends a run whose hold has nothing. The caller has just inspected the virtual host.
func (w *worker) endEmpty(ctx context.Context, r Result) (Result, error) {
	w.hold = w.listed()
	if err := w.closeHold(ctx); err != nil {
		return Result{}, err
	}
	r.Ended = true
	return r, nil
}

// inFlight is how many messages may be published and not yet confirmed.
func (o SendOptions) inFlight() int {
	if o.Rate > 0 {
		return cmp.Or(o.InFlight, 1)
	}
	return cmp.Or(o.InFlight, 256)
}
