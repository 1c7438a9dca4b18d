package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
)

const (
	// settleTime is how long nothing must be heard of a batch, unless SendOptions say otherwise.
	settleTime = 5 * time.Second
	// askPause is the pause between two questions how many messages wait in the target queues.
	askPause = 200 * time.Millisecond
	// idleTime is how long a run waits for a consumer of a target queue.
	idleTime = time.Minute
	// rateTime is the time over which the rate is measured.
	rateTime = 5 * time.Second
)

// paced reports whether something limits how fast messages are sent.
func (o SendOptions) paced() bool { return o.Rate > 0 || len(o.Ramp) > 0 || o.MaxWaiting > 0 }

// pacer decides when the next message is sent.
type pacer struct {
	o     SendOptions
	brake *brake
	// waiting counts the messages that are ready in the target queues.
	waiting func() (counts, error)
	// backlogs begins to count how many of the messages that are ready in the target queues now
	// their consumers have not read.
	backlogs func() func(context.Context) (counts, error)
	// certain waits until what has failed so far was heard. It returns why others keep it from that.
	certain func(context.Context) (busy string)
	// idle names the target queues that have messages and no consumer.
	idle func() ([]string, error)
	// named: the person has named the target, which may be there to keep the messages.
	named bool
	// messages is how many there are to send.
	messages int
	// say is called when the reason of a pause changes.
	say  func()
	stop func(error)
	wake chan struct{}
	// judged reports that consumers have read the last batch, and that it was listened to.
	judged bool
	// left is what backlogs returned for this batch; nil: it is not complete. Like lonelySince, it
	// outlives a relay.
	left func(context.Context) (counts, error)
	// lonelySince is since when target queues have had messages and no consumer, while that is asked.
	lonelySince map[string]time.Time

	mu      sync.Mutex
	sent    int // confirmed
	given   int // admitted
	batch   int // of the ramp, from 0
	inBatch int // admitted of the batch
	before  int // failures that were heard of earlier batches
	pausing string
	marks   []mark
}

// mark is how many messages were sent at a time.
type mark struct {
	at   time.Time
	sent int
}

// moved notes how many messages were sent.
func (p *pacer) moved(n int) {
	p.mu.Lock()
	p.sent = n
	if now := time.Now(); len(p.marks) == 0 || now.Sub(p.marks[len(p.marks)-1].at) > rateTime/10 {
		p.marks = append(p.marks, mark{now, n})
		if len(p.marks) > 10 {
			p.marks = p.marks[1:]
		}
	}
	p.mu.Unlock()
	p.awake()
}

// awake lets what waits for messages in flight look again.
func (p *pacer) awake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// progress returns what the pacer knows of it.
func (p *pacer) progress() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Progress{Done: p.sent, Pausing: p.pausing}
	if p.batch < len(p.o.Ramp) {
		out.Batch = p.batch + 1
	}
	if len(p.marks) > 0 {
		if first := p.marks[0]; time.Since(first.at) > 0 {
			out.Rate = float64(p.sent-first.sent) / time.Since(first.at).Seconds()
		}
	}
	return out
}

// pause notes why nothing is sent; empty means no pause.
func (p *pacer) pause(why string) {
	p.mu.Lock()
	changed := p.pausing != why
	p.pausing = why
	p.mu.Unlock()
	if changed {
		p.say()
	}
}

// again returns the channel on which run admits messages to the next relay. Nil: all are admitted.
func (p *pacer) again() chan struct{} {
	if !p.o.paced() {
		return nil
	}
	p.forget()
	return make(chan struct{})
}

// forget takes back what was admitted and not sent: the relay has ended.
func (p *pacer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inBatch -= p.given - p.sent
	p.given = p.sent
}

// run admits messages until ctx ends.
func (p *pacer) run(ctx context.Context, admit chan<- struct{}) {
	next := time.Now()
	for {
		for p.full() {
			if !p.until(ctx, 0) {
				return
			}
			if p.sentAll() { // what follows are records; endBatch judges the batch
				break
			}
			if !p.judge(ctx, p.o.Ramp[p.batch]) {
				return
			}
			p.mu.Lock()
			p.batch, p.inBatch, p.left = p.batch+1, 0, nil
			p.mu.Unlock()
		}
		all := p.sentAll()
		if !all && !p.room(ctx) || !p.hasWindow(ctx) {
			return
		}
		if p.o.Rate > 0 && !all {
			if pause(ctx, time.Until(next)) != nil {
				return
			}
			next = later(next, time.Now()).Add(time.Duration(float64(time.Second) / p.o.Rate))
		}
		select {
		case admit <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		p.given++
		p.inBatch++
		p.mu.Unlock()
	}
}

// full reports whether all messages of a batch of the ramp are admitted.
func (p *pacer) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batch < len(p.o.Ramp) && p.inBatch >= p.o.Ramp[p.batch]
}

// admitted notes that messages are sent which did not wait for admission.
func (p *pacer) admitted(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given += n
	p.inBatch += n
}

// unused takes back an admission that a record of the run has used up: it is not sent, so that
// nothing else would end what is in flight.
func (p *pacer) unused() {
	p.mu.Lock()
	p.given--
	p.inBatch--
	p.mu.Unlock()
	p.awake()
}

// later returns the time from which the next one counts. Missed slots are not caught up.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (p *pacer) sentAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent >= p.messages
}

// stops reports whether the run may still stop because messages fail again.
func (p *pacer) stops() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.o.StopFailures > 0 || p.o.StopShare > 0 || p.batch < len(p.o.Ramp)
}

// inFlight returns how many messages are admitted and not sent.
func (p *pacer) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.given - p.sent
}

// hasWindow waits until one more message may be in flight.
func (p *pacer) hasWindow(ctx context.Context) bool { return p.until(ctx, p.o.inFlight()-1) }

// until waits until at most that many messages are in flight.
func (p *pacer) until(ctx context.Context, most int) bool {
	for p.inFlight() > most {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// room waits while the target queues hold more than they may.
func (p *pacer) room(ctx context.Context) bool {
	if p.o.MaxWaiting <= 0 {
		return true
	}
	for {
		has, err := p.waiting()
		if err != nil {
			p.stop(err)
			return false
		}
		if has.total() <= p.o.MaxWaiting {
			p.lonelySince = nil
			p.pause("")
			return true
		}
		idle, ok := p.lonely(has, idleTime)
		if !ok {
			return false
		}
		if n := idle.total(); n > p.o.MaxWaiting { // also once the consumers of the others have read these
			few := len(idle)
			p.stop(stopped(fmt.Sprintf("%s %s %s, more than --max-waiting %d, and %s had no consumer for %s; start %s consumers, or pass --max-waiting 0",
				idle.names(), text.Choose(few, "holds", "hold"), text.Count(n, "message"), p.o.MaxWaiting,
				text.Choose(few, "has", "have"), text.Duration(idleTime), text.Choose(few, "its", "their"))))
			return false
		}
		p.pause(fmt.Sprintf("%s, more than --max-waiting %d: the run goes on once consumers have read them", has, p.o.MaxWaiting))
		if pause(ctx, askPause) != nil {
			return false
		}
	}
}

// endBatch judges the batch with which all messages were sent, if that was a whole one.
func (p *pacer) endBatch(ctx context.Context) {
	p.forget()
	if p.full() {
		p.judged = p.judge(ctx, p.o.Ramp[p.batch])
	}
}

// judge waits until a batch is done: read by the consumers, and nothing heard of it for a while. It
// reports whether the next one may be sent.
func (p *pacer) judge(ctx context.Context, size int) bool {
	if !p.until(ctx, 0) || !p.gone(ctx) {
		return false
	}
	settle := cmp.Or(p.o.Settle, settleTime)
	gone := time.Now()
	for p.tolerates(p.brake.count()-p.before, size) {
		wait := settle - time.Since(later(gone, p.brake.heardAt()))
		if wait <= 0 {
			break
		}
		p.pause(fmt.Sprintf("listening for failures of a batch of %d for %s", size, settle))
		if !p.sleep(ctx, wait) {
			return false
		}
	}
	if !p.heard(ctx) {
		return false
	}
	p.pause("")
	failed := p.brake.count() - p.before
	p.before += failed
	if p.tolerates(failed, size) {
		return true
	}
	p.stop(stopped(fmt.Sprintf("%d of a batch of %d failed again%s", failed, size, p.brake.lately())))
	return false
}

// heard waits until what has failed so far was heard. The next batch waits while others keep the
// brake from that; at the end, the result says what was not heard. It reports false if the run must
// not go on.
func (p *pacer) heard(ctx context.Context) bool {
	longest := idleTime
	if p.sentAll() {
		longest = 0
	}
	busy := patient(ctx, longest, p.pause, func() string { return p.certain(ctx) })
	if busy != "" && longest > 0 {
		p.stop(unseen(busy))
		return false
	}
	return ctx.Err() == nil
}

// patient tries over and over, for so long at most, what others keep from being done, and says that
// it waits. It returns why they still do. Empty: it is done, or ctx has ended.
func patient(ctx context.Context, longest time.Duration, waiting func(string), try func() (busy string)) string {
	for began := time.Now(); ; {
		busy := try()
		if busy == "" || time.Since(began) >= longest {
			return busy
		}
		waiting("whether messages failed again is not known yet: " + busy)
		if pause(ctx, askPause) != nil {
			return ""
		}
	}
}

// unseen stops a run which others have kept from hearing what failed for too long.
func unseen(busy string) error {
	return stopped(fmt.Sprintf("for %s it was not known whether messages failed again: %s, or pass --ramp none",
		text.Duration(idleTime), busy))
}

// tolerates reports whether so many failures of a batch let the run go on.
func (p *pacer) tolerates(failed, size int) bool {
	return failed == 0 || p.o.StopShare > 0 && float64(failed) < p.o.StopShare*float64(size) ||
		p.o.StopShare == 0 && p.o.StopFailures > failed && failed < size
}

// sleep waits for a time, or until something has happened. It reports false once ctx has ended.
func (p *pacer) sleep(ctx context.Context, t time.Duration) bool {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// gone waits until the consumers of the target queues have read what the queues had when the batch
// was sent.
func (p *pacer) gone(ctx context.Context) bool {
	if p.left == nil {
		p.left, p.lonelySince = p.backlogs(), nil
	}
	longest := idleTime
	if p.named || p.sentAll() {
		longest = 0
	}
	for {
		left, err := p.left(ctx)
		_, unseen := errors.AsType[stopped](err)
		switch {
		case ctx.Err() != nil, unseen && p.sentAll(): // nothing is left to send, and the result says so far
			return false
		case err != nil:
			p.stop(err)
			return false
		case left.total() == 0:
			p.lonelySince = nil
			return true
		}
		idle, ok := p.lonely(left, longest)
		switch {
		case !ok:
			return false
		case longest == 0: // no consumer of these could fail
			maps.DeleteFunc(left, func(queue string, _ int) bool { return idle[queue] > 0 })
			if left.total() == 0 {
				return true
			}
		case len(idle) > 0:
			few := len(idle)
			p.stop(stopped(fmt.Sprintf("%s %s had no consumer for %s, so that nothing tells whether messages fail again; start %s consumers, or pass --ramp none",
				idle.names(), text.Choose(few, "has", "have"), text.Duration(idleTime), text.Choose(few, "its", "their"))))
			return false
		}
		p.pause(fmt.Sprintf("waiting until the consumers of %s have read %s",
			left.names(), text.Count(left.total(), "message")))
		if pause(ctx, askPause) != nil {
			return false
		}
	}
}

// lonely returns what has tells of the queues that have had messages and no consumer for so long.
// It reports false once the run has been stopped.
func (p *pacer) lonely(has counts, long time.Duration) (out counts, ok bool) {
	idle, err := p.idle()
	if err != nil {
		p.stop(err)
		return nil, false
	}
	since := map[string]time.Time{}
	out = counts{}
	for _, queue := range idle {
		since[queue] = p.lonelySince[queue]
		if since[queue].IsZero() {
			since[queue] = time.Now()
		}
		if has[queue] > 0 && time.Since(since[queue]) >= long {
			out[queue] = has[queue]
		}
	}
	p.lonelySince = since
	return out, true
}
