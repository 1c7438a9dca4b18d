package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlxctl/dlxctl/apply"
	"github.com/dlxctl/dlxctl/broker"
	"github.com/dlxctl/dlxctl/topology"
)

// handOver moves what waits in retired failed queues to the backoff that the queues of
// these messages have now. It needs the AMQP port.
func (r *applier) handOver(ctx context.Context, amqp bool, retiring []string) error {
	for _, queue := range retiring {
		if _, failed := topology.FailedBackoff(r.want.Name, queue); !failed {
			continue
		}
		if !amqp {
			fmt.Fprintf(r.stderr, "%s may hold messages; apply hands them on over the AMQP port: run it without --lock=false\n", queue)
			continue
		}
		endpoint, err := r.endpointOf(r.conn, r.want)
		if err != nil {
			return err
		}
		moved, err := apply.HandOver(ctx, endpoint, r.want.Name, queue)
		if moved > 0 && r.output == "text" {
			fmt.Fprintf(r.stdout, "%s: handed %s on to the backoff that their queue has now\n", queue, count(int(moved), "message"))
		}
		if err != nil && !errors.Is(err, broker.ErrNotFound) {
			return fmt.Errorf("hand on the messages of %s: %w; run apply again to continue", queue, err)
		}
	}
	return nil
}
