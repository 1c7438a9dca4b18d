package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// remove deletes the object that a change begins with, or finds it gone. What
// the change has no hazard for, the broker is asked not to do: it then refuses
// with ErrRefused.
func (m *Management) remove(ctx context.Context, c plan.Change) error {
	vhost := url.PathEscape(m.vhost)
	switch o := c.Before.(type) {
	case topology.Exchange:
		// Messages for an exchange with bindings would be dropped without it.
		var only conditions
		only.unused = !slices.Contains(c.Hazards, plan.DropsRouting)
		return m.delete(ctx, "exchanges/"+vhost+"/"+url.PathEscape(o.Name)+only.String())
	case topology.Queue:
		return m.removeQueue(ctx, o, conditions{
			unused: !slices.Contains(c.Hazards, plan.StopsConsumers),
			empty:  !slices.Contains(c.Hazards, plan.LosesMessages),
		})
	case topology.Binding:
		return m.removeBinding(ctx, o)
	case topology.Policy:
		resp, err := m.with(ctx).DeletePolicy(m.vhost, o.Name)
		return m.done(ctx, resp, err)
	default:
		return fmt.Errorf("a %T cannot be deleted", c.Before)
	}
}

// conditions are what the broker checks in the moment of a deletion.
type conditions struct{ unused, empty bool }

// String gives the conditions as a query.
func (c conditions) String() string {
	query := url.Values{}
	if c.unused {
		query.Set("if-unused", "true")
	}
	if c.empty {
		query.Set("if-empty", "true")
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

// removeQueue deletes a queue. A classic queue that must be empty cannot lose a
// message: the broker looks and deletes in one step. For quorum queues and
// streams it has no conditions; there the counts are read just before, and what
// is published between the two is lost: the caller has to have cut the queue
// off from its bindings, and to know that its counts are no mere lag.
func (m *Management) removeQueue(ctx context.Context, q topology.Queue, only conditions) error {
	path := "queues/" + url.PathEscape(m.vhost) + "/" + url.PathEscape(q.Name)
	if q.Type() == topology.Classic {
		return m.delete(ctx, path+only.String())
	}
	usage, err := m.usage(ctx)
	if err != nil {
		return err
	}
	now, ok := usage[q.Name]
	switch {
	case !ok:
		return nil // it is gone
	case only.empty && now.Ready+now.Unacknowledged > 0:
		return tell(ErrRefused, "the queue holds %d messages, %d of them unacknowledged", now.Ready+now.Unacknowledged, now.Unacknowledged)
	case only.unused && now.Consumers > 0:
		return tell(ErrRefused, "the queue has %d consumers", now.Consumers)
	}
	return m.delete(ctx, path)
}

// usage reads what the queues hold, without their sizes. It reads the list, as
// 3.10 gives no totals for a single queue but those of its statistics, which lag.
func (m *Management) usage(ctx context.Context) (map[string]plan.Usage, error) {
	var l listing
	vhost := url.PathEscape(m.vhost)
	if err := m.get(ctx, &l.queues, "queues/"+vhost+queueTotals); err != nil {
		return nil, err
	}
	err := m.get(ctx, &l.consumers, "consumers/"+vhost)
	return l.usage(), err
}

// removeBinding deletes a binding and no other between the same ends: one with
// the same key and other arguments may be a service's own.
func (m *Management) removeBinding(ctx context.Context, b topology.Binding) error {
	kind := "q"
	if b.DestinationType == topology.ToExchange {
		kind = "e"
	}
	path := "bindings/" + url.PathEscape(m.vhost) + "/e/" + url.PathEscape(b.Source) + "/" + kind + "/" + url.PathEscape(b.Destination)
	var found []binding
	err := m.get(ctx, &found, path)
	if errors.Is(err, ErrNoVHost) || errors.Is(err, ErrNotFound) {
		return nil // one of its ends is gone, and it with that
	}
	if err != nil {
		return err
	}
	for _, f := range found {
		args, err := arguments(f.Arguments)
		if err != nil {
			return err
		}
		if f.Key == b.Key && args.Equal(b.Arguments) {
			return m.delete(ctx, path+"/"+url.PathEscape(f.PropertiesKey))
		}
	}
	return nil // it is gone
}

// delete deletes what is at path, or finds it gone.
func (m *Management) delete(ctx context.Context, path string) error {
	resp, err := m.call(ctx, http.MethodDelete, path, nil)
	return m.done(ctx, resp, err)
}
