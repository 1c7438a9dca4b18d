package management

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// HolderUnknown is said of a lock of which the broker does not report who holds it.
const HolderUnknown = " (the broker does not report who)"

// Holder is the connection that holds a lock.
type Holder struct {
	// Connection is the name that the client gave its connection, or else the broker's name for it.
	Connection string
	// Host is the address of the client.
	Host string
	// Since is when it connected. Zero: the broker does not report it, or not yet.
	Since time.Time
}

// Holder returns the connection that holds the exclusive queue name. It reports false if no
// connection holds it any more, or if the broker does not report it.
func (m *Client) Holder(ctx context.Context, name string) (Holder, bool) {
	q, _ := m.with(ctx).GetQueueWithParameters(m.vhost, name, url.Values{"columns": {"name,owner_pid_details"}})
	if q == nil || q.OwnerPidDetails == nil || q.OwnerPidDetails.Name == "" {
		return Holder{}, false
	}
	h := Holder{Connection: q.OwnerPidDetails.Name, Host: q.OwnerPidDetails.PeerHost}
	if c, _ := m.with(ctx).GetConnection(h.Connection); c != nil {
		if c.ConnectedAt > 0 {
			h.Since = time.UnixMilli(int64(c.ConnectedAt))
		}
		if name, _ := c.ClientProperties["connection_name"].(string); name != "" {
			h.Connection = name
		}
	}
	return h, true
}

// NoHolder says in brackets or after a colon why no connection is known to hold the lock that the
// exclusive queue name is. A lock outlives its connection where the node of that goes down:
// RabbitMQ deletes such queues when the node is back or is removed (4.2 with Khepri, and 4.3; seen
// on 4.3.6).
func (m *Client) NoHolder(ctx context.Context, name string) string {
	down, _ := m.unlisted(ctx, []string{name}, true) // if it cannot be read, the reason is not known
	if len(down) == 0 {
		return HolderUnknown
	}
	node := topology.Printable(down[0].Node)
	return fmt.Sprintf(": it was connected to the node %s, which is down, and RabbitMQ keeps the lock until the node is back; start it, or remove it from the cluster with 'rabbitmqctl forget_cluster_node %s'",
		node, node)
}
