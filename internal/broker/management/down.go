package management

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/dlxctl/dlxctl/internal/wait"
)

const (
	// downLooks is how often a queue must be missing in the list, and exist, to be on a node that is
	// down, and downPause the time between two of these looks: a queue may be declared, or deleted
	// and declared again, while the lists are read.
	downLooks = 3
	downPause = 200 * time.Millisecond
)

// down returns the queues that exist and that the list does not have, in order: classic queues
// whose node is down (4.3.6, which calls them running; 3.10 and 4.0 list them), and quorum queues
// and streams of which no node that leads them is up (4.3.6). Their bindings,
// also those to the default exchange, are still listed: the destinations that the list of queues
// lacks are asked for by name.
func (m *Client) down(ctx context.Context, l listing) ([]string, error) {
	in := func(queues []queue) func(name string) bool {
		listed := make(map[string]bool, len(queues))
		for _, q := range queues {
			listed[q.Name] = true
		}
		return func(name string) bool { return listed[name] }
	}
	listed := in(l.queues)
	var out []string
	for _, b := range l.bindings {
		if b.DestinationType == "queue" && !listed(b.Destination) && !unaddressable(b.Destination) {
			out = append(out, b.Destination)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	vhost := url.PathEscape(m.vhost)
	for look := 0; look < downLooks && len(out) > 0; look++ {
		var queues []queue
		if err := m.get(ctx, &queues, "queues/"+vhost+queueTotals+queueColumns); err != nil {
			return nil, err
		}
		out = slices.DeleteFunc(out, in(queues))
		var err error
		out = slices.DeleteFunc(out, func(name string) bool {
			var q struct{}
			failed := m.get(ctx, &q, "queues/"+vhost+"/"+url.PathEscape(name)+"?columns=name")
			if failed != nil && !isGone(failed) {
				err = failed
			}
			return failed != nil
		})
		if err == nil && len(out) > 0 {
			err = wait.For(ctx, downPause)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
