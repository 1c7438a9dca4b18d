package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// road is a queue and a broker in memory over many connections. The broker ends the channel over
// some messages, as it does over those that it does not accept.
type road struct {
	queue  []string       // not acknowledged, in order
	copies map[string]int // how often each was placed
	deadly map[string]error
}

// trip is one connection to it.
type trip struct {
	*road
	deliveries chan amqp091.Delivery
	settled    chan struct{}
	mu         sync.Mutex
	outcomes   []amqp.Outcome
	seq        uint64
	err        error
	out        []string // delivered, by tag - 1
	acked      map[uint64]bool
	prefetch   int
	stopped    bool
}

func (r *road) travel(prefetch int) *trip {
	p := &trip{
		road: r, deliveries: make(chan amqp091.Delivery, 1000), settled: make(chan struct{}, 1),
		acked: map[uint64]bool{}, prefetch: prefetch,
	}
	p.deliver()
	return p
}

func (p *trip) deliver() {
	for len(p.out)-len(p.acked) < p.prefetch && len(p.out) < len(p.queue) && !p.stopped {
		id := p.queue[len(p.out)]
		p.out = append(p.out, id)
		p.deliveries <- amqp091.Delivery{DeliveryTag: uint64(len(p.out)), MessageId: id}
	}
}

func (p *trip) Deliveries() <-chan amqp091.Delivery      { return p.deliveries }
func (p *trip) Take(d amqp091.Delivery) amqp091.Delivery { return d }
func (p *trip) Canceled() bool                           { return false }
func (p *trip) Forget(uint64)                            {}
func (p *trip) Full() (bool, int)                        { return false, 0 }
func (p *trip) Get() (amqp091.Delivery, bool, error)     { return amqp091.Delivery{}, false, nil }
func (p *trip) Settled() <-chan struct{}                 { return p.settled }
func (p *trip) Late() (uint64, []amqp.Outcome)           { return 0, nil }
func (p *trip) Err() error                               { return p.err }
func (p *trip) Cancel() error                            { p.stopped = true; close(p.deliveries); return nil }
func (p *trip) Stop() error                              { return p.Cancel() }
func (p *trip) Settle() error                            { return nil }
func (p *trip) Resume() error                            { return nil }
func (p *trip) Move(d amqp091.Delivery) relay.Move {
	return relay.Move{Key: d.MessageId, Exchange: "x"}
}
func (p *trip) Moved(amqp091.Delivery, relay.Move) {}
func (p *trip) Refused(_ amqp091.Delivery, m relay.Move, _ string) relay.Move {
	return relay.Move{Key: m.Key, Exchange: "for refused messages"}
}

func (p *trip) Outcomes() []amqp.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.outcomes
	p.outcomes = nil
	return out
}

func (p *trip) Ack(tag uint64, multiple bool) error {
	for i := range tag {
		if multiple || i == tag-1 {
			p.acked[i+1] = true
		}
	}
	p.deliver()
	return nil
}

// Publish confirms a little later. What is not confirmed when the channel ends is
// never confirmed.
func (p *trip) Publish(exchange, id string, _ amqp091.Publishing) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	switch seq := p.seq; {
	case p.err != nil:
		return 0, p.err
	case exchange == "x" && p.deadly[id] != nil:
		p.err = p.deadly[id]
		close(p.settled)
	default:
		p.copies[id]++
		time.AfterFunc(time.Millisecond, func() { p.confirm(seq) })
	}
	return p.seq, nil
}

func (p *trip) confirm(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.outcomes = append(p.outcomes, amqp.Outcome{Seq: seq})
	select {
	case p.settled <- struct{}{}:
	default:
	}
}

// arrive removes the acknowledged messages from the queue.
func (p *trip) arrive() {
	var left []string
	for i, id := range p.queue {
		if !p.acked[uint64(i)+1] { //nolint:gosec // it is small
			left = append(left, id)
		}
	}
	p.queue = left
}

// pass moves messages over one connection, and pauses after an error.
func (r *road) pass(t *testing.T, c *relay.Caution) {
	t.Helper()
	run := relay.Relay{ConfirmTimeout: time.Hour}
	p := r.travel(c.Begin(&run))
	run.Source, run.Sink, run.Handler = p, p, p
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	err := run.Run(ctx)
	stop()
	c.End(&run, err)
	p.arrive()
	if err != nil && !errors.Is(err, relay.ErrAgain) {
		sleep(time.Second)
	}
}

// Whatever ends the channel over and over, no message is published without end, and all but the
// cause are moved.
func TestNoMessageIsRepublishedWithoutEnd(t *testing.T) {
	t.Parallel()
	const prefetch, n = 20, 400
	exception := &amqp.ClosedError{Code: 406, Reason: "PRECONDITION_FAILED - it is odd", Broker: true}
	for name, tc := range map[string]struct {
		deadly map[string]error
		left   []string
		told   int
	}{
		"nothing":   {},
		"a message": {deadly: map[string]error{"150": exception}, left: []string{"150"}, told: 1},
		"the first": {deadly: map[string]error{"0": exception}, left: []string{"0"}, told: 1},
		"a routing key": {deadly: map[string]error{"150": &amqp.ClosedError{
			Code: 403, Broker: true,
			Reason: "ACCESS_REFUSED - write access to topic '150' in exchange 'x' in vhost '/' refused for user 'u'",
		}}, told: 1},
		"three in a row": {
			deadly: map[string]error{"30": exception, "31": exception, "32": exception},
			left:   []string{"30", "31", "32"}, told: 3,
		},
		"a message, by its connection": {deadly: map[string]error{"150": &amqp.ClosedError{
			Code:   541,
			Reason: "INTERNAL_ERROR", Broker: true,
		}}, left: []string{"150"}, told: 1},
		"a message, without any reason": {
			deadly: map[string]error{"150": &amqp.ClosedError{Code: 501, Reason: "EOF"}},
			left:   []string{"150"}, told: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &road{copies: map[string]int{}, deadly: tc.deadly}
				for i := range n {
					r.queue = append(r.queue, fmt.Sprint(i))
				}
				told := 0
				c := relay.Caution{Prefetch: prefetch, Report: func(relay.Finding) { told++ }}
				for range 40 {
					r.pass(t, &c)
				}
				if !slices.Equal(r.queue, tc.left) {
					t.Errorf("%v are left, want %v", r.queue, tc.left)
				}
				doubled := 0
				for _, copies := range r.copies {
					doubled += copies - 1
				}
				if most := prefetch * (1 + len(tc.left)); doubled > most {
					t.Errorf("%d are doubled, more than %d", doubled, most)
				}
				if told != tc.told {
					t.Errorf("it was told %d times", told)
				}
			})
		})
	}
}

const timedOut = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 60000 ms. " +
	"This timeout value can be configured, see consumers doc guide to learn more"

// A node that stops, or an operator who closes connections, says nothing about the message that
// was alone on its way, however often it happens. Nor does the end of the consumer_timeout, an
// internal error that comes once, or a connection that is lost without a reason three times.
func TestANodeThatStopsIsNotTheFaultOfAMessage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   amqp.ClosedError
		times int
	}{
		"a stop": {amqp.ClosedError{
			Code: 320, Reason: "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", Broker: true,
		}, 5},
		"a consumer_timeout": {amqp.ClosedError{Code: 406, Reason: timedOut, Broker: true}, 5},
		"an internal error":  {amqp.ClosedError{Code: 541, Reason: "INTERNAL_ERROR", Broker: true}, 1},
		"a network":          {amqp.ClosedError{Code: 501, Reason: "EOF"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &road{queue: []string{"0"}, copies: map[string]int{}, deadly: map[string]error{"0": &tc.err}}
				c := relay.Caution{Prefetch: 20, Report: func(f relay.Finding) { t.Errorf("reported: %s, %v", f.Kind, f.Err) }}
				for range tc.times {
					r.pass(t, &c)
				}
				r.deadly = nil
				r.pass(t, &c)
				if len(r.queue) > 0 {
					t.Errorf("%v are left", r.queue)
				}
			})
		})
	}
}

// A queue without a leader cannot be consumed, and the broker says so a minute later: no message
// was delivered, and who took the first out would lose it. Nothing is moved one by one for that,
// which would last.
func TestAQueueWithoutALeaderIsNotTheFaultOfAMessage(t *testing.T) {
	t.Parallel()
	for _, believes := range []bool{false, true} {
		c := relay.Caution{
			Prefetch: 20, BelievesDeaths: believes,
			Report: func(f relay.Finding) { t.Errorf("reported: %s, %v", f.Kind, f.Err) },
		}
		c.Lost(&amqp.ClosedError{Code: amqp091.InternalError, Reason: "INTERNAL_ERROR", Broker: true}, 65*time.Second)
		run := relay.Relay{}
		if c.Begin(&run); run.OneByOne > 0 {
			t.Errorf("the next %d messages are moved one by one", run.OneByOne)
		}
	}
}

// What was published when the time was over is published again, maybe as often as an alarm is
// longer than that time: little is in flight then.
func TestAConsumerTimeoutOfWhatIsPublishedGoesOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		timeout := &amqp.ClosedError{Code: amqp091.PreconditionFailed, Reason: timedOut, Broker: true}
		r := &road{queue: []string{"0"}, copies: map[string]int{}, deadly: map[string]error{"0": timeout}}
		c, run := relay.Caution{Prefetch: 20}, relay.Relay{}
		r.pass(t, &c)
		if c.Begin(&run); run.OneByOne == 0 {
			t.Error("the whole prefetch is in flight again")
		}
	})
}

// A message that waits, for lack of a right, for longer than the consumer_timeout of the node,
// which ends the channel, or of the queue, which cancels the consumer, is blamed for nothing. From
// then on the subscription is renewed in time, so that the broker doubles nothing that is in
// flight.
func TestAConsumerTimeoutIsKept(t *testing.T) {
	t.Parallel()
	for _, ends := range []error{
		&amqp.ClosedError{Code: amqp091.PreconditionFailed, Reason: timedOut, Broker: true}, amqp.ErrCanceled,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := relay.Caution{Prefetch: 20, Report: func(f relay.Finding) { t.Errorf("reported: %s, %v", f.Kind, f.Err) }}
			for _, want := range []error{ends, relay.ErrAgain, relay.ErrAgain} {
				run := relay.Relay{Absent: func(string) bool { return true }}
				p := (&road{queue: []string{"0"}}).travel(c.Begin(&run))
				run.Source, run.Sink, run.Handler = p, p, p
				p.err = ends
				late := time.AfterFunc(time.Minute, func() { close(p.deliveries) })
				err := run.Run(t.Context())
				late.Stop()
				if c.End(&run, err); !errors.Is(err, want) {
					t.Errorf("it ended with %v", err)
				}
				if run.OneByOne > 0 {
					t.Errorf("%d messages are moved one by one", run.OneByOne)
				}
			}
		})
	}
}
