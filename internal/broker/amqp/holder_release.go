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
//
// It fails with ErrUnsettled unless every acknowledgement has reached the queue, and with First and
// without a leader with ErrNoLeader. The proof does not
// depend on counts: after the commit the channel asks the queue, whose answer can only follow the
// acknowledgements, and the end of the channel follows both (the signals of one Erlang process to
// another arrive in the order in which they were sent).
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
	if h.o.Classic || h.o.First || !h.returned || h.drained || h.contested || h.conn.Closed() {
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
	var failed error
	for _, b := range h.blocks {
		if h.conn.Closed() { // the broker has taken everything back
			h.unsettled = h.unsettled || b.acked || len(b.acks) > 0
			continue
		}
		failed = errors.Join(failed, h.end(b))
	}
	switch {
	case h.unsettled && h.noLeader:
		return errors.Join(ErrNoLeader, failed)
	case h.unsettled:
		return errors.Join(ErrUnsettled, failed)
	case failed != nil:
		return failed
	case h.overtaken:
		return ErrReordered
	default:
		return nil
	}
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
	if b.taking && !h.o.First {
		answered := h.inTime()
		_ = b.ch.Cancel(b.tag, false) // the end of the channel does it too
		answered()
	}
	before, arrived := h.settle(b)
	// What is ready was not delivered to the consumer that takes before all others, so it may have
	// been to others.
	h.overtaken = h.overtaken || h.o.First && arrived && before.ready > 0
	if b.ch.IsClosed() || !arrived && b.acked {
		h.unsettled = h.unsettled || b.acked || len(b.acks) > 0
	}
	if b.ch.IsClosed() {
		return nil
	}
	back := func() {
		if arrived {
			h.await(before, b)
		}
	}
	if h.o.Nack && b.held > 0 {
		if err := h.nack(b); err != nil {
			return nil //nolint:nilerr // the broker ended the channel, and has its messages back
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

// settle acknowledges what waits, and reports whether the queue has received it.
func (h *Holder) settle(b *block) (now counts, arrived bool) {
	defer h.inTime()()
	if b.ch.IsClosed() || b.settle(b.acks) != nil {
		return counts{}, false
	}
	b.acks = nil
	ask := func() (counts, error) { return countOn(b.ch, h.queue) }
	var err error
	if h.o.First {
		now, err = h.notZero(ask)
	} else {
		now, err = sure(ask)
	}
	return now, err == nil
}

// notZero asks until the queue counts a consumer: that of the channel that asks is there until the
// channel ends. A queue that counts none has no leader. Its last one, to which the channel has sent
// the acknowledgements, may be gone with its node, and the broker answers for it at once. A new
// leader tells the channel, which sends them again, before it answers (rabbit_fifo_client: killed
// leaders forgot 198 of 198 acknowledgements if the channel ended before, 4.3.6, measured).
func (h *Holder) notZero(ask func() (counts, error)) (counts, error) {
	tick := time.NewTicker(settlePause)
	defer tick.Stop()
	for ; ; <-tick.C {
		now, err := ask()
		if err != nil { // also if it has not answered in time, which ends the connection
			return now, err
		}
		if h.noLeader = now.zero(); !h.noLeader {
			return now, nil
		}
	}
}

// nack gives back the messages of a channel that stays open.
func (h *Holder) nack(b *block) error {
	defer h.inTime()()
	if err := b.ch.Nack(0, true, true); err != nil { // 0 is all of the channel
		return err
	}
	if b.tx {
		return b.ch.TxCommit()
	}
	return nil
}

// await waits, as long as the counts of the queue change, until it has the messages of a channel,
// and no longer counts the consumers of the channel.
//
// A quorum queue counts a consumer, also one that was canceled, as long as that one has messages
// (rabbit_fifo:query_stat/1). Both counts are of one moment.
func (h *Holder) await(before counts, b *block) {
	consumers := max(h.others, before.consumers-b.tags)
	began := time.Now()
	last, changed := counts{}, began
	tick := time.NewTicker(returnPause)
	defer tick.Stop()
	for {
		now, known := h.countInTime()
		if !known || now.consumers <= consumers && (h.contested || now.ready >= before.ready+b.held) {
			return
		}
		if now != last {
			last, changed = now, time.Now()
		}
		if h.o.First && time.Since(began) > stallTime {
			return // consumers work, and one more may have come: the counts need not stop changing
		}
		if time.Since(changed) > stallTime {
			h.contested = h.contested || now.consumers > 0
			return
		}
		<-tick.C
	}
}

// countInTime is count, for a Holder that gives back.
func (h *Holder) countInTime() (now counts, known bool) {
	defer h.inTime()()
	now, err := sure(func() (counts, error) { return h.conn.count(h.queue) })
	return now, err == nil
}
