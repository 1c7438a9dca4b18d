package desk

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// argRun is the argument of a hold that describes its run, so that runs can be listed without
// consuming from their holds. The broker ignores it.
const argRun = "x-desk-run"

// parkedTime is how long parked messages stay.
const parkedTime = 30 * 24 * time.Hour

// described is the value of argRun.
type described struct {
	summary
	// Records is how many messages of the hold are the list.
	Records int
}

// keeper returns the arguments of a queue of the desk: no message leaves it by itself.
func (d *Desk) keeper() topology.Arguments {
	return topology.Arguments{
		topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: topology.Unlimited,
		topology.ArgOverflow: topology.RejectPublish, topology.ArgManagedBy: topology.DeskMark(d.Topology.Name),
	}
}

// mark returns the arguments of the bindings and exchanges of the desk. Without the mark,
// apply --prune would delete a binding, and a migration would copy it.
func (d *Desk) mark() topology.Arguments {
	return topology.Arguments{topology.ArgManagedBy: topology.DeskMark(d.Topology.Name)}
}

func (d *Desk) holdOf(m *manifest) (topology.Queue, error) {
	value, err := json.Marshal(described{m.summary, m.records()})
	if err != nil {
		return topology.Queue{}, err
	}
	return topology.Queue{
		Name: topology.HoldName(d.Topology.Name, m.Run), Durable: true,
		Arguments: d.keeper().With(argRun, string(value)),
	}, nil
}

func (d *Desk) parked() topology.Queue {
	return topology.Queue{
		Name: topology.ParkedName(d.Topology.Name), Durable: true,
		Arguments: d.keeper().With(topology.ArgMessageTTL, parkedTime.Milliseconds()),
	}
}

// takeExchangePrefix is how the names of the exchanges begin through which a run takes messages
// into its hold. Their type is fanout: they route by neither key nor CC, so a message keeps its key
// and reaches the hold alone. One exists as long as the run takes. Each process has its own, see
// awaitInFlight.
func takeExchangePrefix(topologyName, run string) string {
	return topology.HoldName(topologyName, run) + ".in."
}

// directExchange names the exchange through which a run sends messages to one queue alone, whatever
// their key and CC say. It exists until the run ends.
func directExchange(topologyName, run, queue string) string {
	return topology.HoldName(topologyName, run) + directInfix + queueHash(queue)
}

const directInfix = ".to."

// queueHash stands for a queue in the names of exchanges: it is shorter than most names.
func queueHash(queue string) string {
	lock := topology.DeskLockName("", queue)
	return lock[strings.LastIndexByte(lock, '.')+1:]
}

// openHold creates the hold of a run, and writes the manifest into it. Nothing is taken before
// the broker has confirmed all of it.
func (w *worker) openHold(ctx context.Context, m *manifest) error {
	hold, err := w.desk.holdOf(m)
	if err != nil {
		return err
	}
	if err := w.createHold(ctx, m, hold); err != nil {
		// Both have just been created, and no message was published to them: nothing can be lost.
		return unbegun{errors.Join(err, w.conn.DeleteExchange(w.takeExchange, amqp.Conditions{}),
			w.conn.DeleteQueue(hold.Name, amqp.Conditions{}))}
	}
	if _, err := w.openParked(ctx, m); err != nil {
		return err
	}
	w.opened = time.Now()
	messages, err := m.messages()
	if err != nil {
		return err
	}
	return w.note(ctx, "", messages...)
}

// createHold creates the hold of a run and the exchange through which this process takes, unless
// the run must not begin. The exchange is first: a hold without one is that of a run that has taken
// all, also if this process dies between the two.
func (w *worker) createHold(ctx context.Context, m *manifest, hold topology.Queue) error {
	w.nameIntake()
	if err := w.declareFanout(ctx, w.takeExchange); err != nil {
		return err
	}
	if err := w.conn.DeclareQueue(hold); err != nil {
		return fmt.Errorf("create the hold %s: %w", hold.Name, err)
	}
	if err := w.bindFanout(w.takeExchange, hold.Name); err != nil {
		return err
	}
	filled := []topology.Queue{hold}
	if m.parks() {
		filled = append(filled, w.desk.parked())
	}
	// It has to be read again, although Execute has just done it: the desk of another topology has
	// locks of its own. Of two that begin at the same time, one finds the hold of the other.
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(w.desk.refusePolicies(state, filled...), w.refuseUnfinished(state, m.Queue))
}

// waitUntilDurable waits until the queues of the run survive a crash of their node.
func (w *worker) waitUntilDurable(ctx context.Context) error {
	if w.opened.IsZero() { // by another process
		return pause(ctx, amqp.SafeAge)
	}
	return pause(ctx, amqp.SafeAge-time.Since(w.opened))
}

// parks reports whether the run puts messages into the queue of parked ones.
func (m *manifest) parks() bool {
	return !m.back && m.Action.Kind().parkedAs != "" && !m.deletes()
}

// deletes reports whether the run deletes messages, as a person has asked for.
func (m *manifest) deletes() bool { return !m.back && m.Action.Kind().deletes(m.Forever) }

// openIntake creates the exchange through which this process takes.
func (w *worker) openIntake(ctx context.Context) error {
	w.nameIntake()
	return w.fanout(ctx, w.takeExchange, topology.HoldName(w.desk.Topology.Name, w.run))
}

// nameIntake names the exchange through which this process takes.
func (w *worker) nameIntake() {
	w.takeExchange = takeExchangePrefix(w.desk.Topology.Name, w.run) + strings.ToLower(rand.Text()[:6])
}

const (
	// inFlightTime is how long the number of messages in a hold must not change once nothing is
	// routed to it any more.
	inFlightTime = 500 * time.Millisecond
	// inFlightPause is the pause between two questions for it.
	inFlightPause = 50 * time.Millisecond
)

// awaitInFlight makes sure that nothing that a dead process has published still comes into the
// hold: the broker handles what it has received from a connection also after that has ended. A hold
// that grew after it was counted would get those messages twice. So the exchanges of earlier
// processes go, and what they have routed is waited for. A new one exists before they go, also if
// the run goes back: a run that has none has taken all, and lets others take from its queue.
func (w *worker) awaitInFlight(ctx context.Context) error {
	name := w.desk.Topology.Name
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	var earlier []string
	for _, e := range state.Have.Exchanges {
		if strings.HasPrefix(e.Name, takeExchangePrefix(name, w.run)) {
			earlier = append(earlier, e.Name)
		}
	}
	if len(earlier) > 0 {
		if err := ignore(w.openIntake(ctx), broker.ErrNotFound); err != nil {
			return err
		}
	}
	for _, exchange := range earlier {
		if err := w.conn.DeleteExchange(exchange, amqp.Conditions{}); err != nil {
			return err
		}
	}
	last, since := -1, time.Now()
	for len(earlier) > 0 && time.Since(since) < inFlightTime {
		ready, err := w.conn.MessagesReady(topology.HoldName(name, w.run))
		if errors.Is(err, broker.ErrNotFound) { // there is no hold: nothing was routed
			return w.conn.DeleteExchange(w.takeExchange, amqp.Conditions{})
		}
		if err != nil {
			return err
		}
		if ready != last {
			last, since = ready, time.Now()
		}
		if err := pause(ctx, inFlightPause); err != nil {
			return err
		}
	}
	return nil
}

// fanout creates an exchange that routes to one queue alone.
func (w *worker) fanout(ctx context.Context, exchange, queue string) error {
	if err := w.declareFanout(ctx, exchange); err != nil {
		return err
	}
	return w.bindFanout(exchange, queue)
}

// declareFanout creates the exchange of fanout. It is its own alternate exchange, which overrides
// one that a policy names: a message comes back when the queue is gone, and goes nowhere else
// (3.10.8, 4.0.5 and 4.3.6, measured).
func (w *worker) declareFanout(ctx context.Context, exchange string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	err := w.conn.DeclareExchange(topology.Exchange{
		Name: exchange, Type: topology.Fanout, Durable: true,
		Arguments: w.desk.mark().With(topology.ArgAlternateExchange, exchange),
	})
	if err != nil {
		return fmt.Errorf("create the exchange %s: %w", exchange, err)
	}
	return nil
}

// bindFanout makes an exchange route to a queue.
func (w *worker) bindFanout(exchange, queue string) error {
	err := w.conn.Bind(topology.Binding{
		Source: exchange, Destination: queue, DestinationType: topology.ToQueue, Arguments: w.desk.mark(),
	})
	if err != nil {
		return fmt.Errorf("bind the queue %s to %s: %w", text.Name(queue), exchange, err)
	}
	return nil
}
