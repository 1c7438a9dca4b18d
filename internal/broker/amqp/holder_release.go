package amqp

import (
	"cmp"
	"context"
	"errors"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	// completeTime is how long Release may take messages that it needs to keep the order.
	completeTime = time.Minute
	// answerTime is how long the broker may take to answer while messages are given back: twice
	// what it allows itself for the operations of a channel (channel_operation_timeout).
	answerTime = 30 * time.Second
	// stallTime is how long Release waits for messages to come back when no more do.
	stallTime = 3 * time.Second
	// returnPause is the pause between two questions whether they are back.
	returnPause = 5 * time.Millisecond
)

// Release gives back what was not acknowledged, in the order of the queue, and waits until the
// queue has it. It may be called twice.
func (h *Holder) Release() error {
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	// If it fails, nothing is lost: the order may change.
	kept := h.whileAlive(ctx, func() error { return h.complete(ctx) })
	return errors.Join(h.giveBack(), kept)
}

// errFresh ends complete: a message that was never returned.
var errFresh = errors.New("never returned")

// complete takes the rest of the returned messages of a quorum queue, so that they come back
// together.
func (h *Holder) complete(ctx context.Context) error {
	if h.o.Classic || !h.returned || h.drained || h.contested || h.conn.Closed() {
		return nil
	}
	if h.isOver() {
		return ErrReordered
	}
	beyond := func(m Held) error {
		if !m.Redelivered {
			return errFresh
		}
		if h.o.Beyond == nil {
			return nil
		}
		return h.o.Beyond(m)
	}
	for n := leastChunk; h.returned && !h.drained; n *= 2 {
		if h.chunk == nil {
			ready := 0
			err := h.ask(func() (err error) {
				ready, err = h.conn.MessagesReady(h.queue)
				return err
			})
			if err != nil || ready == 0 {
				return err
			}
			n = min(n, ready)
			if h.o.Most > 0 {
				n = min(n, h.o.Most-h.taken)
			}
			if n <= 0 {
				return ErrReordered
			}
		}
		if err := h.next(n); err != nil {
			return err
		}
		if err := h.drain(ctx, beyond); errors.Is(err, errFresh) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// giveBack ends channel after channel: two that end at the same moment come back in any order. It
// waits for the request in progress, if there is one, but for no visitor.
func (h *Holder) giveBack() error {
	answered := h.inTime()
	h.asking.Lock()
	defer h.asking.Unlock()
	answered()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return nil
	}
	h.over = true
	h.conn.gate.Drop() // or the answers would wait behind unread deliveries, which the broker still has
	for _, b := range h.blocks {
		if h.conn.Closed() {
			return nil // the broker has taken everything back
		}
		if err := h.end(b); err != nil {
			return err
		}
	}
	return nil
}

// inTime ends the connection unless the returned function is called within answerTime. Nothing is
// lost: the broker takes back what was not acknowledged, and only messages that are safe elsewhere
// were.
func (h *Holder) inTime() (answered func() bool) {
	end := func() { _ = h.conn.Close() } // it has a deadline of its own
	return time.AfterFunc(cmp.Or(h.o.answerTime, answerTime), end).Stop
}

// end ends a channel, and waits until its messages are back. A channel that the broker has
// ended needs nothing: its messages are back.
func (h *Holder) end(b *block) error {
	if b.taking {
		answered := h.inTime()
		_ = b.ch.Cancel(b.tag, false) // the end of the channel does it too
		answered()
	}
	before, _, known := h.countInTime()
	if b.ch.IsClosed() || b.flush() != nil {
		return nil //nolint:nilerr // the broker ended the channel, and has its messages back
	}
	back := func() {
		if known && !h.contested {
			h.await(before + b.held)
		}
	}
	if h.o.Nack && b.held > 0 {
		if b.ch.Nack(0, true, true) != nil { // 0 is all of the channel
			return nil //nolint:nilerr // as above
		}
		back() // only now the channel may end, which would count as a return
	}
	answered := h.inTime()
	err := b.ch.Close()
	answered()
	if err != nil && !errors.Is(err, amqp091.ErrClosed) {
		return err
	}
	back()
	return nil
}

// countInTime is count, for a Holder that gives back.
func (h *Holder) countInTime() (ready, consumers int, known bool) {
	defer h.inTime()()
	ready, consumers, err := h.conn.count(h.queue)
	return ready, consumers, err == nil
}

// await waits until the queue has n messages, as long as their number changes.
func (h *Holder) await(n int) {
	last, changed := -1, time.Now()
	tick := time.NewTicker(returnPause)
	defer tick.Stop()
	for {
		ready, consumers, known := h.countInTime()
		if !known || ready >= n {
			return
		}
		if ready != last {
			last, changed = ready, time.Now()
		}
		if time.Since(changed) > stallTime {
			h.contested = consumers > 0
			return
		}
		<-tick.C
	}
}
