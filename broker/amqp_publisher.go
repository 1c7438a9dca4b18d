package broker

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Publisher publishes mandatory messages on a confirming channel of its own,
// without waiting for each. It belongs to one goroutine.
type Publisher struct {
	conn     *Conn
	ch       *amqp.Channel
	settled  chan struct{}
	returns  chan amqp.Return
	closed   chan *amqp.Error
	pending  []pending // in the order of publishing
	outcomes []Outcome // what Outcomes gave last
}

// pending is a publishing that is not confirmed yet.
type pending struct {
	seq      uint64
	exchange string
	key      string
	message  *amqp.Publishing // nil once its outcome was given
	returned string           // why, if the broker gave it back
	confirm  *amqp.DeferredConfirmation
}

// Outcome is what became of a publishing.
type Outcome struct {
	// Seq is what Publish gave.
	Seq uint64
	// Refused is empty if the broker has taken the message over. Otherwise it
	// says why it has not: the message was returned, or nacked.
	Refused string
	// Nacked says that it was nacked: its place is known, and does not take it
	// now.
	Nacked bool
}

// Publisher opens a channel on which up to window publishings may be without an
// outcome. More would block the connection.
func (c *Conn) Publisher(window int) (*Publisher, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("ask for confirms: %w", err)
	}
	p := &Publisher{
		conn:    c,
		ch:      ch,
		settled: make(chan struct{}, 1),
		returns: ch.NotifyReturn(make(chan amqp.Return, window)),
		closed:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	go signal(ch.NotifyPublish(make(chan amqp.Confirmation, window)), p.settled)
	return p, nil
}

// signal tells that confirms have come, and no more than that, until the library
// closes the channel.
//
// It reads them whatever else goes on: while a confirm is missing thousands may come
// behind it, and when it comes at last the library gives them out in one go, holding
// a lock that each publish needs. Were it the publisher who had to read them, both
// would wait for each other, and the library would throw away one each 5 seconds
// (v1.16.0, confirms.resequence and notifyAll).
//
// What it reads is not believed either: a nack that came before the confirm of an
// earlier publishing is overruled there by the acknowledgement that names all up to
// a later one (confirms.Multiple), and what was refused would be taken for safe.
func signal(confirms <-chan amqp.Confirmation, settled chan<- struct{}) {
	for range confirms {
		select {
		case settled <- struct{}{}:
		default: // it is told already
		}
	}
	close(settled)
}

// Publish sends a mandatory message and gives its number. It does not wait.
// After an error the channel is done with.
func (p *Publisher) Publish(exchange, key string, m amqp.Publishing) (uint64, error) {
	confirm, err := p.ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if errors.Is(err, amqp.ErrClosed) {
		return 0, p.Err() // a reason says more
	}
	if err != nil {
		return 0, explainChannel(err)
	}
	p.pending = append(p.pending, pending{seq: confirm.DeliveryTag, exchange: exchange, key: key, message: &m, confirm: confirm})
	return confirm.DeliveryTag, nil
}

// Settled tells that Outcomes may have something to give. It is closed when the
// channel is: Outcomes then gives what was confirmed before.
func (p *Publisher) Settled() <-chan struct{} { return p.settled }

// Outcomes gives the outcomes that are known, in the order of publishing, up to the
// first publishing without a confirm; those behind it come out of Late. Each is given
// once. The list is good until the next call.
func (p *Publisher) Outcomes() []Outcome {
	n := 0
	for n < len(p.pending) && p.isSettled(&p.pending[n]) {
		n++
	}
	p.readReturns() // only now: a return comes before its confirm, and may have come since
	p.outcomes = p.outcomes[:0]
	for i := range p.pending[:n] {
		if m := &p.pending[i]; m.message != nil {
			p.outcomes = append(p.outcomes, m.outcome())
		}
	}
	clear(p.pending[:n]) // lets go of the bodies
	p.pending = p.pending[n:]
	return p.outcomes
}

// isSettled reports whether the broker has confirmed a publishing, one way or the
// other. The library nacks by itself what was in flight when the channel was closed;
// that is in doubt, not refused.
func (p *Publisher) isSettled(m *pending) bool {
	select {
	case <-m.confirm.Done():
		return m.confirm.Acked() || !p.ch.IsClosed()
	default:
		return false
	}
}

// outcome tells what became of a publishing whose confirm is there.
func (m *pending) outcome() Outcome {
	if !m.confirm.Acked() {
		return Outcome{Seq: m.seq, Nacked: true, Refused: "the broker refused the message (nack): a queue is full, or could not take it"}
	}
	return Outcome{Seq: m.seq, Refused: m.returned}
}

// readReturns notes the returns that have arrived.
func (p *Publisher) readReturns() {
	for {
		select {
		case r, ok := <-p.returns:
			if ok {
				p.returned(r)
				continue
			}
		default:
		}
		return
	}
}

// Late gives the outcomes that are known and that Outcomes does not give, since
// that keeps the order and an earlier publishing has no confirm: its queue may
// be without a leader, while others take messages. Each is given once. oldest is the
// number of the earliest publishing without a confirm; zero says that there is none,
// or that the broker takes nothing from this connection, because of an alarm.
func (p *Publisher) Late() (oldest uint64, late []Outcome) {
	var done []*pending
	for i := range p.pending {
		m := &p.pending[i]
		switch {
		case m.message == nil:
		case p.isSettled(m):
			done = append(done, m)
		case oldest == 0:
			oldest = m.seq
		}
	}
	p.readReturns() // only now: a return comes before its confirm, and may have come since
	for _, m := range done {
		late = append(late, m.outcome())
		// As long as the earlier one is missing these add up: what is left must be small.
		*m = pending{confirm: m.confirm}
	}
	if p.conn.blocked.Load() {
		oldest = 0
	}
	return oldest, late
}

// returned notes a return. It carries no number, so the oldest publishing that is
// equal to it is taken for it: two equal messages are as good as each other. If the
// headers came back changed, any of those that are alike may be the one, and all of
// them count as returned: to publish one twice is better than to lose another.
func (p *Publisher) returned(r amqp.Return) {
	why := fmt.Sprintf("%d %s: exchange %q has no queue for the message", r.ReplyCode, r.ReplyText, r.Exchange)
	for i := range p.pending {
		if m := &p.pending[i]; m.message != nil && m.returned == "" && equal(*m, r) {
			m.returned = why
			return
		}
	}
	for i := range p.pending {
		if m := &p.pending[i]; m.message != nil && alike(*m, r) {
			m.returned = why
		}
	}
}

// alike reports whether m may have come back as r.
func alike(m pending, r amqp.Return) bool {
	return m.exchange == r.Exchange && m.key == r.RoutingKey && m.message.MessageId == r.MessageId &&
		m.message.CorrelationId == r.CorrelationId && bytes.Equal(m.message.Body, r.Body)
}

// equal reports whether m came back as r, with the same headers.
func equal(m pending, r amqp.Return) bool {
	if !alike(m, r) || len(m.message.Headers) != len(r.Headers) {
		return false
	}
	return reflect.DeepEqual(m.message.Headers, r.Headers) || len(r.Headers) == 0
}

// Close ends the channel: what is not confirmed is in doubt.
func (p *Publisher) Close() error { return p.ch.Close() }

// Err says why the channel was closed.
func (p *Publisher) Err() error {
	// The library tells of the reason just after it lets go of the channel.
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case e := <-p.closed:
		if e != nil {
			return explainChannel(e)
		}
	case <-timer.C:
	}
	return amqp.ErrClosed
}
