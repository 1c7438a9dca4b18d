// Package apply does what carrying out a plan takes beside its changes.
package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/relay"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// inFlight is how many messages of a retired failed queue are in flight at once. So
	// many are doubled at most, with the same message-id, by a process that is killed.
	inFlight = 64
	// inFlightBytes is how many bytes of them.
	inFlightBytes = 32 << 20
	// grace is how long a hand-over that is stopped goes on with what is in flight.
	grace = 10 * time.Second
)

// HandOver moves the messages of a failed queue, whose backoff is no longer in the file,
// to the failed exchange of the topology: from there they go to the backoff that their
// queue has now, and their attempts go on counting. It gives how many were moved.
//
// It leaves a queue alone that a processor reads, as that one moves its messages on. The
// queue must have lost its bindings: it ends when the queue is empty. It fails with
// broker.ErrNotFound if there is no such queue.
//
// Nothing is lost wherever it is stopped: the relay acknowledges a message only when the
// broker has confirmed its copy. See inFlight for what may be doubled.
func HandOver(ctx context.Context, e broker.Endpoint, top, queue string) (moved int64, err error) {
	e.ConnectionName = fmt.Sprintf("dlxctl apply %s %s", top, queue)
	in, err := broker.DialToConsume(ctx, e)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if ready, consumers, err := in.Holds(queue); err != nil || ready == 0 || consumers > 0 {
		return 0, err
	}
	out, err := broker.Dial(ctx, e)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	h := &handOver{exchange: topology.FailedExchangeName(top)}
	caution := relay.Caution{Prefetch: inFlight, Bytes: inFlightBytes}
	for again := true; again; {
		err = pass(ctx, in, out, queue, h, &caution)
		again = errors.Is(err, relay.ErrAgain) // with fewer messages in flight, as they are large
	}
	return h.moved.Load(), err
}

// pass hands over until the queue is empty, or the relay asks to consume anew.
func pass(ctx context.Context, in, out *broker.Conn, queue string, h *handOver, caution *relay.Caution) error {
	move := relay.Relay{Handler: h, Grace: grace, UntilEmpty: true, Absent: caution.Refused}
	window := caution.Begin(&move)
	source, err := in.Consume(queue, window, inFlightBytes)
	if err != nil {
		return err
	}
	defer source.Close()
	sink, err := out.Publisher(window)
	if err != nil {
		return err
	}
	defer sink.Close()
	move.Source, move.Sink = source, sink
	cut := broker.CutOff(ctx, grace+time.Second, in, out)
	err = move.Run(ctx)
	caution.End(&move, err)
	if cut() {
		err = relay.ErrGrace
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// handOver publishes each message again as it is, under the address of its work queue,
// which is its routing key.
type handOver struct {
	exchange string
	moved    atomic.Int64
}

// Move gives the message with all that tells how it failed. What a delivery has and no
// publishing may have is left out: the counts of deliveries, and a user-id, which the
// broker takes from its own user alone; it stands in a header.
func (h *handOver) Move(d amqp.Delivery) relay.Move {
	headers := maps.Clone(d.Headers)
	maps.DeleteFunc(headers, func(name string, _ any) bool { return name == "x-delivery-count" || name == "x-acquired-count" })
	for _, name := range []string{"CC", "BCC"} { // they would lead it elsewhere too
		if v, ok := headers[name]; ok {
			delete(headers, name)
			headers["retry-"+strings.ToLower(name)] = v
		}
	}
	if d.UserId != "" {
		if headers == nil {
			headers = amqp.Table{}
		}
		headers["retry-user-id"] = d.UserId
	}
	return relay.Move{Exchange: h.exchange, Key: d.RoutingKey, Message: amqp.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}}
}

// Refused lets a message wait where it is and tries again: it is safe there.
func (h *handOver) Refused(_ amqp.Delivery, m relay.Move, _ string) relay.Move { return m }

// Moved counts.
func (h *handOver) Moved(amqp.Delivery, relay.Move) { h.moved.Add(1) }
