package management

import (
	"context"
	"net/url"
	"slices"
)

// running are the states of a queue that works, or that is just beginning to.
func running() []string { return []string{"", "running", "idle", "flow", "live"} }

// down returns the queues that exist and that a list does not have, in order: classic queues whose
// node is down (4.3.6; 3.10 and 4.0 list them). Bindings lead only to queues that exist, so the
// destinations that the list lacks are asked for by name. A queue that was created while the lists
// were read runs.
func (m *Client) down(ctx context.Context, l listing) ([]string, error) {
	listed := make(map[string]bool, len(l.queues))
	for _, q := range l.queues {
		listed[q.Name] = true
	}
	var out []string
	for _, b := range l.bindings {
		if b.DestinationType != "queue" || listed[b.Destination] || dots(b.Destination) {
			continue
		}
		listed[b.Destination] = true // once
		var q struct {
			State string `json:"state"`
		}
		err := m.get(ctx, &q, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(b.Destination)+"?columns=name,state")
		switch {
		case isGone(err):
		case err != nil:
			return nil, err
		case !slices.Contains(running(), q.State):
			out = append(out, b.Destination)
		}
	}
	slices.Sort(out)
	return out, nil
}
