package desk

import (
	"context"
	"fmt"
	"slices"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

// note writes messages into the hold, and waits for their confirms. through is an exchange that
// routes to the hold: the default one, or that through which this process takes.
func (w *worker) note(ctx context.Context, through string, messages ...amqp091.Publishing) error {
	hold := topology.HoldName(w.desk.Topology.Name, w.run)
	conn, err := amqp.Dial(ctx, w.desk.endpoint("writes "+w.run))
	if err != nil {
		return err
	}
	defer conn.Close()
	out, err := newOutlet(conn, len(messages))
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := out.publish(ctx, through, hold, m); err != nil {
			return fmt.Errorf("write to the hold %s: %w", hold, err)
		}
	}
	return nil
}

// stepExchange names the exchange that says that a run has come to a step, of which kind is the
// record.
func stepExchange(topologyName, run, kind string) string {
	return topology.HoldName(topologyName, run) + ".is." + kind
}

// noteStep notes that the run has come to a step: in the hold, and by an exchange, as a message-ttl
// of another team can delete the record in the hold, and no policy deletes an exchange. A process
// that did not know the step would take messages again that were sent, or count those that were
// returned as no doubles. The exchange is last: a run that is killed before it has done nothing of
// the step yet. It tells the step alone if a length limit makes the hold refuse the record.
func (w *worker) noteStep(ctx context.Context, kind string) error {
	if err := w.note(ctx, "", record(w.run, kind, 0, 0, nil)); ignore(err, errReturned) != nil {
		return err
	}
	return w.markStep(ctx, kind)
}

// markStep creates the exchange of a step.
func (w *worker) markStep(ctx context.Context, kind string) error {
	name := w.desk.Topology.Name
	return w.fanout(ctx, stepExchange(name, w.run, kind), topology.HoldName(name, w.run))
}

// hasStep reports whether a run had come to a step when this process last read the virtual host.
func (d *Desk) hasStep(run, kind string) bool {
	state, name := d.last.Load(), stepExchange(d.Topology.Name, run, kind)
	return state != nil &&
		slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool { return e.Name == name })
}
