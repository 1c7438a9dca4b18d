package desk

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
)

// errReturned says that the broker did not accept a message: it has no queue for it, or the
// queue refuses it.
var errReturned = errors.New("the broker refuses a message")

// outlet publishes messages, mandatory, and waits for the confirms of all or of some.
type outlet struct {
	publisher *amqp.Publisher
	window    int
	pending   map[uint64]func() error // what to do once a message is confirmed
	nacked    int                     // how many messages the broker has nacked
}

func newOutlet(conn *amqp.Conn, window int) (*outlet, error) {
	p, err := conn.Publisher(window)
	if err != nil {
		return nil, err
	}
	return &outlet{publisher: p, window: window, pending: map[uint64]func() error{}}, nil
}

// publish publishes a message and waits until the broker has confirmed it.
func (o *outlet) publish(ctx context.Context, exchange, key string, m amqp091.Publishing) error {
	if err := o.send(ctx, exchange, key, m, func() error { return nil }); err != nil {
		return err
	}
	return o.flush(ctx)
}

// send publishes a message, and calls then once it is confirmed. It waits while the window is
// full.
func (o *outlet) send(ctx context.Context, exchange, key string, m amqp091.Publishing, then func() error) error {
	for len(o.pending) >= o.window {
		if err := o.await(ctx); err != nil {
			return err
		}
	}
	seq, err := o.publisher.Publish(exchange, key, m)
	if err != nil {
		return err
	}
	o.pending[seq] = then
	return nil
}

// flush waits until the broker has confirmed or refused all messages.
func (o *outlet) flush(ctx context.Context) (refused error) {
	for len(o.pending) > 0 {
		switch err := o.await(ctx); {
		case errors.Is(err, errReturned):
			refused = err
		case err != nil:
			return err
		}
	}
	return refused
}

// await waits for outcomes, and settles them.
func (o *outlet) await(ctx context.Context) error {
	select {
	case _, open := <-o.publisher.Settled():
		if err := o.settle(); err != nil {
			return err
		}
		if !open {
			return o.publisher.Err()
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle handles the outcomes that are known, also those behind a message that was refused.
func (o *outlet) settle() (refused error) {
	for _, outcome := range o.publisher.Outcomes() {
		then := o.pending[outcome.Seq]
		delete(o.pending, outcome.Seq)
		if outcome.Refused != "" {
			refused = fmt.Errorf("%w: %s", errReturned, outcome.Refused)
			if outcome.Nacked {
				o.nacked++
			}
			continue
		}
		if err := then(); err != nil {
			return err
		}
	}
	return refused
}
