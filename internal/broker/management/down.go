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
// lacks are asked for by name. The queues of one connection are not among them: when their node is
// back, or is removed from the cluster, RabbitMQ deletes them (on_node_up of rabbit_amqqueue).
func (m *Client) down(ctx context.Context, l listing) ([]string, error) {
	listed := in(l.queues)
	var out []string
	for _, b := range l.bindings {
		if b.DestinationType == "queue" && !listed(b.Destination) && !unaddressable(b.Destination) {
			out = append(out, b.Destination)
		}
	}
	slices.Sort(out)
	found, err := m.unlisted(ctx, slices.Compact(out), false)
	out = nil
	for _, q := range found {
		out = append(out, q.Name)
	}
	return out, err
}

// in returns a function that reports whether one of these queues has a name.
func in(queues []queue) func(name string) bool {
	listed := make(map[string]bool, len(queues))
	for _, q := range queues {
		listed[q.Name] = true
	}
	return func(name string) bool { return listed[name] }
}

// unlistedQueue is a queue that exists and that the list of queues does not have.
type unlistedQueue struct {
	Name      string `json:"name"`
	Node      string `json:"node"`
	Exclusive bool   `json:"exclusive"` // of one connection
}

// unlisted returns those of these queues that exist and that the list does not have: with exclusive
// also those of one connection.
func (m *Client) unlisted(ctx context.Context, names []string, exclusive bool) ([]unlistedQueue, error) {
	vhost := url.PathEscape(m.vhost)
	var out []unlistedQueue
	for look := 0; look < downLooks && len(names) > 0; look++ {
		if look > 0 {
			if err := wait.For(ctx, downPause); err != nil {
				return nil, err
			}
		}
		var queues []queue
		if err := m.get(ctx, &queues, "queues/"+vhost+queueTotals+queueColumns); err != nil {
			return nil, err
		}
		var left []string
		listed := in(queues)
		out = nil
		for _, name := range names {
			if listed(name) {
				continue
			}
			q := unlistedQueue{}
			err := m.get(ctx, &q, "queues/"+vhost+"/"+url.PathEscape(name)+"?columns=name,node,exclusive")
			if err != nil && !isGone(err) {
				return nil, err
			}
			if err == nil && (exclusive || !q.Exclusive) {
				out, left = append(out, q), append(left, name)
			}
		}
		names = left
	}
	return out, nil
}
