package management

import (
	"context"
	"net/url"
	"time"
)

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
