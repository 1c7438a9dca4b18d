package management

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"

	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/internal/wait"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Apply carries out one change. Doing so twice is harmless. Its errors do not name the object: the
// caller does. It starts nothing once the connection of UseAMQP has ended.
func (m *Client) Apply(ctx context.Context, c plan.Change) error {
	if err := m.stillConnected(); err != nil {
		return err
	}
	switch c.Action {
	case plan.Create, plan.Update, plan.Migrate:
		return m.declare(ctx, c.After)
	case plan.Delete:
		return m.remove(ctx, c)
	case plan.Replace:
		if err := m.remove(ctx, c); err != nil {
			return err
		}
		old, _ := c.Before.(topology.Queue)
		next, _ := c.After.(topology.Queue)
		if amqp.Lingers(old, next) && slices.Contains(c.Hazards, topology.StopsConsumers) {
			if err := wait.For(ctx, amqp.CancelTime); err != nil {
				return err
			}
		}
		return m.declareAnew(ctx, c)
	case plan.Blocked:
	}
	return fmt.Errorf("action %q cannot be carried out", c.Action)
}

// declareAnew creates what a change has deleted, and the bindings that went with it. Its error
// names the bindings of others: no plan knows of them any more.
func (m *Client) declareAnew(ctx context.Context, c plan.Change) error {
	err := m.declare(ctx, c.After)
	var others []string
	for _, b := range c.Rebinds {
		if err == nil {
			err = m.declare(ctx, b)
		}
		if _, marked := topology.Owner(b.Arguments); err != nil && !marked {
			others = append(others, topology.Printable(b.String()))
		}
	}
	if len(others) == 0 {
		return err
	}
	return fmt.Errorf("%w; bindings that dlxctl did not create went with the queue, and must be created manually: %s",
		err, text.Some(others))
}

// declare creates an object, or finds that it exists. A queue or exchange that exists and differs
// is a [broker.ErrInequivalent].
func (m *Client) declare(ctx context.Context, object topology.Object) error {
	vhost := url.PathEscape(m.vhost)
	switch o := object.(type) {
	case topology.Exchange:
		return m.put(ctx, declaration{
			Type: o.Type, Durable: o.Durable, AutoDelete: o.AutoDelete, Internal: &o.Internal, Arguments: o.Arguments.OrEmpty(),
		}, "exchanges/"+vhost+"/"+url.PathEscape(o.Name))
	case topology.Queue:
		if m.conn != nil && o.Type() == topology.Quorum {
			return m.do(ctx, func(c *amqp.Conn) error { return c.DeclareQueue(o) })
		}
		return m.put(ctx, declaration{
			Durable: o.Durable, AutoDelete: o.AutoDelete, Arguments: o.Arguments.OrEmpty(),
		}, "queues/"+vhost+"/"+url.PathEscape(o.Name))
	case topology.Binding:
		if m.conn != nil {
			return m.conn.Bind(o)
		}
		return done(m.with(ctx).DeclareBinding(m.vhost, rabbithole.BindingInfo{
			Source: o.Source, Destination: o.Destination, DestinationType: o.DestinationType,
			RoutingKey: o.Key, Arguments: inJSON(o.Arguments),
		}))
	case topology.Policy:
		m.policies.Lock()
		defer m.policies.Unlock()
		if err := m.stillConnected(); err != nil { // it may have waited for others
			return err
		}
		if _, owned := topology.PolicyOwner(o.Name); owned {
			if err := m.putPolicy(ctx, o.Pending()); err != nil {
				return err
			}
		}
		return m.putPolicy(ctx, o)
	default:
		return fmt.Errorf("a %T cannot be declared", object)
	}
}

// putPolicy stores a policy. The caller holds m.policies: of policies that are written at the same
// time, each puts into effect what the list showed when its request began, and may undo the other
// (of 900 that were deleted 16 at a time, 177 stayed in effect on 4.0.5; none when they were
// deleted one at a time).
func (m *Client) putPolicy(ctx context.Context, p topology.Policy) error {
	return done(m.with(ctx).PutPolicy(m.vhost, p.Name, rabbithole.Policy{
		Vhost: m.vhost, Name: p.Name, Pattern: p.Pattern, ApplyTo: p.ApplyTo,
		Priority: int(p.Priority), Definition: rabbithole.PolicyDefinition(p.Definition.OrEmpty()),
	}))
}

// declaration is the body of a PUT of a queue or exchange. Nothing is left out: what a broker does
// without auto_delete depends on its version, and arguments of null are an internal error to it.
type declaration struct {
	Type       string             `json:"type,omitempty"`
	Durable    bool               `json:"durable"`
	AutoDelete bool               `json:"auto_delete"`
	Internal   *bool              `json:"internal,omitempty"`
	Arguments  topology.Arguments `json:"arguments"`
}

// inJSON returns arguments for JSON: a whole number that is a float keeps its decimal point.
// Without it the broker would read an integer, which routes differently.
func inJSON(args topology.Arguments) map[string]any {
	out := make(map[string]any, len(args))
	for name, v := range args {
		out[name] = valueInJSON(v)
	}
	return out
}

func valueInJSON(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			return json.Number(strconv.FormatFloat(v, 'f', 1, 64))
		}
		return v
	case topology.Arguments:
		return inJSON(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = valueInJSON(v[i])
		}
		return out
	default:
		return v
	}
}
