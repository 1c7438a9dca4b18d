package migrate

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// prefetch is how many messages of a legacy queue are in flight at once.
const prefetch = 1000

// mover moves the messages of a legacy queue to the new one. They are published
// to the exchange that leads there alone, with their own routing key, so that
// consumers see the key that the publisher used.
type mover struct {
	to    string // the exchange
	park  string // the exchange for what the broker will not take
	moved atomic.Int64
	again atomic.Int64 // of them, delivered a second time
	last  atomic.Int64 // when one was moved last, in milliseconds of Unix time
	note  func(id string)
}

// Move gives the message as it is, without what the broker has counted, and
// without a user-id: the broker takes none but that of the connection.
func (h *mover) Move(d amqp.Delivery) relay.Move {
	m := amqp.Publishing{
		Headers: amqp.Table{}, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
	for name, v := range d.Headers {
		_, isList := v.([]any)
		switch {
		case name == "x-delivery-count" || name == "x-acquired-count":
		case (name == "CC" || name == "BCC") && !isList:
			// Messages of other protocols may have such a header. The broker refuses
			// it when it is published.
			m.Headers["retry-"+strings.ToLower(name)] = v
		default:
			m.Headers[name] = v
		}
	}
	if d.UserId != "" {
		m.Headers["retry-user-id"] = d.UserId
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	return relay.Move{Exchange: h.to, Key: d.RoutingKey, Message: m}
}

// Refused parks a message that the new queue will not take.
func (h *mover) Refused(_ amqp.Delivery, m relay.Move, reason string) relay.Move {
	headers := amqp.Table{}
	maps.Copy(headers, m.Message.Headers)
	headers["retry-error"] = reason
	m.Exchange, m.Message.Headers = h.park, headers
	return m
}

// Moved counts. A message that was delivered before may have been moved before,
// by a run that was killed.
func (h *mover) Moved(d amqp.Delivery, _ relay.Move) {
	h.moved.Add(1)
	h.last.Store(time.Now().UnixMilli())
	if d.Redelivered {
		h.again.Add(1)
		h.note(d.MessageId)
	}
}

// patience says when a drain ends.
type patience struct {
	// backlog is how many messages waited when it began. They may take their time.
	backlog int64
	// idle is how long nothing must have come for it to be done.
	idle time.Duration
	// wait is how long it goes on beyond the backlog while messages still come.
	wait time.Duration
}

// errComing says that messages still came when the patience was at its end.
var errComing = errors.New("messages still come")

// drain moves what is in the legacy queue and what comes to it, until nothing has
// come for a while. It ends with errComing if that does not happen.
//
// Nothing can be lost: the relay acknowledges a message only when its copy is
// confirmed.
func (r *Runner) drain(ctx context.Context, m Move, h *mover, p patience) error {
	e := r.Endpoint
	e.ConnectionName = "dlxctl migrate " + m.Topology + " " + m.Legacy
	in, err := broker.DialToConsume(ctx, e)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := broker.Dial(ctx, e)
	if err != nil {
		return err
	}
	defer out.Close()
	source, err := in.Consume(m.Legacy, prefetch)
	if err != nil {
		return err
	}
	defer source.Close()
	sink, err := out.Publisher(prefetch)
	if err != nil {
		return err
	}
	defer sink.Close()
	h.last.Store(time.Now().UnixMilli())
	until, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(h.watch(until, p)) }()
	move := relay.Relay{Source: source, Sink: sink, Handler: h, Grace: 30 * time.Second}
	if err := move.Run(until); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := context.Cause(until); errors.Is(err, errComing) {
		return err
	}
	return nil
}

// watch returns nil once nothing was moved for as long as idle, and errComing
// when that does not happen in time.
func (h *mover) watch(ctx context.Context, p patience) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	begin := h.moved.Load()
	var since time.Time // when the backlog was moved
	for time.Since(time.UnixMilli(h.last.Load())) < p.idle {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		switch {
		case since.IsZero() && h.moved.Load()-begin >= p.backlog:
			since = time.Now()
		case !since.IsZero() && time.Since(since) > p.wait+p.idle:
			return errComing
		}
	}
	return nil
}

// newMover gives the mover of a move.
func (m Move) newMover(note func(id string)) *mover {
	return &mover{to: m.toNew(), park: topology.UnroutableName(m.Topology), note: note}
}
