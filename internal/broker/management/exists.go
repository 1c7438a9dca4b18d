package management

import (
	"context"
	"errors"
	"net/url"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// Exists reports whether a queue exists, also one that the list of [Client.Inspect] leaves out: a
// classic queue whose node is down (4.3.6).
func (m *Client) Exists(ctx context.Context, queue string) (bool, error) {
	var q struct{}
	err := m.get(ctx, &q, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(queue)+"?columns=name")
	if errors.Is(err, broker.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
