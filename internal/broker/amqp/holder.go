package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	// completeTime is how long Release may take messages that it needs to keep the order.
	completeTime = time.Minute
	// idleTicks is how many times in succession the answer must be yes.
	idleTicks = 10
	// stallTime is how long Release waits for messages to come back when no more do.
	stallTime = 3 * time.Second
	// returnPause is the pause between two questions whether they are back.
	returnPause = 5 * time.Millisecond
)

// ErrReordered is the error of Release when it could not take all that it needs to keep the order.
// Nothing is lost: they are in the queue, but maybe behind others that were returned earlier.
var ErrReordered = errors.New("the messages are back in the queue, maybe behind others that were returned earlier")

// ErrGivenBack is the error of a Holder that no longer holds messages.
var ErrGivenBack = errors.New("the messages were given back")

// HolderOptions says what a Holder takes and how it gives it back.
type HolderOptions struct {
	// Messages is how many to take, from the head of the queue.
	Messages int
	// Bytes stops taking once the bodies have that many bytes, give or take some thousand
	// messages. Zero is no limit.
	Bytes int64
	// Block is how many messages each channel holds. The cost of a single acknowledgement grows
	// with what its channel holds: 2,000 suits many of them. Zero is one channel for all.
	Block int
	// Nack gives back with basic.nack in place of closing the channel. On a quorum queue of 4.3
	// that keeps the order and does not raise x-delivery-count. On earlier versions it scrambles
	// the queue, or moves the messages to its tail (measured).
	Nack bool
	// Classic says that the queue is a classic one, which puts each message back in its place. Of
	// any other queue Release may have to take more messages first, to keep the order.
	Classic bool
	// Most is how many messages Release may hold for that. Zero is no limit.
	Most int
	// Beyond is called with each message that Release takes for that. Nil does nothing.
	Beyond func(Held) error
	// Timeout makes the broker itself take the messages back: x-consumer-timeout, which quorum
	// queues know since 4.3. Zero leaves it out.
	Timeout time.Duration

	perConsumer int // zero is maxPrefetch; a test needs less
}

// Held is a message that a Holder has taken. Its body belongs to the visitor.
type Held struct {
	amqp091.Delivery
	block *block
}

// Holder takes messages from the head of one queue, in order, keeps them unacknowledged, and gives
// back in the same order what was not acknowledged. It keeps no bodies. A connection has one
// Holder at a time, and nothing else that consumes.
//
// It consumes with a prefetch of exactly as many messages as it takes, cancels the consumer, and
// gives back by closing the channel: no other way keeps the order on all versions and types of
// queues (3.10.8, 4.0.5 and 4.3.6, measured). basic.get would scramble a quorum queue. Until then
// nothing can be lost: the broker has all messages, and takes them back if the process, the
// connection or the channel ends. After that the messages of several blocks of a quorum queue may
// come back in another order of blocks; within a channel the order stays.
//
// A quorum queue keeps messages that were returned in a list of their own, which it delivers first,
// and appends to it: a part of that list that is taken and given back ends up behind the rest of
// it (3.10.8, 4.0.5 and 4.3.6, measured). So Release takes the rest of the list too, before it
// gives back: up to the first message that is not marked as redelivered. If the connection dies
// before, the part is behind the rest.
//
// Ack and Taken may be called from any goroutine, the others from the one that calls Take.
type Holder struct {
	conn  *Conn
	queue string
	o     HolderOptions

	chunk *chunk // what is being taken; nil between two
	tags  int    // consumers so far
	// returned reports that the latest message was marked as redelivered.
	returned bool
	drained  bool // the queue was empty at the end of the latest chunk

	mu     sync.Mutex
	blocks []*block
	taken  int
	bytes  int64
	over   bool // everything was given back
	// contested: other consumers take what comes back, so that it cannot be counted.
	contested bool
}

// block is what one channel holds.
type block struct {
	ch     *amqp091.Channel
	closed chan *amqp091.Error
	taken  int
	held   int      // taken and not acknowledged
	tag    string   // of its latest consumer
	taking bool     // that consumer may receive more
	acks   []uint64 // acknowledgements that wait until the consumer is canceled
}

// chunk is what one consumer takes.
type chunk struct {
	block      *block
	deliveries <-chan amqp091.Delivery
	left       int // to be delivered
}

// Holder returns a Holder that has taken nothing yet.
func (c *Conn) Holder(queue string, o HolderOptions) *Holder {
	return &Holder{conn: c, queue: queue, o: o}
}

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

// whileAlive gives everything back when ctx ends before do returns.
func (h *Holder) whileAlive(ctx context.Context, do func() error) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(ended); _ = h.giveBack() })
	err := do()
	if !stop() {
		<-ended
		return context.Cause(ctx)
	}
	return err
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
}

func (h *Holder) last() *block {
	if len(h.blocks) == 0 {
		return nil
	}
	return h.blocks[len(h.blocks)-1]
}

// current returns the block that has room, or a new one.
func (h *Holder) current() (*block, error) {
	if b := h.last(); b != nil && b.taken < h.perChannel() {
		return b, nil
	}
	others := 0
	if len(h.blocks) == 0 {
		var err error
		if _, others, err = h.conn.count(h.queue); err != nil {
			return nil, err
		}
	}
	ch, err := h.conn.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	b := &block{ch: ch, closed: ch.NotifyClose(make(chan *amqp091.Error, 1))}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		_ = ch.Close() // it has received nothing
		return nil, ErrGivenBack
	}
	h.contested = h.contested || others > 0
	h.blocks = append(h.blocks, b)
	h.conn.gate.Begin(unreadBytes) // the tags of a channel count from 1
	return b, nil
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
			if h.drained, err = idle.empty(h.conn, h.queue, h.taken); err != nil {
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

// consume subscribes with a prefetch of exactly n.
func (h *Holder) consume(b *block, n int) (<-chan amqp091.Delivery, error) {
	tag := fmt.Sprintf("desk-%03d", h.tags)
	h.tags++
	h.mu.Lock()
	b.taking, b.tag = true, tag
	h.mu.Unlock()
	if err := b.ch.Qos(n, 0, false); err != nil { // it applies to the next consumer
		return nil, explainChannel(err)
	}
	var args amqp091.Table
	if h.o.Timeout > 0 {
		args = amqp091.Table{"x-consumer-timeout": h.o.Timeout.Milliseconds()}
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
	b := h.chunk.block
	lower := h.conn.gate.Lift() // the answer may be behind deliveries
	err := b.ch.Cancel(b.tag, false)
	lower()
	if err != nil {
		return b.err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b.taking = false
	return b.flush()
}

// flush sends the acknowledgements that waited. Nothing can be lost: see Holder.Ack.
func (b *block) flush() error {
	for _, tag := range b.acks {
		if err := b.ch.Ack(tag, false); err != nil {
			return b.err()
		}
	}
	b.acks = nil
	return nil
}

// err returns why a channel ended.
func (b *block) err() error {
	timer := time.NewTimer(time.Second) // the library reports the reason just after the end
	defer timer.Stop()
	for {
		select {
		case e := <-b.closed:
			if e != nil {
				return explainChannel(e)
			}
			return amqp091.ErrClosed
		case <-timer.C:
			return errors.New("the broker canceled the consumer: the queue was deleted, or its leader is gone")
		}
	}
}

// Ack acknowledges one message: the broker deletes it. The caller guarantees that its copy is safe.
// A message that was given back before is not acknowledged: Ack fails with ErrGivenBack.
func (h *Holder) Ack(m Held) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return ErrGivenBack
	}
	m.block.held--
	m.block.acks = append(m.block.acks, m.DeliveryTag)
	if m.block.taking {
		return nil
	}
	return m.block.flush()
}

// Extend lets Take take n messages more.
func (h *Holder) Extend(n int) { h.o.Messages += n }

// Taken returns how many messages were taken, and how many bytes their bodies had.
func (h *Holder) Taken() (messages int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken, h.bytes
}

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
			ready, err := h.conn.MessagesReady(h.queue)
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

func (h *Holder) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// giveBack ends channel after channel: two that end at the same moment come back in any order.
func (h *Holder) giveBack() error {
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

// end ends a channel, and waits until its messages are back. A channel that the broker has
// ended needs nothing: its messages are back.
func (h *Holder) end(b *block) error {
	if b.taking {
		h.cancelInTime(b)
	}
	before := h.readyNow()
	if b.ch.IsClosed() || b.flush() != nil {
		return nil //nolint:nilerr // the broker ended the channel, and has its messages back
	}
	back := func() {
		if before >= 0 && !h.contested {
			h.await(before + b.held)
		}
	}
	if h.o.Nack && b.held > 0 {
		if b.ch.Nack(0, true, true) != nil { // 0 is all of the channel
			return nil //nolint:nilerr // as above
		}
		back() // only now the channel may end, which would count as a return
	}
	if err := b.ch.Close(); err != nil && !errors.Is(err, amqp091.ErrClosed) {
		return err
	}
	back()
	return nil
}

// readyNow returns how many messages are ready in the queue; -1 is unknown.
func (h *Holder) readyNow() int {
	ready, _, err := h.conn.count(h.queue)
	if err != nil {
		return -1
	}
	return ready
}

// cancelTime is how long a broker may take to confirm the end of a subscription.
const cancelTime = 10 * time.Second

// cancelInTime ends a subscription. If the answer does not come, it ends the connection, and the
// broker takes everything back: no message was acknowledged that is not safe elsewhere.
func (h *Holder) cancelInTime(b *block) {
	done := make(chan struct{})
	go func() { defer close(done); _ = b.ch.Cancel(b.tag, false) }() // the end of the channel does it too
	timer := time.NewTimer(cancelTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		_ = h.conn.Close() // within a deadline of its own
	}
}

// await waits until the queue has n messages, as long as their number changes.
func (h *Holder) await(n int) {
	last, changed := -1, time.Now()
	tick := time.NewTicker(returnPause)
	defer tick.Stop()
	for {
		ready, consumers, err := h.conn.count(h.queue)
		if err != nil || ready >= n {
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

// idleness counts how often in succession a queue answered that it has nothing ready, while
// nothing arrived. Some times are not enough: what a queue has assigned to a consumer is not ready,
// and may be on its way.
type idleness struct{ taken, zeros int }

// empty reports whether the queue has nothing left to deliver.
func (i *idleness) empty(c *Conn, queue string, taken int) (bool, error) {
	if taken != i.taken {
		*i = idleness{taken: taken}
		return false, nil
	}
	began := time.Now()
	ready, _, err := c.count(queue)
	if err != nil {
		return false, err
	}
	if ready > 0 || time.Since(began) >= silence {
		i.zeros = 0
		return false, nil
	}
	i.zeros++
	return i.zeros >= idleTicks, nil
}

// count returns how many messages are ready in a queue, and how many consumers it has, as one
// answer of the queue says.
func (c *Conn) count(queue string) (ready, consumers int, err error) {
	err = c.onChannel(func(ch *amqp091.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		ready, consumers = q.Messages, q.Consumers
		return err
	})
	return ready, consumers, err
}
