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
	confirms chan amqp.Confirmation
	returns  chan amqp.Return
	closed   chan *amqp.Error
	pending  []pending // in the order of publishing, which is that of the confirms
}

// pending is a publishing that is not confirmed yet.
type pending struct {
	seq      uint64
	exchange string
	key      string
	message  *amqp.Publishing // nil once Late has given the outcome
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
	return &Publisher{
		conn:     c,
		ch:       ch,
		confirms: ch.NotifyPublish(make(chan amqp.Confirmation, window)),
		returns:  ch.NotifyReturn(make(chan amqp.Return, window)),
		closed:   ch.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
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

// Confirms is where confirms come from, in the order of publishing. Each is
// read by Outcome, and by nothing else: its Ack may be wrong. It is closed when the
// broker closes the channel.
func (p *Publisher) Confirms() <-chan amqp.Confirmation { return p.confirms }

// Outcome reads a confirm.
//
// Whether it was an acknowledgement or a nack is what the library keeps for each
// publishing. What it sends through Confirms is not: there, a nack that came before
// the confirm of an earlier publishing is overruled by the acknowledgement that
// names all up to a later one (v1.16.0, confirms.Multiple), and what was refused would
// be taken for safe.
//
// A message that fits no queue is returned before it is confirmed, on the same
// channel, and the library hands both over in that order: so the returns that
// belong to this confirm are here already.
func (p *Publisher) Outcome(c amqp.Confirmation) Outcome {
	p.readReturns()
	if len(p.pending) == 0 || p.pending[0].seq != c.DeliveryTag {
		return Outcome{Seq: c.DeliveryTag, Refused: "the broker confirmed what was not published"}
	}
	out := p.pending[0].outcome()
	p.pending[0] = pending{} // lets go of the body
	p.pending = p.pending[1:]
	return out
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

// Late gives the outcomes that are known and do not come out of Confirms, since
// that keeps the order and an earlier publishing has no confirm: its queue may
// be without a leader, while others take messages. Each is given once, and comes
// out of Confirms in the end too. oldest is the number of the earliest
// publishing without a confirm; zero says that there is none, or that the broker
// takes nothing from this connection, because of an alarm.
func (p *Publisher) Late() (oldest uint64, late []Outcome) {
	var done []*pending
	for i := range p.pending {
		m := &p.pending[i]
		if m.message == nil {
			continue
		}
		select {
		case <-m.confirm.Done():
			done = append(done, m)
		default:
			if oldest == 0 {
				oldest = m.seq
			}
		}
	}
	p.readReturns() // only now: a return comes before its confirm, and may have come since
	for _, m := range done {
		late = append(late, m.outcome())
		// As long as the earlier one is missing these add up: what is left must be small.
		*m = pending{seq: m.seq, returned: m.returned, confirm: m.confirm}
	}
	if p.conn.blocked.Load() {
		oldest = 0
	}
	return oldest, late
}

// returned notes a return. It carries no number, so the oldest publishing that
// is equal to it is taken for it: two equal messages are as good as each other.
func (p *Publisher) returned(r amqp.Return) {
	why := fmt.Sprintf("%d %s: exchange %q has no queue for the message", r.ReplyCode, r.ReplyText, r.Exchange)
	for _, same := range []func(pending, amqp.Return) bool{equal, alike} {
		for i := range p.pending {
			if m := &p.pending[i]; m.message != nil && m.returned == "" && same(*m, r) {
				m.returned = why
				return
			}
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
