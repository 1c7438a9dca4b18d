package management

import (
	"context"
	"net/url"
)

// Exists reports whether a queue exists, also one that the list of [Client.Inspect] leaves out: a
// classic queue whose node is down (4.3.6).
func (m *Client) Exists(ctx context.Context, queue string) (bool, error) {
	if dots(queue) {
		return false, nil // it cannot be asked
	}
	var q struct{}
	err := m.get(ctx, &q, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(queue)+"?columns=name")
	if isGone(err) {
		return false, nil // without the virtual host, the next request fails
	}
	return err == nil, err
}
