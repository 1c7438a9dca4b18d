package management

import (
	"context"
	"net/url"
	"slices"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// vhostTries is how many times a virtual host is deleted. The broker ends a request after 60
// seconds, and goes on: with hundreds of queues on a busy node it needs longer.
const vhostTries = 4

// IsAdministrator reports whether the user has the tag administrator, which creating a virtual
// host needs.
func (m *Client) IsAdministrator(ctx context.Context) (bool, error) {
	me, err := m.whoami(ctx)
	return slices.Contains(me.Tags, "administrator"), err
}

// whoami returns the user's name and tags.
func (m *Client) whoami(ctx context.Context) (rabbithole.WhoamiInfo, error) {
	me, err := m.with(ctx).Whoami()
	if me == nil {
		return rabbithole.WhoamiInfo{}, m.unread("whoami", err)
	}
	return *me, nil
}

// VHostsDescribed returns the names of the virtual hosts that have exactly this description, of
// those that the user may see: an administrator sees all. They are sorted.
func (m *Client) VHostsDescribed(ctx context.Context, description string) ([]string, error) {
	rows, err := m.with(ctx).ListVhosts()
	if err != nil || rows == nil {
		return nil, m.unread("vhosts", err)
	}
	var out []string
	for _, r := range rows {
		if r.Description == description {
			out = append(out, r.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// CreateVHost creates a virtual host, and gives these users all permissions in it. If a permission
// cannot be given, the virtual host exists already.
func (m *Client) CreateVHost(ctx context.Context, name, description string, users ...string) error {
	if err := done(m.with(ctx).PutVhost(name, rabbithole.VhostSettings{Description: description})); err != nil {
		return err
	}
	all := rabbithole.Permissions{Configure: ".*", Write: ".*", Read: ".*"}
	slices.Sort(users)
	for _, user := range slices.Compact(users) {
		if err := done(m.with(ctx).UpdatePermissionsIn(name, user, all)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteVHost deletes a virtual host with everything in it. The caller guarantees that nothing in
// it matters. It succeeds if the virtual host does not exist.
func (m *Client) DeleteVHost(ctx context.Context, name string) error {
	var err error
	for range vhostTries {
		if err = done(m.with(ctx).DeleteVhost(name)); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// CountQueues returns how many queues a virtual host has, and how many of them are exclusive: they
// belong to a connection. It fails if the virtual host does not exist, or the user may not see it.
func (m *Client) CountQueues(ctx context.Context, vhost string) (all, exclusive int, err error) {
	var queues []queue
	if err := m.get(ctx, &queues, "queues/"+url.PathEscape(vhost)+"?disable_stats=true"); err != nil {
		return 0, 0, err
	}
	for _, q := range queues {
		if q.Exclusive {
			exclusive++
		}
	}
	return len(queues), exclusive, nil
}
