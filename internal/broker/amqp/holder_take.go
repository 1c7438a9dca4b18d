package amqp

import (
	"context"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
)

const (
	// maxPrefetch is the largest prefetch of one consumer: it is a number of 16 bits.
	maxPrefetch = 65535
	// maxConsumers is how many consumers a Holder has on one channel. A quorum queue returns the
	// messages of a dead channel consumer by consumer, in the order of the consumer tags, but only
	// while they are no more than 32 (maps:fold in rabbit_fifo, 3.10 to 4.3).
	maxConsumers = 31
	// unreadBytes is how many bytes may have arrived that were not visited.
	unreadBytes = 8 << 20
	// leastChunk is after how many messages the bytes are compared with their limit, at least.
	leastChunk = 1000
	// idleTick is how often a Holder that receives nothing asks whether the queue is empty.
	idleTick = 100 * time.Millisecond
	// idleTicks is how many times in succession the answer must be yes.
	idleTicks = 10
)

// Take takes messages, and calls visit with each in the order of the queue. It returns when the
// Holder has as many as it may, when the queue is empty, or when visit fails, with its error. It
// keeps what it has taken, until Release.
//
// When ctx ends everything is given back at once, even if visit hangs, and Take returns the cause
// of ctx. It fails with ErrNotFound if the queue does not exist.
func (h *Holder) Take(ctx context.Context, visit func(Held) error) error {
	return h.whileAlive(ctx, func() error {
		for h.chunk != nil || h.room() {
			if err := h.next(h.size()); err != nil {
				return err
			}
			if err := h.drain(ctx, visit); err != nil || h.drained {
				return err
			}
		}
		return nil
	})
}

// room reports whether more may be taken.
func (h *Holder) room() bool {
	return h.taken < h.o.Messages && (h.o.Bytes == 0 || h.bytes < h.o.Bytes)
}

// perChannel is how many messages a channel holds at most.
func (h *Holder) perChannel() int {
	most := maxConsumers * h.perConsumer()
	if h.o.Block > 0 {
		return min(h.o.Block, most)
	}
	return most
}

func (h *Holder) perConsumer() int {
	if h.o.perConsumer > 0 {
		return h.o.perConsumer
	}
	return maxPrefetch
}

// size is how many messages the next consumer takes. With a limit in bytes that is as many as fit
// if they are as large as those before.
func (h *Holder) size() int {
	n := h.o.Messages - h.taken
	if h.o.Bytes == 0 {
		return n
	}
	fit := leastChunk
	if h.bytes > 0 {
		average := float64(h.bytes) / float64(h.taken)
		fit = max(fit, int(min(float64(n), float64(h.o.Bytes-h.bytes)/average)))
	}
	return min(n, max(fit, h.o.Messages/maxConsumers)) // too many consumers would not keep the order
}

// next subscribes for n messages, or as many as fit, unless a chunk is not complete yet.
func (h *Holder) next(n int) error {
	if h.chunk != nil {
		return nil
	}
	return h.ask(func() error {
		b, err := h.current()
		if err != nil {
			return err
		}
		n = min(n, h.perConsumer(), h.perChannel()-b.taken)
		deliveries, err := h.consume(b, n)
		if err != nil {
			return err
		}
		h.chunk, h.drained = &chunk{block: b, deliveries: deliveries, left: n}, false
		return nil
	})
}

func (h *Holder) last() *block {
	if len(h.blocks) == 0 {
		return nil
	}
	return h.blocks[len(h.blocks)-1]
}

// current returns the block that has room, or a new one. Its caller is in ask.
func (h *Holder) current() (*block, error) {
	if b := h.last(); b != nil && b.taken < h.perChannel() {
		return b, nil
	}
	others := h.others
	if h.o.Witness != "" && len(h.blocks) > 0 {
		return nil, fmt.Errorf("the queue has more messages than the %d that one channel can hold", h.perChannel())
	}
	if len(h.blocks) == 0 {
		now, err := h.conn.count(h.queue)
		if err != nil {
			return nil, err
		}
		others = now.consumers
	}
	ch, err := h.conn.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	b := &block{ch: ch, closed: ch.NotifyClose(make(chan *amqp091.Error, 1))}
	h.mu.Lock()
	h.others, h.contested = others, h.contested || others > 0
	h.blocks = append(h.blocks, b)
	h.mu.Unlock()
	h.conn.gate.Begin(unreadBytes) // the tags of a channel count from 1
	return b, h.callWitness(b)
}

// callWitness takes the first message of the witness. Its caller is in ask.
func (h *Holder) callWitness(b *block) error {
	if h.o.Witness == "" {
		return nil
	}
	if err := b.ch.Qos(1, 0, false); err != nil {
		return explainChannel(err)
	}
	deliveries, err := b.ch.Consume(h.o.Witness, "witness", false, false, false, false, nil)
	if err != nil {
		return explainChannel(err)
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case d, open := <-deliveries:
		if !open {
			return b.err()
		}
		h.conn.gate.Release(d.DeliveryTag, false)
		b.witness = []uint64{d.DeliveryTag}
		return nil
	case <-late.C:
		return fmt.Errorf("the queue %s does not deliver", h.o.Witness)
	}
}

// drain takes what is left of the chunk, or as much as the queue has, and cancels its consumer.
func (h *Holder) drain(ctx context.Context, visit func(Held) error) error {
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	var idle idleness
	for h.chunk.left > 0 {
		select {
		case d, open := <-h.chunk.deliveries:
			if !open {
				return h.chunk.block.err()
			}
			if err := h.visit(d, visit); err != nil {
				return err
			}
		case <-tick.C:
			var err error
			if h.drained, err = h.idle(&idle); err != nil {
				return err
			}
			if h.drained {
				return h.rest(visit)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return h.cancel()
}

// consume subscribes with a prefetch of exactly n, or with First of all that there may be. Its
// caller is in ask.
func (h *Holder) consume(b *block, n int) (<-chan amqp091.Delivery, error) {
	tag := fmt.Sprintf("desk-%03d", h.tags)
	h.tags++
	h.mu.Lock()
	b.taking, b.tag = true, tag
	b.tags++
	h.mu.Unlock()
	args := amqp091.Table{}
	if h.o.First {
		n, args["x-priority"] = maxPrefetch, int32(firstPriority)
	}
	if h.o.Timeout > 0 {
		args["x-consumer-timeout"] = h.o.Timeout.Milliseconds()
	}
	if err := b.ch.Qos(n, 0, false); err != nil { // it applies to the next consumer
		return nil, explainChannel(err)
	}
	deliveries, err := b.ch.Consume(h.queue, tag, false, false, false, false, args)
	if err != nil {
		return nil, explainChannel(err)
	}
	return deliveries, nil
}

// visit counts a message, and forgets its memory once it was visited. The message stays
// unacknowledged.
func (h *Holder) visit(d amqp091.Delivery, visit func(Held) error) error {
	b := h.chunk.block
	h.mu.Lock()
	b.taken++
	b.held++
	h.taken++
	h.bytes += int64(len(d.Body))
	h.mu.Unlock()
	h.chunk.left--
	h.returned = d.Redelivered
	d.Headers = wire.Unwrap(d.Headers)
	err := visit(Held{Delivery: d, block: b})
	h.conn.gate.Release(d.DeliveryTag, false)
	return err
}

// rest cancels the consumer of an empty queue, and visits what came in that moment.
func (h *Holder) rest(visit func(Held) error) error {
	deliveries := h.chunk.deliveries
	if err := h.endSubscription(); err != nil {
		return err
	}
	if h.o.First { // it goes on, and what it gets now is not wanted
		h.chunk = nil
		return nil
	}
	for d := range deliveries {
		if err := h.visit(d, visit); err != nil {
			return err
		}
	}
	if h.chunk.left > 0 && h.chunk.block.ch.IsClosed() {
		return h.chunk.block.err()
	}
	h.chunk = nil
	return nil
}

// cancel ends the chunk.
func (h *Holder) cancel() error {
	err := h.endSubscription()
	h.chunk = nil
	return err
}

// endSubscription cancels the consumer of the chunk, and sends the acknowledgements that had to
// wait: while it took, the broker would have sent another message for each.
func (h *Holder) endSubscription() error {
	last := h.chunk.block
	return h.ask(func() error {
		if h.o.First {
			return nil // it keeps what arrives from the others until Release
		}
		if err := last.ch.Cancel(last.tag, false); err != nil {
			return last.err()
		}
		h.mu.Lock()
		last.taking = false
		blocks := h.blocks
		h.mu.Unlock()
		for _, b := range blocks {
			if err := b.settle(h.waiting(b)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Commit takes no more, and has the queue delete what was acknowledged so far. It is called between
// Take and Release. A channel may forget acknowledgements if more than 30 calls of Commit have sent
// some, see block.settle.
//
// Nothing can be lost: see Ack.
func (h *Holder) Commit() error {
	if h.chunk != nil {
		return h.cancel()
	}
	return h.ask(func() error {
		for _, b := range h.blocks {
			if err := b.settle(h.waiting(b)); err != nil {
				return err
			}
		}
		return nil
	})
}

// waiting returns the acknowledgements of a block that wait, to be sent now.
func (h *Holder) waiting(b *block) []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	acks := b.acks
	b.acks = nil
	return acks
}

// idleness counts how often in succession a queue answered that it has nothing ready, while
// nothing arrived. Some times are not enough: what a queue has assigned to a consumer is not ready,
// and may be on its way.
type idleness struct{ taken, zeros int }

// idle reports whether the queue has nothing left to deliver.
func (h *Holder) idle(i *idleness) (bool, error) {
	if h.taken != i.taken {
		*i = idleness{taken: h.taken}
		return false, nil
	}
	var now counts
	err := h.ask(func() (err error) {
		now, err = h.conn.count(h.queue)
		return err
	})
	if err != nil {
		return false, err
	}
	if now.ready > 0 || now.slow {
		i.zeros = 0
		return false, nil
	}
	i.zeros++
	return i.zeros >= idleTicks, nil
}
