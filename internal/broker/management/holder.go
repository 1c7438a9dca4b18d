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
	var q struct {
		Owner struct {
			Name string `json:"name"`
			Host string `json:"peer_host"`
		} `json:"owner_pid_details"`
	}
	if err := m.get(ctx, &q, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(name)); err != nil ||
		q.Owner.Name == "" {
		return Holder{}, false
	}
	h := Holder{Connection: q.Owner.Name, Host: q.Owner.Host}
	var c struct {
		Since      int64 `json:"connected_at"` // milliseconds
		Properties struct {
			Name string `json:"connection_name"`
		} `json:"client_properties"`
	}
	if err := m.get(ctx, &c, "connections/"+url.PathEscape(q.Owner.Name)); err == nil {
		if c.Since > 0 {
			h.Since = time.UnixMilli(c.Since)
		}
		if c.Properties.Name != "" {
			h.Connection = c.Properties.Name
		}
	}
	return h, true
}
