package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Waiting returns the queues in which messages of a delay wait: the levels, the longest first, and
// the due queue if no processor reads it. Levels that the file no longer has are among them. A
// message goes on to shorter levels alone, so that one which does so while the queues are looked at
// in this order is seen twice rather than missed.
//
// A timer that the file no longer has is not: RabbitMQ shows its messages to no client. If it holds
// any, the error says how many, and wraps ErrUnreached, and the names are those of the others.
func (d *Desk) Waiting(ctx context.Context, delay topology.Delay) ([]string, error) {
	state, err := d.inspect(ctx)
	if err != nil {
		return nil, err
	}
	var unseen error
	ttl := func(q topology.Queue) int64 { n, _ := q.Arguments[topology.ArgMessageTTL].(int64); return n }
	var levels []topology.Queue
	for _, q := range state.Have.Queues {
		owner, _ := topology.Owner(q.Arguments)
		switch held := state.Usage[q.Name].Ready + state.Usage[q.Name].Unacknowledged; {
		case owner != d.Topology.Name:
		case q.Name == topology.TimerName(d.Topology.Name, delay.Name):
			if held > 0 {
				unseen = fmt.Errorf("%w: %s holds %s, which RabbitMQ shows to no client; 'dlxctl status' counts them",
					ErrUnreached, text.Name(q.Name), text.Count(held, "message"))
			}
		case q.Name == delay.Due, delay.IsLevel(d.Topology.Name, q.Name):
			levels = append(levels, q) // the due queue has no TTL, and is the last
		}
	}
	slices.SortFunc(levels, func(a, b topology.Queue) int { return cmp.Compare(ttl(b), ttl(a)) })
	conn, err := amqp.Dial(ctx, d.Endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return slices.DeleteFunc(text.Each(levels, func(q topology.Queue) string { return q.Name }), func(name string) bool {
		// A queue that does not answer is looked at, which says why.
		ready, consumers, err := conn.Holds(name)
		return err == nil && (name == delay.Due && consumers > 0 ||
			ready == 0 && (consumers > 0 || seemsEmpty(ctx, conn, name)))
	}), unseen
}

// Locate returns, by queue, those of the handles that name a message there.
func (d *Desk) Locate(ctx context.Context, queues, handles []string, o LookOptions) (map[string][]string, error) {
	out := map[string][]string{}
	for _, queue := range queues {
		_, err := d.Look(ctx, queue, o, func(m deadletter.Message) error {
			for _, h := range handles {
				one := Request{Handles: []string{h}}
				if one.names(m.Handle, m.Copy) && !slices.Contains(out[queue], h) {
					out[queue] = append(out[queue], h)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
