package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/topology"
)

// closeHold deletes the hold of a run, and its exchanges. The hold has nothing but records.
//
// Nothing can be lost: the records are acknowledged only if nothing else is in the hold, and the
// hold is deleted only once it is proven to be empty, which takes into account that the broker's
// counts are up to 5 seconds old. A process that dies in between leaves an empty hold, which the
// next one deletes.
func (w *worker) closeHold(ctx context.Context) error {
	hold := topology.HoldName(w.desk.Topology.Name, w.run)
	queue := topology.Queue{Name: hold, Durable: true, Arguments: w.desk.keeper()}
	for tries := 1; ; tries++ {
		if err := w.dropRecords(ctx, hold); err != nil {
			return err
		}
		err := w.desk.Management.ProveEmpty(ctx, []topology.Queue{queue})
		if err == nil {
			break
		}
		// What a connection had that has just ended comes back a moment later.
		if tries == closeTries || !errors.Is(err, broker.ErrRefused) {
			return err
		}
	}
	state, err := w.desk.inspect(ctx)
	if err != nil {
		return err
	}
	for _, e := range state.Have.Exchanges {
		if strings.HasPrefix(e.Name, hold+".") {
			if err := w.conn.DeleteExchange(e.Name, amqp.Conditions{}); err != nil {
				return err
			}
		}
	}
	if err := w.dropWitnesses(state); err != nil {
		return err
	}
	return w.conn.DeleteQueue(hold, amqp.Conditions{}) // proven to be empty, see above
}

// closeTries is how often an end is tried, each 5 seconds.
const closeTries = 3

// dropRecords acknowledges the records in a hold that has nothing else, also those that the
// connections of the run had and that come back a moment after these have ended.
func (w *worker) dropRecords(ctx context.Context, hold string) error {
	conn, err := amqp.DialToConsume(ctx, w.desk.endpoint("ends "+w.run))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		ready, _, err := conn.Settled(ctx, hold, amqp.Alone)
		if err != nil || ready == 0 {
			return err
		}
		if err := w.dropReady(ctx, conn, hold, ready); err != nil {
			return err
		}
	}
}

// dropReady acknowledges the ready records in a hold that has nothing else.
func (w *worker) dropReady(ctx context.Context, conn *amqp.Conn, hold string, ready int) error {
	h := conn.Holder(hold, amqp.HolderOptions{Messages: ready})
	var records []amqp.Held
	err := h.Take(ctx, func(m amqp.Held) error {
		if !isRecord(w.run, m.Delivery) {
			return fmt.Errorf("the hold %s still has messages; run 'dlxctl desk run resume %s'", hold, w.run)
		}
		m.Body = nil
		records = append(records, m)
		return nil
	})
	for _, m := range records {
		if err != nil {
			break
		}
		// Nothing is lost: it is a record of the run, whose messages have all left the hold.
		err = h.Ack(m)
	}
	return errors.Join(err, h.Release()) //nolint:contextcheck // it must happen after the end of ctx too
}
