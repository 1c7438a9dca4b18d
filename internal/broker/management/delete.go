package management

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// remove deletes the object that a change starts from, or finds that it is gone. It asks the broker
// to refuse whatever the change has no hazard for: the deletion then fails with ErrRefused.
func (m *Client) remove(ctx context.Context, c plan.Change) error {
	switch o := c.Before.(type) {
	case topology.Exchange:
		// Without it, messages for an exchange with bindings would be dropped.
		var only amqp.Conditions
		only.Unused = c.Action == plan.Replace || !slices.Contains(c.Hazards, topology.DropsRouting)
		if m.conn != nil {
			return m.conn.DeleteExchange(o.Name, only)
		}
		path := "exchanges/" + url.PathEscape(m.vhost) + "/" + url.PathEscape(o.Name)
		if only.Unused {
			path += "?if-unused=true"
		}
		return done(m.call(ctx, http.MethodDelete, path, nil))
	case topology.Queue:
		if c.Label.Role == topology.RoleLog {
			// Nothing is lost: it has records of the desk, and no message of a user.
			return m.removeQueue(ctx, o, amqp.Conditions{}, c)
		}
		if c.Stake != nil { // the plan has named the runs of the desk that need the queue
			if err := m.unbindDesks(ctx, o.Name); err != nil {
				return err
			}
		}
		return m.removeQueue(ctx, o, amqp.Conditions{
			Unused: !slices.Contains(c.Hazards, topology.StopsConsumers),
			// A queue that was empty must still be empty: consent to losing what would arrive later
			// is no consent to losing what has arrived meanwhile.
			Empty: !slices.Contains(c.Hazards, topology.LosesMessages) || o.Type() != topology.Stream && c.Stake != nil &&
				c.Stake.Ready+c.Stake.Unacknowledged == 0,
		}, c)
	case topology.Binding:
		return m.removeBinding(ctx, o)
	case topology.Policy:
		return m.removePolicy(ctx, o)
	default:
		return fmt.Errorf("a %T cannot be deleted", c.Before)
	}
}

// removeQueue deletes a queue for a change. A queue that must be empty is proved empty first, as
// the counts of the broker are up to 5 seconds old. When it deletes a classic queue, the broker
// also checks that no message is ready and that there are no consumers; of a message that a client
// holds it does not ask. For quorum queues and streams it has no conditions. A message that is
// published by the queue's name between the proof and the deletion can be lost: there is no known
// protection against that.
func (m *Client) removeQueue(ctx context.Context, q topology.Queue, only amqp.Conditions, c plan.Change) error {
	must := only
	must.Empty = only.Empty && !c.ProvedEmpty
	if q.Type() == topology.Classic {
		if must.Empty {
			// A queue that is not in the list can be on a node that is down: the broker says so.
			if _, err := m.proveCounts(ctx, q, amqp.Conditions{Empty: true}); err != nil {
				return err
			}
		}
	} else {
		// First: what comes to the queue between the proof that it is empty and the deletion is lost.
		if gone, err := m.proveWhole(ctx, q); gone || err != nil {
			return err
		}
		if must.Empty || must.Unused {
			gone, err := m.prove(ctx, q, must, c.Delays)
			if gone || err != nil {
				return err
			}
		}
		only = amqp.Conditions{}
	}
	if err := m.refuseSent(ctx, q.Name); err != nil {
		return err
	}
	if m.conn != nil {
		return m.conn.DeleteQueue(q.Name, only) // on this connection and no other, see UseAMQP
	}
	return done(m.with(ctx).DeleteQueue(m.vhost, q.Name,
		rabbithole.QueueDeleteOptions{IfEmpty: only.Empty, IfUnused: only.Unused}))
}

// refuseSent fails with ErrRefused while a run of a desk sends to a queue through an exchange of
// its own. What comes so between the proof and the deletion would go with the queue, also what a
// consumer has of it, and the run has its confirm. So this is the last look before the deletion.
func (m *Client) refuseSent(ctx context.Context, queue string) error {
	list, err := m.bindingsOf(ctx, queue)
	if err != nil {
		return err
	}
	if why := plan.DeskSends(queue, list); why != "" {
		return broker.Errorf(broker.ErrRefused, "the queue %s is in use: %s", queue, why)
	}
	return nil
}

// unbindDesks unbinds a queue from the exchanges through which runs of a desk send to it alone.
//
// Nothing is lost: such an exchange has no other binding, so the broker returns what comes to it
// after that, and the run keeps it in its hold. What has come before is in the queue, and is seen
// by the proof that it is empty. Where the deletion fails then, the run binds the queue again when
// it is resumed or returned.
func (m *Client) unbindDesks(ctx context.Context, queue string) error {
	list, err := m.bindingsOf(ctx, queue)
	if err != nil {
		return err
	}
	for _, b := range list {
		if _, _, sends := topology.DeskSender(b); sends {
			if err := m.removeBinding(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// bindingsOf returns the bindings of a queue; none if it is gone.
func (m *Client) bindingsOf(ctx context.Context, queue string) ([]topology.Binding, error) {
	var found []binding
	err := m.get(ctx, &found, "queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(queue)+"/bindings")
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bindings(found)
}

// removeBinding deletes a binding and no other between the same ends: a binding with the same key
// and other arguments may belong to a service.
func (m *Client) removeBinding(ctx context.Context, b topology.Binding) error {
	path := bindingsBetween(m.vhost, b)
	properties, err := m.findBinding(ctx, b, path)
	if properties == "" || err != nil {
		return err
	}
	defer m.census.cut()
	if m.conn != nil {
		// A 1 in JSON can be one of several integer types in AMQP. To the broker, a binding whose
		// integer has another type than the one in b is another binding.
		err := m.conn.Unbind(b)
		if err != nil || len(b.Arguments) == 0 {
			return err
		}
		if properties, err = m.findBinding(ctx, b, path); properties == "" || err != nil {
			return err
		}
	}
	return done(m.with(ctx).DeleteBinding(m.vhost, rabbithole.BindingInfo{
		Source: b.Source, Destination: b.Destination, DestinationType: b.DestinationType, PropertiesKey: properties,
	}))
}

// findBinding returns the name that the management API has for a binding, among those at path. It
// is empty if there is no such binding.
func (m *Client) findBinding(ctx context.Context, b topology.Binding, path string) (string, error) {
	var found []binding
	err := m.get(ctx, &found, path)
	if isGone(err) {
		return "", nil // one of its ends is gone, and the binding with it
	}
	if err != nil {
		return "", err
	}
	for _, f := range found {
		args, err := f.arguments()
		if err != nil {
			return "", err
		}
		if f.Key == b.Key && args.Equal(b.Arguments) {
			return f.PropertiesKey, nil
		}
	}
	return "", nil
}

func bindingsBetween(vhost string, b topology.Binding) string {
	kind := "q"
	if b.DestinationType == topology.ToExchange {
		kind = "e"
	}
	return "bindings/" + url.PathEscape(vhost) + "/e/" + url.PathEscape(b.Source) + "/" + kind + "/" +
		url.PathEscape(b.Destination)
}

// removePolicy deletes a policy. It first makes the policy match nothing: a deletion whose client
// is interrupted leaves the policy in effect, although it is gone from the list (80 of 106 on
// 4.3.6, 59 of 109 on 4.0.5, 51 of 79 on 3.10.8). See topology.Policy.Pending.
//
// An interrupted write may be stored nowhere and be in effect in the process of its queue alone.
// That process reads its policy again only when the stored policy changes: so the queue gets
// another policy first, which has no effect.
func (m *Client) removePolicy(ctx context.Context, p topology.Policy) error {
	m.policies.Lock()
	defer m.policies.Unlock()
	if err := m.stillConnected(); err != nil { // it may have waited for others
		return err
	}
	idle := topology.Policy{
		Name: p.Name, Pattern: "^" + regexp.QuoteMeta(p.Label.Queue) + "$", ApplyTo: "queues", Priority: aboveAll,
		Definition: topology.Arguments{topology.KeyMaxLength: int64(1 << 31)}, // the broker requires a definition
	}
	if p.Label.Queue != "" && (p.IsPending() || p.Pattern == "") {
		if err := m.putPolicy(ctx, idle.Pending()); err != nil {
			return err
		}
	}
	idle.Pattern = "(?!)" // nothing
	if err := m.putPolicy(ctx, idle.Pending()); err != nil {
		return err
	}
	return done(m.with(ctx).DeletePolicy(m.vhost, p.Name))
}

// aboveAll is a priority that no other policy is expected to have.
const aboveAll = 1 << 30
