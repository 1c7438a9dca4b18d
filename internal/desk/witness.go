package desk

import (
	"context"
	"errors"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

// A witness is a queue of one process of a pull. It tells later processes of the run whether that
// one has acknowledged what it took out of the work queue: it has two messages, and the first is
// acknowledged in the transaction with the chosen ones, see amqp.HolderOptions.Witness.
//
// It is a classic queue, on the node of the connection that takes, and its messages are not
// persistent. So if that node ends, which may apply one acknowledgement and forget another, the
// witness has no message and proves nothing. A policy that drops its messages has the same effect.

// verdict is what a witness says of the acknowledgements of a process.
type verdict int

const (
	notKnown        verdict = iota // they may have been carried out
	acknowledged                   // all were sent to the work queue
	notAcknowledged                // none was, and none will be
)

// openWitness creates the witness of this process, on the node of in. It returns its name: that of
// the exchange through which the process takes. It is empty if the witness could outlive its node.
func (w *worker) openWitness(ctx context.Context, state topology.State, in *amqp.Conn, out *outlet) (string, error) {
	mirrors := func(p topology.Policy) bool { return p.Definition.HasAny("ha-mode") }
	if !state.AtLeast(4, 0) && slices.ContainsFunc(append(state.OperatorPolicies, state.Have.Policies...), mirrors) {
		return "", nil // a mirror on another node would keep its messages
	}
	locator := "x-queue-leader-locator"
	if !state.AtLeast(4, 1) { // 4.0 may refuse it for classic queues
		locator = "x-queue-master-locator"
	}
	name := w.takeExchange
	q := topology.Queue{
		Name: name, Durable: true,
		Arguments: w.desk.mark().With(topology.ArgQueueType, topology.Classic).With(locator, "client-local"),
	}
	if err := in.DeclareQueue(q); err != nil {
		return "", err
	}
	for range 2 {
		if err := out.publish(ctx, "", name, amqp091.Publishing{DeliveryMode: amqp091.Transient, AppId: "dlxctl"}); err != nil {
			return "", err
		}
	}
	return name, nil
}

// ask waits until a process of a pull has no channel any more, and returns what its witness says.
//
// A queue counts the consumer of a channel until it learns of the end of the channel, and then it
// has received all that the channel has sent to it. So both messages are there only if the channel
// has ended without carrying out the commit.
func (w *worker) ask(ctx context.Context, witness string) (verdict, error) {
	if witness == "" {
		return notKnown, nil
	}
	ready, _, err := w.conn.Settled(ctx, witness, amqp.Alone)
	switch {
	case errors.Is(err, broker.ErrNotFound):
		return notKnown, nil
	case err != nil:
		return notKnown, err
	case ready == 2:
		return notAcknowledged, nil
	case ready == 1:
		return acknowledged, nil
	default:
		return notKnown, nil
	}
}

// askAll returns what the witnesses of all processes say that may have acknowledged: one has, if it
// is not known of each that it has not.
func (w *worker) askAll(ctx context.Context, witnesses []string) (verdict, error) {
	all := notAcknowledged
	for _, name := range witnesses {
		v, err := w.ask(ctx, name)
		if err != nil || v == acknowledged {
			return v, err
		}
		if v == notKnown {
			all = notKnown
		}
	}
	return all, nil
}

// dropWitnesses deletes the witnesses of a run. Nothing is lost: they have nothing but the messages
// of openWitness.
func (w *worker) dropWitnesses(state topology.State) error {
	for _, q := range state.Have.Queues {
		if strings.HasPrefix(q.Name, takeExchangePrefix(w.desk.Topology.Name, w.run)) {
			if err := w.conn.DeleteQueue(q.Name, amqp.Conditions{}); err != nil {
				return err
			}
		}
	}
	return nil
}
