package relay

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
)

// Caution keeps the messages of a queue from being published again and again.
//
// A message may end the channel or the connection whenever it is published, or
// delivered, for whatever reason. All that is in flight then is delivered again, and
// published again: doubled, as often as somebody connects. So after such an end the
// messages are moved one by one, each acknowledged before the next is published, for
// as many as may have been in flight, and for twice as many each time it happens. What
// ends a channel then is known, is not published again, and stays in the queue. All
// others go on.
//
// It also finds out how many messages may be in flight where their bodies are large.
//
// It lives as long as the queue is worked off, over any number of connections. Its
// methods are called by one goroutine.
type Caution struct {
	// Prefetch is how many messages may be in flight, and Bytes how many bytes.
	Prefetch, Bytes int
	// Tell is told of each finding, once.
	Tell func(Finding)

	window   int // how many may be in flight as they are large; zero is Prefetch
	oneByOne int // how many are to be moved one by one
	times    int // how often that was begun
	places   int
	heldNow  int // how many were held in the last Run
	fails    int // how often in a row the connection was lost at once

	held    []mark
	limit   int // bodies with more bytes are held; zero is none
	refused map[string]bool
	strikes map[mark]int
	told    map[any]bool
}

// Finding is what was found out about a message or a queue.
type Finding struct {
	// Kind says what.
	Kind Kind
	// Delivery is the message. It is empty if none is known.
	Delivery amqp.Delivery
	// Exchange is where it should go.
	Exchange string
	// Err is what the broker said.
	Err error
}

// Kind is what was found out.
type Kind string

// The kinds.
const (
	// TooLarge: the body has more bytes than the broker takes.
	TooLarge Kind = "too large"
	// Deadly: publishing the message ends the channel or the connection.
	Deadly Kind = "deadly"
	// NoRight: the user may not publish to the exchange.
	NoRight Kind = "no right"
	// Undeliverable: the broker ends the connection when it delivers a message. All
	// that is behind it cannot be reached.
	Undeliverable Kind = "undeliverable"
)

const (
	// atOnce is how long a Run must have lasted for its end to count as new.
	atOnce = 10 * time.Second
	// mostDoublings is how often the number of messages that are moved one by one is
	// doubled.
	mostDoublings = 8
	// strikesOut is how often a connection must be lost over one message alone for
	// that to be the reason.
	strikesOut = 2
)

// Begin prepares a Run, and gives the prefetch of its source.
func (c *Caution) Begin(r *Relay) (prefetch int) {
	r.Hold, r.OneByOne, r.Places, r.GrowBelow = c.holds, 0, 0, 0
	if c.oneByOne > 0 {
		c.places = max(c.places, 1+c.heldNow)
		r.OneByOne, r.Places = c.oneByOne, c.places
		return c.places
	}
	c.places = 0
	window := cmp.Or(c.window, c.Prefetch)
	if window < c.Prefetch {
		r.GrowBelow = c.Bytes / (2 * window)
	}
	return min(window+c.heldNow, c.Prefetch)
}

// End takes note of how a Run ended.
func (c *Caution) End(r *Relay, err error) {
	c.heldNow = r.ended.held
	c.oneByOne = max(0, c.oneByOne-r.ended.moved)
	switch {
	case err == nil:
	case errors.Is(err, ErrAgain):
		c.again(r)
	default:
		c.failed(r.ended, err)
	}
}

// Lost takes note that the queue could not be consumed.
func (c *Caution) Lost(err error) {
	var why *broker.ClosedError
	if errors.As(err, &why) && why.Broker && why.Code == amqp.InternalError {
		c.failed(ended{}, err)
	}
}

// Refused reports whether the user may not publish to an exchange.
func (c *Caution) Refused(exchange string) bool { return c.refused[exchange] }

// Permitted says that the user may, now.
func (c *Caution) Permitted(exchange string) {
	delete(c.refused, exchange)
	delete(c.told, exchange)
}

func (c *Caution) again(r *Relay) {
	_, largest := r.Source.Full()
	switch before := cmp.Or(c.window, c.Prefetch); r.ended.why {
	case whyPlaces:
		c.places = min(2*c.places, c.Prefetch)
		if c.places >= c.Prefetch {
			c.oneByOne = 0 // so many wait that no other way is left
		}
	case whyBytes:
		c.window = max(1, min(c.Bytes/max(1, largest), before/2))
	case whyGrow:
		c.window = min(2*before, c.Prefetch)
	}
}

func (c *Caution) failed(e ended, err error) {
	var why *broker.ClosedError
	if !errors.As(err, &why) {
		return // no confirm, no grace, nothing to consume: it is not about a message
	}
	switch {
	case errors.Is(err, broker.ErrNotFound), !e.sink && errors.Is(err, broker.ErrForbidden):
		return // it goes by itself, or others say it
	case e.sink && c.lacksRight(e, why):
		return
	case e.sink && c.tooLarge(why):
		return
	case e.sink && why.Broker && len(e.inDoubt) == 1:
		c.deadly(e.inDoubt[0], err)
	case why.ByMessage():
		if !e.sink && len(e.inDoubt) == 0 {
			c.tell(Finding{Kind: Undeliverable, Err: err}, Undeliverable)
		}
		c.strike(e, err)
	case e.lasted < atOnce:
		if c.fails++; c.fails < 2 {
			return
		}
		c.strike(e, err)
	default:
		c.fails = 1
		return
	}
	c.slow()
}

// slow lets the next messages be moved one by one.
func (c *Caution) slow() {
	if c.oneByOne > 0 {
		return
	}
	c.oneByOne = c.Prefetch << min(c.times, mostDoublings)
	c.times++
}

// lacksRight notes the exchange to which the user may not publish.
func (c *Caution) lacksRight(e ended, why *broker.ClosedError) bool {
	for _, d := range e.inDoubt {
		if exchange := d.Move.Exchange; why.Refuses(exchange) {
			if c.refused == nil {
				c.refused = map[string]bool{}
			}
			c.refused[exchange] = true
			c.tell(Finding{Kind: NoRight, Exchange: exchange, Err: why}, exchange)
			return true
		}
	}
	return false
}

// tooLarge notes the largest body that the broker takes.
func (c *Caution) tooLarge(why *broker.ClosedError) bool {
	limit, ok := why.SizeLimit()
	if !ok || c.limit > 0 && limit >= c.limit {
		return false // it is not as it says
	}
	c.limit = limit
	return true
}

// strike counts the messages over which a connection was lost.
func (c *Caution) strike(e ended, err error) {
	if len(e.inDoubt) != 1 {
		return
	}
	m := markOf(e.inDoubt[0].Delivery)
	if c.strikes == nil {
		c.strikes = map[mark]int{}
	}
	if c.strikes[m]++; c.strikes[m] >= strikesOut {
		delete(c.strikes, m)
		c.deadly(e.inDoubt[0], err)
	}
}

// deadly notes a message that must not be published.
func (c *Caution) deadly(d Doubt, err error) {
	m := markOf(d.Delivery)
	c.held = append(c.held, m)
	c.tell(Finding{Kind: Deadly, Delivery: d.Delivery, Exchange: d.Move.Exchange, Err: err}, m)
}

// holds reports whether a message must not be published.
func (c *Caution) holds(d amqp.Delivery, m Move) bool {
	if c.limit > 0 && len(m.Message.Body) > c.limit {
		c.tell(Finding{
			Kind: TooLarge, Delivery: d, Exchange: m.Exchange,
			Err: fmt.Errorf("the body has %d bytes, and the broker takes %d: max_message_size", len(m.Message.Body), c.limit),
		}, markOf(d))
		return true
	}
	for _, h := range c.held {
		if h.id == d.MessageId && h.size == len(d.Body) && h == markOf(d) {
			return true
		}
	}
	return false
}

// tell tells of a finding, once.
func (c *Caution) tell(f Finding, about any) {
	if c.told[about] {
		return
	}
	if c.told == nil {
		c.told = map[any]bool{}
	}
	c.told[about] = true
	if c.Tell != nil {
		c.Tell(f)
	}
}

// mark tells a message from others, also when it is delivered again. Two that are
// equal are as good as each other.
type mark struct {
	id   string
	size int
	sum  [sha256.Size]byte
}

func markOf(d amqp.Delivery) mark {
	h := maps.Clone(d.Headers)
	delete(h, "x-delivery-count")
	delete(h, "x-acquired-count")
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q %q %v %v", d.Exchange, d.RoutingKey, d.CorrelationId, d.Type, d.Timestamp.UnixNano(), h) // maps are printed in order
	sum.Write(d.Body)
	return mark{id: d.MessageId, size: len(d.Body), sum: [sha256.Size]byte(sum.Sum(nil))}
}
