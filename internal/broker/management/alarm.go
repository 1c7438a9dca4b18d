package management

import (
	"cmp"
	"context"
	"slices"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
)

// alarm describes the alarms in effect, with the nodes, which the broker's reason does not name. It
// is empty if there are none.
func (m *Client) alarm(ctx context.Context) (string, error) {
	check, err := m.with(ctx).HealthCheckAlarms()
	if err != nil || !check.Ok() && check.Reason == "" {
		return "", ifPermitted(m.unread("health/checks/alarms", err))
	}
	alarms := text.Each(check.Alarms, func(a rabbithole.AlarmInEffect) string {
		return a.Resource + " alarm on " + a.Node
	})
	slices.Sort(alarms)
	return broker.OneLine(cmp.Or(text.List(alarms), check.Reason)), nil
}
