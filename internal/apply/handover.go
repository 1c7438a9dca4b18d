package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// inFlight is how many messages of a retired failed queue are in flight at once. A
	// process that is killed duplicates no more than these, with the same message-id.
	inFlight = 64
	// inFlightBytes is how many bytes of them.
	inFlightBytes = 32 << 20
	// grace is how long a hand-over that is stopped continues with messages in flight.
	grace = 10 * time.Second
)

// handOver moves the messages of retired failed queues to the backoff that the queues of
// these messages have now. It needs the AMQP port. Where the run has not asked for consent yet, it
// asks before it moves the first message.
func (r *Runner) handOver(ctx context.Context, retiring []string) error {
	name := r.Session.Topology.Name
	for _, queue := range retiring {
		if _, failed := topology.FailedBackoff(name, queue); !failed {
			continue
		}
		if !r.Session.Locked() {
			r.Reporter.Notice(queue + " may hold messages; apply moves them over the AMQP port, so run it without --lock=false")
			continue
		}
		if !r.confirmed {
			holds, err := holdsWithoutConsumers(ctx, r.Session.Endpoint, queue)
			if err != nil && !errors.Is(err, broker.ErrNotFound) {
				return err
			}
			if !holds {
				continue
			}
			if err := r.confirm(ctx, r.last, nil); err != nil {
				return err
			}
		}
		h := &handler{topology: name, routes: r.routes, anyRoute: len(r.Session.Topology.Matches) > 0}
		err := handOverQueue(ctx, r.Session.Endpoint, h, queue)
		r.moved += h.moved.Load()
		for _, line := range h.results(queue) {
			r.Reporter.Result(line)
		}
		if err != nil && !errors.Is(err, broker.ErrNotFound) {
			return unfinished("move the messages of %s: %w; run %s again to continue", queue, err, r.command())
		}
	}
	return nil
}

// handOverQueue moves the messages of a failed queue, whose backoff is no longer in the file,
// to the failed exchange of the topology: from there they go to the backoff that their
// queue has now, and their attempts continue to count. h counts them.
//
// It leaves a queue alone that a processor consumes, because the processor moves its
// messages. The queue must have lost its bindings: handOverQueue ends when the queue is
// empty. It fails with broker.ErrNotFound if the queue does not exist.
//
// No message is lost wherever it is stopped: the relay acknowledges a message only when
// the broker has confirmed its copy. See inFlight for what may be duplicated. A message that the
// broker does not accept stays in the queue and is named in the error, and the others are moved.
func handOverQueue(ctx context.Context, e broker.Endpoint, h *handler, queue string) error {
	e.ConnectionName = fmt.Sprintf("dlxctl apply %s %s", h.topology, queue)
	if holds, err := holdsWithoutConsumers(ctx, e, queue); err != nil || !holds {
		return err
	}
	// This apply may have created the queues that get the messages.
	if wait.For(ctx, amqp.SafeAge) != nil {
		return context.Cause(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	caution := relay.Caution{Prefetch: inFlight, Bytes: inFlightBytes, Report: func(f relay.Finding) {
		h.found = append(h.found, f)
		if f.Kind == relay.NoRight || f.Kind == relay.Internal {
			stop() // no other message can be moved either
		}
	}}
	err := relay.Drive{
		Queue: queue, In: e, Out: e, Caution: &caution,
		Relay: relay.Relay{Handler: h, Grace: grace, UntilEmpty: true, Absent: caution.Refused},
	}.Run(ctx)
	if errors.Is(err, relay.ErrHeld) {
		err = h.heldError(err)
	}
	return err
}

// holdsWithoutConsumers reports whether a queue holds messages and has no consumer, also when a
// hand-over or a processor has just ended.
func holdsWithoutConsumers(ctx context.Context, e broker.Endpoint, queue string) (bool, error) {
	conn, err := amqp.Dial(ctx, e)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ready, consumers, err := conn.Settled(ctx, queue, 0)
	return ready > 0 && consumers == 0, err
}

// handler publishes each message again as it is, under the address of its work queue,
// which is its routing key, or for one that returned from a retry exchange is in CC.
type handler struct {
	topology string
	routes   map[string]bool // see Runner.routes
	anyRoute bool            // a match takes what has no binding
	moved    atomic.Int64
	dead     atomic.Int64    // those of moved whose address leads to a dead-letter queue
	gone     atomic.Int64    // those of moved whose address leads nowhere
	found    []relay.Finding // about the messages that stay
}

// heldError names a message that stays in its queue.
func (h *handler) heldError(err error) error {
	if len(h.found) == 0 {
		return err
	}
	f := h.found[len(h.found)-1]
	return fmt.Errorf("%w: message %q: %w", err, f.Delivery.MessageId, f.Err)
}

// Move returns the message with all headers that describe its failures. It omits what a
// delivery has and a publishing must not have: the delivery counts, and the user-id, which
// the broker accepts only from that user; the user-id is kept in a header.
func (h *handler) Move(d amqp091.Delivery) relay.Move {
	headers := maps.Clone(d.Headers)
	maps.DeleteFunc(headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	exchange := topology.FailedExchangeName(h.topology)
	if topology.IsRetryExchangeName(h.topology, d.Exchange) {
		// It returned from there and has not failed again, which processors know by this exchange
		// alone. Its CC is the processor's: from there it leads to a tier, or to the failed exchange.
		exchange = d.Exchange
	} else {
		keepAddresses(headers, d.RoutingKey)
	}
	if d.UserId != "" {
		if headers == nil {
			headers = amqp091.Table{}
		}
		headers[topology.HeaderUserID] = d.UserId
	}
	return relay.Move{Exchange: exchange, Key: d.RoutingKey, Message: relay.Republish(d, headers)}
}

// keepAddresses renames CC and BCC, which would route a failure to other queues too. own is the
// address of its work queue.
func keepAddresses(headers amqp091.Table, own string) {
	for _, name := range []string{topology.CC, topology.BCC} {
		v, ok := headers[name]
		delete(headers, name)
		// Since 4.0 a dead letter keeps the CC with which the processor addressed the retry. The
		// publisher's own is in retry-cc then, since the first failure.
		if list, _ := v.([]any); ok && (name != topology.CC || len(list) != 1 || list[0] != own) {
			headers[topology.SetAside(name)] = v
		}
	}
}

// Refused tries again: the message is safe in its queue meanwhile.
func (h *handler) Refused(_ amqp091.Delivery, m relay.Move, _ string) relay.Move { return m }

// Moved counts.
func (h *handler) Moved(_ amqp091.Delivery, m relay.Move) {
	h.moved.Add(1)
	if m.Exchange != topology.FailedExchangeName(h.topology) {
		return
	}
	switch dies, leads := h.routes[m.Key]; {
	case dies:
		h.dead.Add(1)
	case !leads && !h.anyRoute:
		h.gone.Add(1)
	}
}

// results says in lines where the messages of a queue have gone.
func (h *handler) results(queue string) []string {
	dead, gone := h.dead.Load(), h.gone.Load()
	var out []string
	add := func(n int64, to string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s: moved %s to %s", queue, text.Count(n, "message"), to))
		}
	}
	add(h.moved.Load()-dead-gone, "the current backoff of their queue")
	add(dead, "the dead-letter queue, as the backoff of their queue is none or native")
	add(gone, topology.UnroutableName(h.topology)+", as their queue is gone")
	return out
}
