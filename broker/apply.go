package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// Apply carries out one change. Doing so twice is harmless. Its errors do not
// name the object: the caller does. It begins nothing once the connection of Over
// has ended.
func (m *Management) Apply(ctx context.Context, c plan.Change) error {
	if err := m.stillOver(); err != nil {
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
		return m.declare(ctx, c.After)
	case plan.Blocked:
	}
	return fmt.Errorf("action %q cannot be carried out", c.Action)
}

// declare makes an object, or finds it made. A queue or exchange that exists
// and differs is an [ErrInequivalent].
func (m *Management) declare(ctx context.Context, object any) error {
	vhost := url.PathEscape(m.vhost)
	switch o := object.(type) {
	case topology.Exchange:
		return m.put(ctx, declaration{
			Type: o.Type, Durable: o.Durable, AutoDelete: o.AutoDelete, Internal: &o.Internal, Arguments: orEmpty(o.Arguments),
		}, "exchanges/"+vhost+"/"+url.PathEscape(o.Name))
	case topology.Queue:
		if m.over != nil && o.Type() == topology.Quorum {
			return m.over.declareQueue(o)
		}
		return m.put(ctx, declaration{
			Durable: o.Durable, AutoDelete: o.AutoDelete, Arguments: orEmpty(o.Arguments),
		}, "queues/"+vhost+"/"+url.PathEscape(o.Name))
	case topology.Binding:
		if m.over != nil {
			return m.over.bind(o)
		}
		resp, err := m.with(ctx).DeclareBinding(m.vhost, rabbithole.BindingInfo{
			Source: o.Source, Destination: o.Destination, DestinationType: o.DestinationType,
			RoutingKey: o.Key, Arguments: inJSON(o.Arguments),
		})
		return m.done(ctx, resp, err)
	case topology.Policy:
		m.policies.Lock()
		defer m.policies.Unlock()
		if err := m.stillOver(); err != nil { // it may have waited for others
			return err
		}
		if _, ours := topology.PolicyOwner(o.Name); ours {
			if err := m.putPolicy(ctx, o.Pending()); err != nil {
				return err
			}
		}
		return m.putPolicy(ctx, o)
	default:
		return fmt.Errorf("a %T cannot be declared", object)
	}
}

// putPolicy stores a policy. The caller holds m.policies: of policies that are written
// at the same time, each puts in force what the list showed when it began, and may
// undo the other (of 900 that were deleted 16 at a time, 177 stayed in force on
// 4.0.5; none when it was one at a time).
func (m *Management) putPolicy(ctx context.Context, p topology.Policy) error {
	resp, err := m.with(ctx).PutPolicy(m.vhost, p.Name, rabbithole.Policy{
		Vhost: m.vhost, Name: p.Name, Pattern: p.Pattern, ApplyTo: p.ApplyTo,
		Priority: int(p.Priority), Definition: rabbithole.PolicyDefinition(orEmpty(p.Definition)),
	})
	return m.done(ctx, resp, err)
}

// declaration is the body of a PUT of a queue or exchange. Nothing is left out:
// what a broker does without auto_delete depends on its version, and arguments
// of null are an internal error to it.
type declaration struct {
	Type       string             `json:"type,omitempty"`
	Durable    bool               `json:"durable"`
	AutoDelete bool               `json:"auto_delete"`
	Internal   *bool              `json:"internal,omitempty"`
	Arguments  topology.Arguments `json:"arguments"`
}

// inJSON gives arguments as they must stand in JSON: a whole number that is a float with its
// point, or the broker would take it for an integer, which routes otherwise.
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

// orEmpty gives args as something that is never null in JSON.
func orEmpty(args topology.Arguments) topology.Arguments {
	if args == nil {
		return topology.Arguments{}
	}
	return args
}
