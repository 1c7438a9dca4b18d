package management

import (
	"context"
	"errors"
	"slices"

	"github.com/dlclark/regexp2"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/plan"
)

// Lacking returns the rights that the user does not have, without writing anything. The permissions
// of an administrator can be read. Other users may not read even their own: conn probes them, with
// requests that the broker refuses for another reason if the right is granted (see
// [amqp.Conn.Lacking]). With a nil conn only tags are checked.
func (m *Client) Lacking(ctx context.Context, conn *amqp.Conn, rights []plan.Right) ([]plan.Right, error) {
	me, err := m.whoami(ctx)
	if err != nil {
		return nil, err
	}
	var lacking, others []plan.Right
	for _, r := range rights {
		switch {
		case r.Permission != plan.Policymaker:
			others = append(others, r)
		case !slices.Contains(me.Tags, "policymaker") && !slices.Contains(me.Tags, "administrator"):
			lacking = append(lacking, r)
		}
	}
	refused, read, err := m.readPermissions(ctx, me.Name, others)
	if err == nil && !read && conn != nil {
		refused, err = conn.Lacking(others)
	}
	lacking = append(lacking, refused...)
	plan.SortRights(lacking)
	return lacking, err
}

// readPermissions compares rights with the permissions of a user. It reports false if those cannot
// be read, or are not the broker's own.
func (m *Client) readPermissions(ctx context.Context, user string, rights []plan.Right) (lacking []plan.Right,
	read bool, err error,
) {
	all, err := m.with(ctx).ListPermissionsOf(user)
	if err != nil || all == nil {
		err = m.unread("users/"+user+"/permissions", err)
	}
	if errors.Is(err, broker.ErrForbidden) || errors.Is(err, broker.ErrUnauthorized) || isGone(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, p := range all {
		if p.Vhost != m.vhost {
			continue
		}
		patterns := map[plan.Permission]*regexp2.Regexp{}
		for permission, text := range map[plan.Permission]string{
			plan.Configure: p.Configure, plan.Write: p.Write,
			plan.Read: p.Read,
		} {
			if text == "" {
				text = "^$" // it permits nothing
			}
			pattern, err := regexp2.Compile(text, regexp2.None)
			if err != nil {
				return nil, false, nil //nolint:nilerr // the broker can read it, we cannot
			}
			patterns[permission] = pattern
		}
		for _, r := range rights {
			if permitted, err := patterns[r.Permission].MatchString(r.Name); err == nil && !permitted {
				lacking = append(lacking, r)
			}
		}
		return lacking, true, nil
	}
	return nil, false, nil
}
