package management

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/dlxctl/dlxctl/topology"
)

// InOutage returns the work queues that are in outage, as processors of these failed queues tell by
// a connection (see [topology.PropertyInOutageSince]): the earliest begin that one of them knows. A
// user with the tag management sees only its own connections.
//
// Only the users that consume one of the failed queues are believed. They can tell anything, so the
// caller looks up only names that it knows.
func (m *Client) InOutage(ctx context.Context, failedQueues []string) (map[string]topology.Began, error) {
	believed, err := m.usersOf(ctx, failedQueues)
	if err != nil || len(believed) == 0 {
		return nil, err
	}
	var list []struct {
		User       string         `json:"user"`
		Properties map[string]any `json:"client_properties"`
	}
	path := "vhosts/" + url.PathEscape(m.vhost) + "/connections?columns=user,client_properties"
	if err := m.get(ctx, &list, path); err != nil {
		return nil, err
	}
	out := map[string]topology.Began{}
	for _, c := range list {
		if believed[c.User] {
			earliest(out, c.Properties[topology.PropertyInOutageSince], false)
			earliest(out, c.Properties[topology.PropertyInOutageSinceBefore], true)
		}
	}
	return out, nil
}

// usersOf returns the users that consume one of the queues, as the statistics show them.
func (m *Client) usersOf(ctx context.Context, queues []string) (map[string]bool, error) {
	users := map[string]bool{}
	var mu sync.Mutex
	var reads []func() error
	for _, name := range queues {
		reads = append(reads, func() error {
			consumers, err := m.consumersOf(ctx, name)
			if isGone(err) { // deleted meanwhile
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, c := range consumers {
				if c.User != "" {
					users[c.User] = true
				}
			}
			return err
		})
	}
	return users, together(reads)
}

// earliest notes when outages began by a property of a connection. A property that is not a table
// of times says nothing.
func earliest(out map[string]topology.Began, property any, atLeast bool) {
	table, _ := property.(map[string]any)
	for queue, v := range table {
		s, _ := v.(string)
		at, err := time.Parse(time.RFC3339, s)
		if year := at.UTC().Year(); err != nil || year < 1 || year > 9998 { // JSON has no years beyond, in any zone
			continue
		}
		before, known := out[queue]
		if !known || at.Before(before.At) || at.Equal(before.At) && !atLeast {
			out[queue] = topology.Began{At: at, AtLeast: atLeast}
		}
	}
}
