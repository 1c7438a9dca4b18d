package relay

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

// Caution keeps the messages of a queue from being published over and over.
//
// Publishing or delivering one message may end the channel or the connection each time. The broker
// then redelivers everything that was in flight, and it is published again: duplicated at each
// reconnect. So after such an end the messages are moved one by one, each acknowledged before the
// next is published, for as many messages as may have been in flight, and for twice as many each
// time it happens. The message that ends a channel then is known; it is not published again and
// stays in the queue. All others continue.
//
// Caution also finds out how many messages may be in flight where their bodies are large.
//
// It lives as long as the queue is processed, over any number of connections. Its methods are
// called by one goroutine.
type Caution struct {
	// Prefetch is how many messages may be in flight, and Bytes how many bytes.
	Prefetch, Bytes int
	// Report receives each finding, once.
	Report func(Finding)
	// Held is called for each message that stays in the queue, in each Run anew. Nil: nothing is
	// called.
	Held func(Kind)
	// BelievesDeaths: the broker may be unable to deliver a message, see [amqp.Conn.BelievesDeaths].
	// Drive sets it in each pass.
	BelievesDeaths bool
	// MayUse reports whether the user may publish to an exchange with a routing key, see
	// [amqp.Conn.MayUse]. Drive sets it in each pass. Nil: nothing is asked.
	MayUse func(exchange, key string) (bool, error)
	// Blamed is the message over which the broker ended the last Run, as far as that is known: the
	// error may quote it. Empty: it is not known, or Run did not end so.
	Blamed amqp091.Delivery

	window   int // how many may be in flight as they are large; zero is Prefetch
	oneByOne int // how many are to be moved one by one
	times    int // how many times that was started
	places   int
	heldNow  int           // how many were held in the last Run
	fails    int           // how many times in a row the connection was lost at once
	renew    time.Duration // how long a message may be unacknowledged here; zero is renewTime

	barred   map[address]bar // where the user may not publish, at most mostBarred
	held     []fingerprint
	limit    int // bodies with more bytes are held; zero is none
	refused  map[string]bool
	strikes  map[fingerprint]int
	reported map[any]bool
}

// address is an exchange with a routing key.
type address struct{ exchange, key string }

// bar is a topic permission that the user lacks.
type bar struct {
	why   string    // in the broker's words
	asked time.Time // when the broker said so last
}

// Finding is what was found out about a message or a queue.
type Finding struct {
	// Kind is the kind of the finding.
	Kind Kind
	// Delivery is the message. It is empty if the message is not known.
	Delivery amqp091.Delivery
	// Exchange is the destination of the message.
	Exchange string
	// Err is the broker's error.
	Err error
}

// Kind is a kind of finding.
type Kind string

// The kinds.
const (
	// TooLarge: the body has more bytes than the broker accepts.
	TooLarge Kind = "too large"
	// Deadly: publishing the message ends the channel or the connection.
	Deadly Kind = "deadly"
	// NoRight: the user may not publish to the exchange.
	NoRight Kind = "no right"
	// Internal: no client may publish to the exchange.
	Internal Kind = "internal"
	// NoKey: the user lacks a topic permission for the routing key of the message. Such messages go
	// where the handler sends refused ones.
	NoKey Kind = "no topic permission"
	// Undeliverable: the broker ends the connection when it delivers a message. The messages behind
	// it cannot be reached.
	Undeliverable Kind = "undeliverable"
)

const (
	// atOnce is how long a Run must have lasted for its end to count as a new problem.
	atOnce = 10 * time.Second
	// mostDoublings is how many times the number of messages that are moved one by one is doubled.
	mostDoublings = 8
	// strikesOut is how many times the broker must end a connection over a single message for that
	// message to be the reason.
	strikesOut = 2
	// blindStrikesOut is the same where the connection is lost without a word of the broker, as
	// networks that fail, and nodes that are killed in turn, lose it too.
	blindStrikesOut = 5
	// mostBarred is how many routing keys are known for which the user lacks a topic permission:
	// publishers may make up keys. One that is forgotten ends the channel once more.
	mostBarred = 1000
	// askTime is how often the broker is asked whether it is granted now.
	askTime = time.Second
)

// Begin prepares a Run, and returns the prefetch of its source.
func (c *Caution) Begin(r *Relay) (prefetch int) {
	r.Barred = c.bars
	r.Hold, r.OneByOne, r.Places, r.GrowBelow, r.RenewAfter = c.holds, 0, 0, 0, c.renew
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

// Lost takes note that the queue could not be consumed, and after what time the broker said so.
func (c *Caution) Lost(err error, took time.Duration) {
	var why *amqp.ClosedError
	if errors.As(err, &why) && why.Broker && why.Code == amqp091.InternalError {
		c.failed(ended{lasted: took}, err)
	}
}

// Refused reports whether the user may not publish to an exchange.
func (c *Caution) Refused(exchange string) bool { return c.refused[exchange] }

// Permitted takes note that the user may publish to an exchange now.
func (c *Caution) Permitted(exchange string) {
	delete(c.refused, exchange)
	delete(c.reported, exchange)
}

func (c *Caution) again(r *Relay) {
	_, largest := r.Source.Full()
	switch before := cmp.Or(c.window, c.Prefetch); r.ended.why {
	case whyPlaces:
		c.places = min(2*c.places, c.Prefetch)
		if c.places >= c.Prefetch {
			c.oneByOne = 0 // so many messages wait that there is no other way
		}
	case whyBytes:
		c.window = max(1, min(c.Bytes/max(1, largest), before/2))
	case whyGrow:
		c.window = min(2*before, c.Prefetch)
	}
}

func (c *Caution) failed(e ended, err error) {
	c.Blamed = amqp091.Delivery{}
	if errors.Is(err, amqp.ErrCanceled) {
		c.canceled(e)
		return
	}
	var why *amqp.ClosedError
	if !errors.As(err, &why) {
		return // no confirm, no grace, nothing to consume: it is not about a message
	}
	limit, late := why.ConsumerTimeout()
	switch {
	case why.Forced():
		return
	case late: // a message waited for longer than consumer_timeout; the next that waits does not
		c.renew = min(max(limit/2, lookTime), renewTime)
		if len(e.inDoubt) == 0 {
			return
		}
		// No confirm came, as in an alarm, and none may come for long: little must be in flight then.
	case errors.Is(err, broker.ErrNotFound), !e.sink && errors.Is(err, broker.ErrForbidden):
		return // it resolves itself, or is reported elsewhere
	case e.sink && c.lacksKey(e, why):
		// Each key ends a channel, and there may be many: what is in flight then must be little.
	case e.sink && c.lacksRight(e, why):
		return
	case e.sink && c.tooLarge(why):
		return
	case e.sink && why.Broker && why.Code != amqp091.InternalError && len(e.inDoubt) == 1:
		c.deadly(e.inDoubt[0], err)
	case why.ByMessage() && !e.sink && len(e.inDoubt) == 0:
		if c.undelivered(e, why) {
			c.report(Finding{Kind: Undeliverable, Err: err}, Undeliverable)
		} else if e.moved == 0 {
			return // nothing is doubled
		}
	case why.ByMessage():
		c.strike(e, err, strikesOut)
	case e.lasted < atOnce:
		if c.fails++; c.fails < 2 {
			return
		}
		c.strike(e, err, blindStrikesOut)
	default:
		c.fails = 1
		return
	}
	c.slow()
}

// canceled takes note of how long a message had waited when the broker canceled the consumer. A
// queue of RabbitMQ 4.3 does so at its consumer_timeout, which it does not tell: the next message
// that waits does not wait that long. A queue that is deleted does so too, so that a short wait
// tells nothing.
func (c *Caution) canceled(e ended) {
	if half := e.waited / 2; half >= leastRenewTime {
		c.renew = min(half, cmp.Or(c.renew, renewTime))
	}
}

// undelivered reports whether a Run ended as a message could not be delivered: by the library, or
// by a broker that fails over some. Such a broker does so at once. It fails in the same way if the
// queue has no leader, but after a minute (net_ticktime and 5 seconds, rabbit_fifo_client). That is
// no message's fault, and who removed one for it would lose it.
func (c *Caution) undelivered(e ended, why *amqp.ClosedError) bool {
	return !why.Broker || c.BelievesDeaths && why.Code == amqp091.InternalError && e.lasted < atOnce
}

// slow makes the next Run move its messages one by one.
func (c *Caution) slow() {
	if c.oneByOne > 0 {
		return
	}
	c.oneByOne = c.Prefetch << min(c.times, mostDoublings)
	c.times++
}

// lacksRight notes the exchange to which the user may not publish.
func (c *Caution) lacksRight(e ended, why *amqp.ClosedError) bool {
	for _, d := range e.inDoubt {
		if exchange := d.Move.Exchange; why.Refuses(exchange) {
			if c.refused == nil {
				c.refused = map[string]bool{}
			}
			c.refused[exchange] = true
			kind := NoRight
			if why.Internal() {
				kind = Internal
			}
			c.report(Finding{Kind: kind, Exchange: exchange, Err: why}, exchange)
			return true
		}
	}
	return false
}

// lacksKey notes the routing key with which the user may not publish.
func (c *Caution) lacksKey(e ended, why *amqp.ClosedError) bool {
	for _, d := range e.inDoubt {
		for _, key := range keys(d.Move) {
			if !why.RefusesKey(d.Move.Exchange, key) {
				continue
			}
			if c.barred == nil || len(c.barred) >= mostBarred {
				c.barred = map[address]bar{}
			}
			c.barred[address{d.Move.Exchange, key}] = bar{why: why.Reason, asked: time.Now()}
			c.Blamed = d.Delivery
			found := Finding{Kind: NoKey, Delivery: d.Delivery, Exchange: d.Move.Exchange, Err: why}
			c.report(found, address{exchange: d.Move.Exchange})
			return true
		}
	}
	return false
}

// bars returns why the user may not publish a message, as far as the broker has said so of one of
// its routing keys. It is empty if it has not, or has granted the key since.
func (c *Caution) bars(m Move) string {
	if len(c.barred) == 0 {
		return ""
	}
	for _, key := range keys(m) {
		to := address{m.Exchange, key}
		b, known := c.barred[to]
		switch {
		case !known:
		case c.granted(to, b):
			delete(c.barred, to)
			delete(c.reported, address{exchange: m.Exchange})
		default:
			return b.why
		}
	}
	return ""
}

// granted asks the broker, if it has not been asked just before.
func (c *Caution) granted(to address, b bar) bool {
	if c.MayUse == nil || time.Since(b.asked) < askTime {
		return false
	}
	may, err := c.MayUse(to.exchange, to.key)
	b.asked = time.Now()
	c.barred[to] = b
	return err == nil && may
}

// keys returns the routing keys of a message. The broker looks at those in its headers too.
func keys(m Move) []string {
	out := []string{m.Key}
	for _, header := range []string{topology.CC, topology.BCC} {
		list, _ := m.Message.Headers[header].([]any)
		for _, v := range list {
			if key, ok := v.(string); ok {
				out = append(out, key)
			}
		}
	}
	return out
}

// tooLarge notes the largest body that the broker accepts.
func (c *Caution) tooLarge(why *amqp.ClosedError) bool {
	limit, ok := why.SizeLimit()
	if !ok || c.limit > 0 && limit >= c.limit {
		return false // the reported limit does not explain the refusal
	}
	c.limit = limit
	return true
}

// strike counts the messages over which a connection was lost, and names one that reaches out.
func (c *Caution) strike(e ended, err error, out int) {
	if len(e.inDoubt) != 1 {
		return
	}
	m := fingerprintOf(e.inDoubt[0].Delivery)
	if c.strikes == nil {
		c.strikes = map[fingerprint]int{}
	}
	if c.strikes[m]++; c.strikes[m] >= out {
		delete(c.strikes, m)
		c.deadly(e.inDoubt[0], err)
	}
}

// deadly notes a message that must not be published.
func (c *Caution) deadly(d Doubt, err error) {
	m := fingerprintOf(d.Delivery)
	c.held, c.Blamed = append(c.held, m), d.Delivery
	c.report(Finding{Kind: Deadly, Delivery: d.Delivery, Exchange: d.Move.Exchange, Err: err}, m)
}

// holds reports whether a message must not be published.
func (c *Caution) holds(d amqp091.Delivery, m Move) bool {
	kind := c.kind(d, m)
	if kind != "" && c.Held != nil {
		c.Held(kind)
	}
	return kind != ""
}

// kind returns why a message must not be published: TooLarge or Deadly. It is empty for others.
func (c *Caution) kind(d amqp091.Delivery, m Move) Kind {
	if c.limit > 0 && len(m.Message.Body) > c.limit {
		c.report(Finding{
			Kind: TooLarge, Delivery: d, Exchange: m.Exchange,
			Err: fmt.Errorf("the body has %d bytes, and the broker accepts %d (max_message_size)", len(m.Message.Body), c.limit),
		}, fingerprintOf(d))
		return TooLarge
	}
	for _, h := range c.held {
		if h.id == d.MessageId && h.size == len(d.Body) && h == fingerprintOf(d) {
			return Deadly
		}
	}
	return ""
}

// report reports a finding, once.
func (c *Caution) report(f Finding, about any) {
	if c.reported[about] {
		return
	}
	if c.reported == nil {
		c.reported = map[any]bool{}
	}
	c.reported[about] = true
	if c.Report != nil {
		c.Report(f)
	}
}

// fingerprint identifies a message, also when it is redelivered. Two equal messages are
// interchangeable.
type fingerprint struct {
	id   string
	size int
	sum  [sha256.Size]byte
}

func fingerprintOf(d amqp091.Delivery) fingerprint {
	h := maps.Clone(d.Headers)
	maps.DeleteFunc(h, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	sum := sha256.New()
	// maps are printed in order
	fmt.Fprintf(sum, "%q %q %q %q %v %v", d.Exchange, d.RoutingKey, d.CorrelationId, d.Type, d.Timestamp.UnixNano(), h)
	sum.Write(d.Body)
	return fingerprint{id: d.MessageId, size: len(d.Body), sum: [sha256.Size]byte(sum.Sum(nil))}
}
