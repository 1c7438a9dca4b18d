package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// ErrReordered is the error of Release when it could not take all that it needs to keep the order.
// Nothing is lost: they are in the queue, but maybe behind others that were returned earlier.
var ErrReordered = errors.New("the messages are back in the queue, maybe behind others that were returned earlier")

// ErrUnsettled is the error of Release when acknowledgements may not have reached the queue: the
// channel or its connection ended too early, or the leader of the queue is silent. Nothing is lost:
// the queue may still have messages of which a copy is safe elsewhere.
var ErrUnsettled = errors.New("the connection ended before the queue had taken all acknowledgements; messages that were moved may be in the queue too")

// ErrNoLeader is ErrUnsettled of a Holder with First whose queue has no leader: the channel has
// acknowledged, its witness says so, and the queue may have lost the acknowledgements with its
// leader.
var ErrNoLeader = fmt.Errorf("%w; the queue has no leader", ErrUnsettled)

// ErrGivenBack is the error of a Holder that no longer holds messages.
var ErrGivenBack = errors.New("the messages were given back")

// HolderOptions says what a Holder takes and how it gives it back.
type HolderOptions struct {
	// Messages is how many to take, from the head of the queue.
	Messages int
	// Bytes stops taking once the bodies have that many bytes, give or take some thousand
	// messages. Zero means no limit.
	Bytes int64
	// First takes the messages before all other consumers, and what arrives until Release too, so that
	// the others get nothing meanwhile and all of it after that in order. Messages, and what arrives,
	// must be no more than [MostFirst]. It excludes Block and Nack.
	First bool
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
	// Most is how many messages Release may hold for that. Zero means no limit.
	Most int
	// Beyond is called with each message that Release takes for that. Nil does nothing.
	Beyond func(Held) error
	// Witness names a queue that no other client consumes from. The Holder acknowledges its first
	// message in the transaction with its first acknowledgements. Once the queue has no consumer, it
	// has that message if none of them was carried out, see block.settle. Such a Holder has one
	// channel, and fails if it needs more. Empty is none.
	Witness string
	// Timeout makes the broker itself take the messages back: x-consumer-timeout, which quorum
	// queues know since 4.3. Zero leaves it out.
	Timeout time.Duration

	perConsumer int           // zero is maxPrefetch; a test needs less
	answerTime  time.Duration // zero is answerTime; a test needs less
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
// Acknowledgements are sent in transactions, see block.settle: sent one by one, the broker may
// forget most of them at the end of the channel.
//
// Other consumers get what arrives while a Holder has what was before it. With First they do not:
// its consumer has the highest priority and a prefetch that is never used up, and it is not
// canceled. The end of its channel ends it and returns its messages in one step, so that nothing
// comes between. While a publisher was at work, with 30,000 messages ready, a consumer then got all
// messages in order: none of some thousand overtook another in 15 rounds of each line (3.10.8,
// 4.0.5 and 4.3.6). Where the consumer was canceled first, or the messages nacked, up to 4 of 5 did
// (4.3.6). A classic queue delivers to the others while 200 messages are on their way to a channel:
// up to 180 were returned in order, of 400 most were overtaken.
//
// Ack and Taken may be called from any goroutine, the others from the one that calls Take.
type Holder struct {
	conn  *Conn
	queue string
	o     HolderOptions

	// asking is held while a goroutine makes requests on the channels of the Holder, see ask.
	asking sync.Mutex

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
	overtaken bool // others may have got messages in spite of First
	others    int  // consumers that the queue had before
	unsettled bool // acknowledgements may not have reached the queue
	noLeader  bool // the queue has not answered since the last ones, with First
}

// block is what one channel holds.
type block struct {
	ch     *amqp091.Channel
	closed chan *amqp091.Error
	taken  int
	held   int      // taken and not acknowledged
	tag    string   // of its latest consumer
	tags   int      // consumers so far
	taking bool     // the latest consumer may receive more
	acks   []uint64 // acknowledgements that wait until they are committed
	acked  bool     // some were sent
	tx     bool     // the channel is transactional
	// witness are the messages of Holder.Witness that wait to be acknowledged.
	witness []uint64
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

// Ack acknowledges one message: the broker deletes it when the next consumer has ended, or at the
// latest when Release gives the others back. The caller guarantees that its copy is safe. A message
// that was given back before is not acknowledged: Ack fails with ErrGivenBack.
func (h *Holder) Ack(m Held) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return ErrGivenBack
	}
	m.block.held--
	m.block.acks = append(m.block.acks, m.DeliveryTag)
	return nil
}

// Extend lets Take take n messages more.
func (h *Holder) Extend(n int) { h.o.Messages += n }

// Taken returns how many messages were taken, and how many bytes their bodies had.
func (h *Holder) Taken() (messages int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken, h.bytes
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

// ask makes requests to the broker, for the goroutine that takes. No other goroutine makes any
// meanwhile: the library gives an answer to any caller that waits on the channel, and the broker
// does not answer a basic.consume if it has received the basic.cancel of that consumer (4.3.6,
// measured). So of two callers at the same time one could wait forever.
func (h *Holder) ask(request func() error) error {
	h.asking.Lock()
	defer h.asking.Unlock()
	if h.isOver() {
		return ErrGivenBack
	}
	defer h.conn.gate.Lift()() // the answer may be behind deliveries
	return request()
}

func (h *Holder) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// MostFirst is how many messages a Holder with First may take, and of these in a classic queue
// MostFirstClassic. What arrives meanwhile needs room in the prefetch, and in a classic queue in
// the 200 messages that RabbitMQ sends to a channel before it passes it over.
const (
	MostFirst        = 30_000
	MostFirstClassic = 150
)

// firstPriority is the x-priority of a consumer that takes before all others.
const firstPriority = 1_000_000_000

// settle acknowledges what waits, in one transaction, while no other goroutine asks.
//
// Each acknowledgement that a client sends is a command of its own to a quorum queue. Once 32 of
// them are not applied, the channel keeps the next ones, and forgets them if it is closed (soft
// limit of rabbit_fifo_client, 3.10 to 4.3): with both cores busy 42 of 45 channels that were
// closed behind 400 acknowledgements forgot up to 367 of them (3.10.8, 4.0.5 and 4.3.6, measured).
// A commit makes one command for each consumer of the channel (settle_acks in rabbit_channel), so
// that none has to wait: 0 of 165.
//
// The broker carries out a commit in one step of the channel, also if the connection ends in that
// moment, or does nothing of it (handle_method(#'tx.commit'{}) in rabbit_channel, 3.10 to 4.3). So
// the acknowledgement of the witness is sent if one of the others is. A classic queue handles it
// before the end of the channel, as both come from the same process.
//
// Nothing can be lost: see Holder.Ack.
func (b *block) settle(acks []uint64) error {
	if len(acks) == 0 {
		return nil
	}
	if !b.tx {
		if err := b.ch.Tx(); err != nil {
			return b.err()
		}
		b.tx = true
	}
	b.acked = true
	acks, b.witness = append(b.witness, acks...), nil
	for _, tag := range acks {
		if err := b.ch.Ack(tag, false); err != nil {
			return b.err()
		}
	}
	if err := b.ch.TxCommit(); err != nil {
		return b.err()
	}
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
			return ErrCanceled
		}
	}
}
