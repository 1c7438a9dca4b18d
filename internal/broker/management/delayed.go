package management

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/topology"
)

// pluginExchange is what RabbitMQ tells of an exchange, of which the plugin for delayed messages
// adds how many messages wait in it on the node that answers
// (rabbit_exchange_type_delayed_message.erl).
type pluginExchange struct {
	Name    string `json:"name"`
	Delayed *int64 `json:"messages_delayed"`
	Stats   *struct {
		Published *int64 `json:"publish_in"`
	} `json:"message_stats"`
}

// Delayed is what one node tells of an exchange of the plugin for delayed messages.
type Delayed struct {
	// Node is the node that answered.
	Node string
	// Held is how many messages wait on that node. Negative: it does not tell.
	Held int64
	// Published is how many messages were published to the exchange on all nodes, as far as their
	// channels have reported it, which they do every 5 s by default. Zero also where RabbitMQ counts
	// none, see CountsPublishes.
	Published int64
}

// Delayed asks the node behind the URL for an exchange of the plugin. It fails with ErrNotFound if
// there is no such exchange, and with ErrRefused if different nodes answer.
func (m *Client) Delayed(ctx context.Context, exchange string) (Delayed, error) {
	before, err := m.node(ctx)
	if err != nil {
		return Delayed{}, err
	}
	var e pluginExchange
	if err := m.get(ctx, &e, "exchanges/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(exchange)); err != nil {
		return Delayed{}, err
	}
	// The answer does not name its node. Behind a load balancer it may be that of another node.
	after, err := m.node(ctx)
	if err != nil {
		return Delayed{}, err
	}
	if before != after {
		return Delayed{}, fmt.Errorf("%w: %s leads to %s and to %s; pass the URL of each node", broker.ErrRefused,
			m.api.String(), before, after)
	}
	d := Delayed{Node: before, Held: -1}
	if e.Delayed != nil {
		d.Held = *e.Delayed
	}
	if e.Stats != nil && e.Stats.Published != nil {
		d.Published = *e.Stats.Published
	}
	return d, nil
}

// CountsPublishes returns the name of the node that answers, and whether it counts what is
// published: not with management.rates_mode = none, nor where statistics are switched off.
func (m *Client) CountsPublishes(ctx context.Context) (node string, counts bool, err error) {
	c, err := m.collecting(ctx)
	return c.Node, c.Rates != "none" && !c.Off, err
}

// node returns the name of the node that answers.
func (m *Client) node(ctx context.Context) (string, error) {
	var o struct {
		Node string `json:"node"`
	}
	if err := m.get(ctx, &o, "overview?disable_stats=true&columns=node"); err != nil {
		return "", err
	}
	if o.Node == "" {
		return "", m.notRabbitMQ("it reports no node")
	}
	return o.Node, nil
}

// Nodes returns the names of the nodes of the cluster, those that are down included, and of those
// that are not. The user needs the tag monitoring.
func (m *Client) Nodes(ctx context.Context) (all, running []string, err error) {
	var nodes []struct {
		Name    string `json:"name"`
		Running bool   `json:"running"`
	}
	err = m.get(ctx, &nodes, "nodes?columns=name,running")
	for _, n := range nodes {
		all = append(all, n.Name)
		if n.Running {
			running = append(running, n.Name)
		}
	}
	return all, running, err
}

// readDelayed reads how many messages wait in exchanges of the plugin for delayed messages, on the
// node that answers.
func (m *Client) readDelayed(ctx context.Context, state topology.State, live *topology.Live) error {
	if !slices.ContainsFunc(state.Have.Exchanges, func(e topology.Exchange) bool {
		return e.Type == topology.DelayedMessage
	}) {
		return nil
	}
	var exchanges []pluginExchange
	if err := m.get(ctx, &exchanges, "exchanges/"+url.PathEscape(m.vhost)); err != nil {
		return err
	}
	live.Delayed = map[string]int64{}
	for _, e := range exchanges {
		if e.Delayed != nil {
			live.Delayed[e.Name] = *e.Delayed
		}
	}
	return nil
}
