package management

import (
	"context"
	"net/url"
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// addressable fails if a proxy in between decodes %2F in paths, as nginx does by default. Then the
// lists of the virtual host "/" are those of all virtual hosts, and each single object seems to be
// gone. Every virtual host has the exchange amq.direct, which cannot be deleted. A virtual host
// without a slash costs no request.
func (m *Client) addressable(ctx context.Context) error {
	if !strings.Contains(m.vhost, "/") {
		return nil
	}
	var answer any
	err := m.get(ctx, &answer, "exchanges/"+url.PathEscape(m.vhost)+"/amq.direct?columns=name")
	if !isGone(err) {
		return err
	}
	return broker.Errorf(broker.ErrUnreachable,
		"a proxy in front of %s decodes %%2F in paths, so that objects of vhost %q cannot be addressed; "+
			"let it pass on paths as they are (nginx: proxy_pass with $request_uri)", m.api, m.vhost)
}
