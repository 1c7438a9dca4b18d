package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/relay"
)

// lookEvery is how often a drain looks whether somebody has bound the queue again.
const lookEvery = 2 * time.Second

// grace is how long a drain that is to end goes on with what is in flight.
const grace = 30 * time.Second

// prefetch is how many messages of a legacy queue are in flight at once.
const prefetch = 1000

// prefetchBytes is how many bytes of them, headers included.
const prefetchBytes = 32 << 20

const (
	// lastTry is how often in a row a drain is tried that a message ended.
	lastTry = 8
	// retryPause is the pause before it is tried again.
	retryPause = 200 * time.Millisecond
)

// mover moves the messages of a legacy queue to the new one. They are published
// to the exchange that leads there alone, with their own routing key, so that
// consumers see the key that the publisher used.
type mover struct {
	to        string // the exchange
	frame     int    // the size of the largest content header that the broker takes, in bytes; zero: any
	taken     atomic.Int64
	moved     atomic.Int64
	again     int64                  // how many were delivered a second time
	ids       []string               // the message-ids of the first of those
	shortened int64                  // how many lost the history that made their headers too large
	malformed int64                  // how many had a history that no broker has written
	doubled   int64                  // how many may have been doubled, in all
	deleted   bool                   // migrate has deleted the queue
	refused   atomic.Pointer[string] // why the broker did not take a message, at last
	last      atomic.Int64           // when one was moved last, in milliseconds of Unix time
	tell      func()                 // is told of each that was moved
}

// Move gives the message as it is, without what the broker has counted, and
// without a user-id: the broker takes none but that of the connection. Only where
// the broker itself has made the headers larger than it takes them is the history
// that it wrote left out, and a history that no broker writes, which a publisher has made
// up, goes to another header: see asBrokerWrites.
func (h *mover) Move(d amqp.Delivery) relay.Move {
	h.taken.Add(1)
	m := amqp.Publishing{
		Headers: amqp.Table{}, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
	for name, v := range d.Headers {
		_, isList := v.([]any)
		switch {
		case name == "x-delivery-count" || name == "x-acquired-count":
		case (name == "CC" || name == "BCC") && !isList:
			// Messages of other protocols may have such a header. The broker refuses
			// it when it is published.
			m.Headers["retry-"+strings.ToLower(name)] = v
		default:
			m.Headers[name] = v
		}
	}
	if d.UserId != "" {
		m.Headers["retry-user-id"] = d.UserId
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	if !asBrokerWrites(m.Headers) {
		if v, ok := m.Headers["x-death"]; ok {
			m.Headers["retry-x-death"] = v
		}
		withoutHistory(m.Headers)
		h.malformed++
	}
	if h.frame > 0 && relay.HeaderSize(m) > h.frame {
		withoutHistory(m.Headers)
		h.shortened++
	}
	return relay.Move{Exchange: h.to, Key: d.RoutingKey, Message: m}
}

// Refused lets the message wait: it is safe where it is, and has nowhere else to
// go. A queue that is full has room again when its consumers have worked.
func (h *mover) Refused(_ amqp.Delivery, m relay.Move, reason string) relay.Move {
	h.refused.Store(&reason)
	return m
}

// Moved counts. A message that was delivered before may have been moved before,
// by a run that was killed.
func (h *mover) Moved(d amqp.Delivery, _ relay.Move) {
	h.moved.Add(1)
	h.tell()
	h.last.Store(time.Now().UnixMilli())
	if d.Redelivered {
		h.again++
		if len(h.ids) < shown {
			h.ids = append(h.ids, d.MessageId)
		}
	}
}

// patience says when a drain ends.
type patience struct {
	// idle is how long nothing must have come for it to be done.
	idle time.Duration
	// wait is how long it goes on while messages still come, once those are moved
	// that waited when it began.
	wait time.Duration
	// stuck is how long it goes on while the new queue takes nothing.
	stuck time.Duration
	// bound is asked now and then whether the queue has bindings. Nil: it may.
	bound func(context.Context) bool
	// fullAt is how many messages the new queue holds when it refuses more. Zero: it
	// takes all.
	fullAt int64
	// fed is asked once nothing has come for as long as idle, while the drain goes on. The drain
	// is done only if the answer is nil and nothing has come meanwhile. Nil: nobody is asked.
	fed func(context.Context) error
}

// Why a drain ends early.
var (
	// errComing says that messages still came when the patience was at its end.
	errComing = errors.New("messages still come")
	// errStuck says that the new queue took no messages any more.
	errStuck = errors.New("messages are not taken")
	// errBound says that somebody has bound the queue again.
	errBound = errors.New("the queue is bound")
)

// drain moves what is in the legacy queue and what comes to it, until nothing has
// come for a while. It ends with errComing if that does not happen, and with
// errStuck if the new queue refuses messages for long; those stay where they are.
// It gives how many waited when it began.
//
// Nothing can be lost: the relay acknowledges a message only when its copy is
// confirmed. A message that ends the channel or the connection stays in the legacy
// queue too, and what was in flight with it is doubled once at most.
func (r *Runner) drain(ctx context.Context, m Move, h *mover, p patience) (backlog int64, err error) {
	caution := relay.Caution{Prefetch: prefetch, Bytes: prefetchBytes, Tell: h.found}
	first := int64(-1)
	for tries := 1; ; tries++ {
		backlog, err = r.pass(ctx, m, h, p, &caution)
		if first < 0 {
			first = backlog
		}
		var why *broker.ClosedError
		switch {
		case errors.Is(err, relay.ErrAgain):
			tries = 0
		case err == nil || ctx.Err() != nil || tries == lastTry || !errors.As(err, &why) || !why.ByMessage():
			return first, err
		case pause(ctx, retryPause) != nil:
			return first, err
		}
	}
}

// pass is a drain over one pair of connections.
func (r *Runner) pass(ctx context.Context, m Move, h *mover, p patience, caution *relay.Caution) (backlog int64, err error) {
	e := r.Endpoint
	e.ConnectionName = "dlxctl migrate " + m.Topology + " " + m.Legacy
	in, err := broker.DialToConsume(ctx, e)
	if err != nil {
		return backlog, err
	}
	defer in.Close() // ends its channel too: to close that alone can hang, where a queue has no leader
	out, err := broker.Dial(ctx, e)
	if err != nil {
		return backlog, err
	}
	defer out.Close()
	ready, err := in.Queue(m.Legacy)
	if err != nil {
		return backlog, err
	}
	backlog = int64(ready)
	if err := h.awaitRoom(ctx, in, m, p); err != nil {
		return backlog, err
	}
	move := relay.Relay{Handler: h, Grace: grace, Absent: caution.Refused}
	window := caution.Begin(&move)
	source, err := in.Consume(m.Legacy, window, prefetchBytes)
	if err != nil {
		return backlog, err
	}
	sink, err := out.Publisher(window)
	if err != nil {
		return backlog, err
	}
	move.Source, move.Sink = source, sink
	h.frame = out.FrameMax()
	h.taken.Store(h.moved.Load())
	h.last.Store(time.Now().UnixMilli())
	until, stop := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stop(nil)
	watches.Go(func() { stop(h.watch(until, backlog, p)) })
	if p.bound != nil {
		watches.Go(func() {
			for pause(until, lookEvery) == nil {
				if p.bound(until) {
					stop(errBound)
				}
			}
		})
	}
	cut := broker.CutOff(until, grace+time.Second, in, out) // what it had taken of that is doubled at most
	err = move.Run(until)
	caution.End(&move, err)
	if cut() {
		err = relay.ErrGrace // a closed connection, which Run tells of, is but how it was ended
	}
	switch cause := context.Cause(until); {
	case errors.Is(cause, errStuck):
		return backlog, cause
	case err != nil:
		return backlog, err
	case ctx.Err() != nil:
		return backlog, ctx.Err()
	case cause != nil && !errors.Is(cause, context.Canceled): // nil of the watch is that
		return backlog, cause
	default:
		return backlog, nil
	}
}

// found tells why a message is left in the legacy queue.
func (h *mover) found(f relay.Finding) {
	why := f.Err.Error()
	if f.Delivery.MessageId != "" {
		why = fmt.Sprintf("message %q: %s", f.Delivery.MessageId, why)
	}
	h.refused.Store(&why)
}

// awaitRoom waits while the new queue is full. Each run that took messages only to
// give them back would count as a delivery of them, and a quorum queue drops what it
// delivered too often.
func (h *mover) awaitRoom(ctx context.Context, in *broker.Conn, m Move, p patience) error {
	for began := time.Now(); p.fullAt > 0; {
		switch ready, err := in.Queue(m.New); {
		case err != nil:
			return err
		case int64(ready) < p.fullAt:
			return nil
		case time.Since(began) >= p.stuck:
			full := fmt.Sprintf("it is full, with %s", number(int64(ready), "message"))
			h.refused.Store(&full)
			return errStuck
		case p.bound != nil && p.bound(ctx):
			return errBound
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
	return nil
}

// watch returns nil once nothing is in flight and nothing was moved for as long as
// idle, and errComing or errStuck when that does not happen in time. Where p.fed is given, it
// has to agree, or its error is returned when the patience is at its end.
func (h *mover) watch(ctx context.Context, backlog int64, p patience) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	begin := h.moved.Load()
	var since time.Time // when the backlog was moved
	var asked time.Time // when the feeders were asked first
	for {
		quiet, inFlight := time.Since(time.UnixMilli(h.last.Load())), h.taken.Load() > h.moved.Load()
		switch {
		case !inFlight && quiet >= p.idle:
			if asked.IsZero() {
				asked = time.Now()
			}
			if over, err := h.unfed(ctx, p, asked); over || err != nil {
				return err
			}
		case inFlight && quiet >= p.stuck:
			return errStuck
		case since.IsZero() && h.moved.Load()-begin >= backlog:
			since = time.Now()
		case !since.IsZero() && time.Since(since) > p.wait+p.idle && (asked.IsZero() || time.Since(asked) > p.wait+p.idle):
			return errComing
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// unfed reports whether nothing can come any more. The answer of p.fed counts only if nothing came
// while it was worked out: what was on its way from a feeder then has arrived, and was taken.
func (h *mover) unfed(ctx context.Context, p patience, asked time.Time) (over bool, err error) {
	if p.fed == nil {
		return true, nil
	}
	before := h.taken.Load()
	err = p.fed(ctx)
	if ctx.Err() != nil {
		return true, nil //nolint:nilerr // the caller looks at ctx
	}
	var fed *fedError
	switch {
	case errors.As(err, &fed) && !fed.final && time.Since(asked) < p.wait:
		_ = pause(ctx, time.Second) // the caller looks at ctx
		return false, nil
	case err != nil:
		return false, err
	default:
		return h.taken.Load() == before, nil
	}
}

// newMover gives the mover of a move.
func (m Move) newMover() *mover {
	return &mover{to: m.toNew(), tell: func() {}}
}
