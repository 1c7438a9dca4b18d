package desk

import (
	"context"
	"slices"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Waiting returns the queues in which messages of a delay wait: the levels, the longest first, and
// the due queue if no processor reads it. A message goes on to shorter levels alone, so that one
// which does so while the queues are looked at in this order is seen twice rather than missed.
func (d *Desk) Waiting(ctx context.Context, delay topology.Delay) ([]string, error) {
	levels := text.Each(delay.Levels, func(l topology.Tier) string { return l.Queue })
	slices.Reverse(levels)
	names, err := d.existing(ctx, append(levels, delay.Due))
	if err != nil {
		return nil, err
	}
	conn, err := amqp.Dial(ctx, d.Endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return slices.DeleteFunc(names, func(name string) bool {
		// A queue that does not answer is looked at, which says why.
		ready, consumers, err := conn.Holds(name)
		return err == nil && (name == delay.Due && consumers > 0 ||
			ready == 0 && (consumers > 0 || seemsEmpty(ctx, conn, name)))
	}), nil
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
