package relay

import (
	"context"
	"errors"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/wait"
)

const (
	// lastTry is how many passes in a row may be ended by a message or a cancellation.
	lastTry = 8
	// retryPause is the pause before the next.
	retryPause = 200 * time.Millisecond
)

// Drive moves the messages of a queue, in passes. Each pass consumes the queue over one connection
// and publishes over another: what is consumed is acknowledged even while the broker blocks the
// publisher.
type Drive struct {
	// Queue is the queue.
	Queue string
	// In and Out are the broker, each with the name of its connection. Only Run uses them.
	In, Out broker.Endpoint
	// Relay is what a pass runs. Its Source and Sink, and the fields of Caution, are set in each.
	Relay Relay
	// Caution says how many messages may be in flight, and learns from each pass.
	Caution *Caution
	// Open is called in each pass before the queue is consumed; an error ends the pass. Nil: nothing
	// is to be done.
	Open func(ctx context.Context, in, out *amqp.Conn) error
	// Start is called in each pass with the relay that is about to run. Nil: nothing is to be done.
	Start func(*Relay)
	// Meanwhile runs during the relay of each pass, until ctx ends. If it returns before, the relay
	// ends as at the end of ctx, and an error of Meanwhile is that of the drive. Nil: nothing runs.
	Meanwhile func(ctx context.Context) error
	// Passed is called after each pass with its error. Nil: nothing is called.
	Passed func(error)
}

// Run makes passes until one ends without an error, until ctx ends, or until eight in a row have
// been ended by messages, or by the broker, which has canceled the consumer. Each pass has
// connections of its own, as a message may end them. Nothing is lost between passes: what was not
// acknowledged is delivered again.
func (d Drive) Run(ctx context.Context) error {
	for tries := 1; ; tries++ {
		final, err := d.dial(ctx)
		if d.Passed != nil {
			d.Passed(err)
		}
		why, closed := errors.AsType[*amqp.ClosedError](err)
		switch {
		case final || err == nil:
			return err
		case errors.Is(err, ErrAgain):
			tries = 0
		case tries == lastTry, !errors.Is(err, amqp.ErrCanceled) && (!closed || !why.ByMessage()):
			return err
		case wait.For(ctx, retryPause) != nil:
			return err
		}
	}
}

// dial makes a pass over connections of its own. final tells that there is to be no other.
func (d Drive) dial(ctx context.Context) (final bool, err error) {
	in, err := amqp.DialToConsume(ctx, d.In)
	if err != nil {
		return false, err
	}
	defer in.Close() // ends its channel too: to close that alone can hang, where a queue has no leader
	out, err := amqp.Dial(ctx, d.Out)
	if err != nil {
		return false, err
	}
	defer out.Close()
	p := pass{Drive: d, relay: d.Relay}
	return p.run(ctx, in, out)
}

// Over makes one pass over connections that live longer. It closes the channels that it opened. If
// the broker confirms nothing, it closes out.
func (d Drive) Over(ctx context.Context, in, out *amqp.Conn) error {
	p := pass{Drive: d, relay: d.Relay, shared: true}
	_, err := p.run(ctx, in, out)
	return err
}

type pass struct {
	Drive

	relay  Relay
	shared bool // the connections live longer than the pass
	source *amqp.Consumer
	sink   *amqp.Publisher
}

// close closes the channels. err is how the pass ended.
func (p *pass) close(out *amqp.Conn, err error) {
	if errors.Is(err, ErrNoConfirm) {
		_ = out.Close() // first, since the broker may not hear that a channel of it is closed
	}
	if p.sink != nil {
		_ = p.sink.Close() // it may have ended already
	}
	if p.source != nil {
		_ = p.source.Close()
	}
}

// run consumes and relays. What is in flight when the connections are cut is doubled at most. No
// goroutine outlives it.
func (p *pass) run(ctx context.Context, in, out *amqp.Conn) (final bool, err error) {
	until, end := context.WithCancel(ctx)
	defer end()
	cut := amqp.CloseAfter(until, p.relay.Grace+time.Second, in, out)
	ended := func() error { return nil }
	if err = p.consume(until, in, out); err == nil {
		ended = p.meanwhile(until, end)
		err = p.relay.Run(until)
		p.Caution.End(&p.relay, err)
	}
	if p.shared {
		p.close(out, err) // before the wait for the cut ends: to close a channel can hang
	}
	if cut() && err != nil {
		err = ErrGrace // Run reports the closed connection, which is only how it was ended
	}
	end()
	if why := ended(); why != nil {
		return true, errors.Join(why, err)
	}
	if err == nil {
		err = ctx.Err()
	}
	return p.source == nil && errors.Is(err, broker.ErrForbidden), err // a right does not come by trying
}

// consume opens the source and the sink of the relay.
func (p *pass) consume(ctx context.Context, in, out *amqp.Conn) (err error) {
	if p.Open != nil {
		if err := p.Open(ctx, in, out); err != nil {
			return err
		}
	}
	p.Caution.BelievesDeaths, p.Caution.MayUse = in.BelievesDeaths(), out.MayUse
	window := p.Caution.Begin(&p.relay)
	begin := time.Now()
	if p.source, err = in.Consume(p.Queue, window, p.Caution.Bytes); err != nil {
		p.Caution.Lost(err, time.Since(begin))
		return err
	}
	if p.sink, err = out.Publisher(window); err != nil {
		return err
	}
	p.relay.Source, p.relay.Sink = p.source, p.sink
	if p.Start != nil {
		p.Start(&p.relay)
	}
	return nil
}

// meanwhile starts what runs during the relay, and returns what waits for its end.
func (p *pass) meanwhile(ctx context.Context, end func()) (ended func() error) {
	if p.Meanwhile == nil {
		return func() error { return nil }
	}
	result := make(chan error, 1)
	go func() {
		err := p.Meanwhile(ctx)
		if ctx.Err() != nil {
			err = nil // it ended with the relay
		}
		end()
		result <- err
	}()
	return func() error { return <-result }
}
