package amqp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Publisher publishes mandatory messages on a confirming channel of its own, without waiting for
// each. It belongs to one goroutine.
type Publisher struct {
	conn     *Conn
	ch       *amqp091.Channel
	settled  chan struct{}
	returns  chan amqp091.Return
	closed   chan *amqp091.Error
	pending  []pending // in the order of publishing
	outcomes []Outcome // what Outcomes returned last
}

// pending is a message that is published and not confirmed yet.
type pending struct {
	seq      uint64
	exchange string
	key      string
	message  *amqp091.Publishing // nil once its outcome was returned
	returned string              // why, if the broker returned it
	confirm  *amqp091.DeferredConfirmation
}

// Outcome is what became of a published message.
type Outcome struct {
	// Seq is the number that Publish returned.
	Seq uint64
	// Refused is empty if the broker has accepted the message. Otherwise it is the reason: the
	// message was returned, or nacked.
	Refused string
	// Nacked reports that the message was nacked: its queue exists, and does not accept it now.
	Nacked bool
}

// Publisher opens a channel on which up to window messages may be without an outcome. More would
// block the connection.
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
		returns: ch.NotifyReturn(make(chan amqp091.Return, window)),
		closed:  ch.NotifyClose(make(chan *amqp091.Error, 1)),
	}
	confirms := ch.NotifyPublish(make(chan amqp091.Confirmation, window))
	c.starting.Lock()
	c.running.Go(func() { signal(confirms, p.settled) })
	c.starting.Unlock()
	return p, nil
}

// signal reports that confirms have arrived, and no more than that, until the library closes the
// channel.
//
// It reads confirms whatever else goes on: while one confirm is missing thousands may queue up
// behind it, and when it arrives the library passes them all on at once, holding a lock that each
// publish needs. If the publisher had to read them, both would wait for each other, and the library
// would discard one each 5 seconds (v1.16.0, confirms.resequence and notifyAll;
// https://github.com/rabbitmq/amqp091-go/issues/10 and
// https://github.com/rabbitmq/amqp091-go/issues/21).
//
// Their content is not used: in the library an acknowledgement of all messages up to a later one
// overrides a nack that arrived before the confirm of an earlier message (confirms.Multiple), and a
// refused message would count as accepted.
func signal(confirms <-chan amqp091.Confirmation, settled chan<- struct{}) {
	for range confirms {
		select {
		case settled <- struct{}{}:
		default: // a signal is waiting already
		}
	}
	close(settled)
}

// Publish sends a mandatory message and returns its number. It does not wait. After an error the
// channel is unusable.
func (p *Publisher) Publish(exchange, key string, m amqp091.Publishing) (uint64, error) {
	confirm, err := p.ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if _, cut := errors.AsType[net.Error](err); cut || errors.Is(err, amqp091.ErrClosed) {
		return 0, p.Err() // the reason helps more
	}
	if err != nil {
		return 0, explainChannel(err)
	}
	p.pending = append(p.pending,
		pending{seq: confirm.DeliveryTag, exchange: exchange, key: key, message: &m, confirm: confirm})
	return confirm.DeliveryTag, nil
}

// PublishOne sends a mandatory message while no other is in flight, and returns why the broker
// refused it: empty once it is confirmed. After an error the channel is unusable.
func (p *Publisher) PublishOne(
	ctx context.Context, exchange, key string, m amqp091.Publishing,
) (refused string, err error) {
	if _, err := p.Publish(exchange, key, m); err != nil {
		return "", err
	}
	for open := true; ; {
		if known := p.Outcomes(); len(known) > 0 {
			return known[0].Refused, nil
		}
		if !open {
			return "", p.Err()
		}
		select {
		case _, open = <-p.Settled():
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Settled receives a value when Outcomes may have something to return. It is closed when the
// channel is: Outcomes then returns what was confirmed before.
func (p *Publisher) Settled() <-chan struct{} { return p.settled }

// Outcomes returns the known outcomes, in the order of publishing, up to the first message without
// a confirm; Late returns those behind it. Each outcome is returned once. The list is valid until
// the next call.
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
	clear(p.pending[:n]) // frees the bodies
	p.pending = p.pending[n:]
	return p.outcomes
}

// isSettled reports whether the broker has confirmed a message, one way or the other. The library
// itself nacks what was in flight when the channel was closed; that is in doubt, not refused.
func (p *Publisher) isSettled(m *pending) bool {
	select {
	case <-m.confirm.Done():
		return m.confirm.Acked() || !p.ch.IsClosed()
	default:
		return false
	}
}

// outcome returns what became of a message whose confirm has arrived.
func (m *pending) outcome() Outcome {
	if !m.confirm.Acked() {
		return Outcome{
			Seq: m.seq, Nacked: true,
			Refused: "the broker refused the message (nack): a queue is full, or could not accept it",
		}
	}
	return Outcome{Seq: m.seq, Refused: m.returned}
}

// readReturns notes the returned messages that have arrived.
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

// Late returns the known outcomes that Outcomes does not return yet, since it keeps the order and
// an earlier message has no confirm: the queue of that message may be without a leader, while
// others accept messages. Each outcome is returned once. oldest is the number of the earliest
// message without a confirm; zero means that there is none, or that the broker accepts nothing on
// this connection, because of an alarm.
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
		// As long as the earlier confirm is missing these add up: what is left must be small.
		*m = pending{confirm: m.confirm}
	}
	if p.conn.blocked.Load() {
		oldest = 0
	}
	return oldest, late
}

// returned notes a returned message. It has no number, so the oldest pending message that equals it
// counts as the one: two equal messages are interchangeable. If the headers came back changed, each
// of the similar messages may be the one, and all of them count as returned: a duplicate is better
// than a loss.
func (p *Publisher) returned(r amqp091.Return) {
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
func alike(m pending, r amqp091.Return) bool {
	return m.exchange == r.Exchange && m.key == r.RoutingKey && m.message.MessageId == r.MessageId &&
		m.message.CorrelationId == r.CorrelationId && bytes.Equal(m.message.Body, r.Body)
}

// equal reports whether m came back as r, with the same properties and headers.
func equal(m pending, r amqp091.Return) bool {
	p := m.message
	sent := [...]string{p.ContentType, p.ContentEncoding, p.ReplyTo, p.Expiration, p.Type, p.UserId, p.AppId}
	back := [...]string{r.ContentType, r.ContentEncoding, r.ReplyTo, r.Expiration, r.Type, r.UserId, r.AppId}
	if !alike(m, r) || sent != back || p.Priority != r.Priority || p.Timestamp.Unix() != r.Timestamp.Unix() ||
		len(p.Headers) != len(r.Headers) {
		return false
	}
	return reflect.DeepEqual(p.Headers, r.Headers) || len(r.Headers) == 0
}

// Close ends the channel: what is not confirmed is in doubt.
func (p *Publisher) Close() error { return p.ch.Close() }

// Err returns why the channel was closed.
func (p *Publisher) Err() error { return reason(p.closed) }

// reason returns why a channel was closed. The library reports it just after it has closed the
// channel.
func reason(closed <-chan *amqp091.Error) error {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case e := <-closed:
		if e != nil {
			return explainChannel(e)
		}
	case <-timer.C:
	}
	return amqp091.ErrClosed
}
