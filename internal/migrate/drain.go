package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

// lookEvery is how often a drain checks whether the queue was bound again.
const lookEvery = 2 * time.Second

// grace is how long a drain that is stopped goes on with what is in flight.
const grace = 30 * time.Second

// prefetch is how many messages of a legacy queue are in flight at once.
const prefetch = 1000

// prefetchBytes is how many bytes of them, headers included.
const prefetchBytes = 32 << 20

// drainLimits say when a drain ends.
type drainLimits struct {
	// idle is how long no message must have come for the drain to be done.
	idle time.Duration
	// wait is how long it goes on while messages still come, once the backlog is moved:
	// the messages that waited when it began.
	wait time.Duration
	// quits says that it does not wait for the end of what publishers send to the queue by its name.
	quits bool
	// stuck is how long it goes on while the successor accepts nothing.
	stuck time.Duration
	// bound reports whether the queue has bindings, which ends the drain. Nil: it may have.
	bound func(context.Context) bool
	// fullAt is how many messages the successor holds when it is full. Zero: it accepts any
	// number.
	fullAt int64
	// paced says that the successor gets no more than fullAt at a time: above, it refuses, and what
	// was behind would come first, or it drops its oldest message, or makes dead letters.
	paced bool
	// feeders is called once no message has come for idle, while the drain goes on. The
	// drain is done only if it returns nil and no message has come meanwhile. Nil: the
	// feeders are not checked.
	feeders func(context.Context) error
	// fedWait is how long the drain goes on while feeders returns an error that may pass.
	fedWait time.Duration
	// prefetch is how many messages are in flight at once. Zero: the constant of that name.
	prefetch int
	// byName notes what publishers sent to the queue by its name. Nil: that is not noted.
	byName *byNameWatch
}

// forComing returns how long the drain goes on while messages still come.
func (l drainLimits) forComing() time.Duration {
	if l.quits && l.byName.seen.Load() {
		return 0
	}
	return l.wait
}

// Why a drain ends early.
var (
	// errComing says that messages still came when the time was over.
	errComing = errors.New("messages still come")
	// errStuck says that the successor stopped accepting messages.
	errStuck = errors.New("the successor accepts no messages")
	// errBound says that the queue was bound again.
	errBound = errors.New("the queue is bound")
)

// drain moves the messages that are in the legacy queue and that come to it, until none has
// come for a while. It ends with errComing if that does not happen, and with errStuck if
// the successor refuses messages for long; those stay in the legacy queue. It returns the
// backlog: how many messages waited when it began.
//
// Nothing can be lost: the relay acknowledges a message only when its copy is
// confirmed. A message that closes the channel or the connection stays in the legacy
// queue too, and what was in flight with it is doubled once at most.
func (r *Runner) drain(ctx context.Context, m Move, h *mover, limits drainLimits) (backlog int64, err error) {
	e := r.Endpoint
	e.ConnectionName = "dlxctl migrate " + m.Topology + " " + m.Legacy
	caution := relay.Caution{Prefetch: cmp.Or(limits.prefetch, prefetch), Bytes: prefetchBytes, Report: h.report}
	h.watched = limits.byName
	var waiting int64 // when a pass begins
	first, frame := int64(-1), 0
	var room func() bool
	err = relay.Drive{
		Queue: m.Legacy, In: e, Out: e, Caution: &caution,
		Relay: relay.Relay{Handler: h, Grace: grace, Absent: caution.Refused},
		Open: func(ctx context.Context, in, out *amqp.Conn) error {
			ready, err := in.MessagesReady(m.Legacy)
			if err != nil {
				return err
			}
			waiting, frame = int64(ready), out.FrameMax()
			if limits.paced && limits.fullAt > 0 {
				room = h.room(out, m.New, limits.fullAt)
			}
			if first < 0 {
				first = waiting
			}
			if h.watched != nil {
				h.watched.bind = out.Bind
			}
			if limits.paced && ready == 0 {
				return nil // room lets through what comes
			}
			return h.awaitRoom(ctx, in, m, limits)
		},
		Start: func(move *relay.Relay) {
			move.Hold = h.hold(move.Hold)
			move.Room = room
			h.begin(frame)
		},
		Meanwhile: func(ctx context.Context) error { return h.watch(ctx, waiting, limits) },
		Passed: func(err error) {
			if _, closed := errors.AsType[*amqp.ClosedError](err); closed && r.DrainNow {
				// A consumer of the legacy queue may get what was in flight, and migrate then does not
				// see that it was delivered before.
				h.doubled += min(prefetch, h.taken.Load())
			}
		},
	}.Run(ctx)
	if errors.Is(err, relay.ErrGrace) && !errors.Is(err, errStuck) {
		err = relay.ErrGrace // why the drain was to end does not matter: what was in flight is in doubt
	}
	return max(0, first), err
}

// room returns how many messages the queue of the drain may hold. One that refuses messages when it
// is full needs no more than that, unless it dead-letters them, at each try; one that drops its
// oldest would drop what its consumers would have read. Where none reads, and the other queue
// dropped its oldest too, so does this one.
func (r *Runner) room(ctx context.Context, m Move, state topology.State) (drainLimits, error) {
	limit, refuses := policy.FullAt(state, m.New)
	if limit == 0 || refuses {
		return drainLimits{fullAt: limit, paced: policy.DeadLettersRefused(state, m.New)}, nil
	}
	if had, refused := policy.FullAt(state, m.Legacy); had > 0 && had <= limit && !refused {
		if n, err := r.consumers(ctx, state, m.New); n == 0 || err != nil {
			return drainLimits{}, err
		}
	}
	return drainLimits{fullAt: limit, paced: true, prefetch: holdPrefetch}, nil
}

// room returns a function that reports whether the queue has room for one message more. It counts
// those that it has let through since the queue last answered, and asks again once all are there.
func (h *mover) room(out *amqp.Conn, queue string, fullAt int64) func() bool {
	begin, through, left := h.moved.Load(), int64(0), int64(0)
	return func() bool {
		if left == 0 && h.moved.Load()-begin >= through {
			ready, err := out.ReadyForSure(queue)
			if err != nil {
				// Its leader is silent: the queue may be full, and drop its oldest. Or the connection has
				// ended, and with it the relay.
				return false
			}
			if left = min(fullAt-int64(ready), holdPrefetch); left <= 0 {
				left = 0
				h.crowded.Store(time.Now().UnixMilli())
				h.refused.Store(new(fmt.Sprintf("it is full, with %s", messages(int64(ready)))))
			}
		}
		if left == 0 {
			return false
		}
		left, through = left-1, through+1
		return true
	}
}

// awaitRoom waits while the successor is full. Each drain that consumed messages only to
// requeue them would count as a delivery of them, and a quorum queue drops messages at
// their delivery limit.
func (h *mover) awaitRoom(ctx context.Context, in *amqp.Conn, m Move, limits drainLimits) error {
	for began := time.Now(); limits.fullAt > 0; {
		switch ready, err := in.MessagesReady(m.New); {
		case err != nil:
			return err
		case int64(ready) < limits.fullAt:
			return nil
		case time.Since(began) >= limits.stuck:
			full := fmt.Sprintf("it is full, with %s", messages(int64(ready)))
			h.refused.Store(&full)
			return errStuck
		case limits.bound != nil && limits.bound(ctx):
			return errBound
		}
		if err := wait.For(ctx, lookEvery); err != nil {
			return err
		}
	}
	return nil
}

// watch returns nil once nothing is in flight and nothing was moved for limits.idle, errComing or
// errStuck if that does not happen in time, and errBound if the queue is bound again. If
// limits.feeders is set, it has to agree; if it does not in time, its error is returned.
func (h *mover) watch(ctx context.Context, backlog int64, limits drainLimits) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	begin := h.moved.Load()
	var since time.Time  // when the backlog was moved
	var asked time.Time  // when the feeders were first checked
	looked := time.Now() // for bindings
	late := func(since time.Time) bool { return time.Since(since) > limits.forComing()+limits.idle }
	for {
		if limits.bound != nil && time.Since(looked) >= lookEvery {
			if limits.bound(ctx) {
				return errBound
			}
			looked = time.Now()
		}
		quiet, inFlight := time.Since(time.UnixMilli(h.last.Load())), h.taken.Load() > h.moved.Load()
		switch unnoted := h.unnoted.Load(); {
		case unnoted != nil:
			return *unnoted
		case !inFlight && quiet >= limits.idle:
			if asked.IsZero() {
				asked = time.Now()
			}
			if over, err := h.isDone(ctx, limits, asked); over || err != nil {
				return err
			}
		case inFlight && quiet >= limits.stuck:
			return errStuck
		case since.IsZero() && h.moved.Load()-begin >= backlog:
			since = time.Now()
		case !since.IsZero() && late(since) && (asked.IsZero() || late(asked)):
			return errComing
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// isDone reports whether no message can come any more. The answer of limits.feeders counts
// only if no message came while it was worked out: a message that was on its way from a
// feeder then has arrived, and was consumed.
func (h *mover) isDone(ctx context.Context, limits drainLimits, asked time.Time) (over bool, err error) {
	if limits.feeders == nil {
		return true, nil
	}
	before := h.taken.Load()
	err = limits.feeders(ctx)
	if ctx.Err() != nil {
		return true, nil //nolint:nilerr // the caller checks ctx
	}
	fed, isFed := errors.AsType[*fedError](err)
	switch {
	case isFed && !fed.final && time.Since(asked) < limits.fedWait:
		_ = wait.For(ctx, time.Second) // the caller checks ctx
		return false, nil
	case err != nil:
		return false, err
	default:
		return h.taken.Load() == before, nil
	}
}
