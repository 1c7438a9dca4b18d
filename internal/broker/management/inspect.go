package management

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// The objects of the management API, as far as they matter here. Arguments are any, as the broker
// writes an empty object as [] in places.
type (
	overview struct {
		Version string         `json:"rabbitmq_version"`
		Cluster string         `json:"cluster_name"`
		Types   []exchangeType `json:"exchange_types"`
	}
	exchangeType struct {
		Name string `json:"name"`
	}
	exchange struct {
		Name       string `json:"name"`
		Type       string `json:"type"`
		Durable    bool   `json:"durable"`
		AutoDelete flag   `json:"auto_delete"`
		Internal   bool   `json:"internal"`
		Arguments  any    `json:"arguments"`
		Policy     string `json:"policy"` // the policy in effect
	}
	queue struct {
		Name           string `json:"name"`
		Type           string `json:"type"`
		Durable        bool   `json:"durable"`
		AutoDelete     flag   `json:"auto_delete"`
		Exclusive      bool   `json:"exclusive"`
		Arguments      any    `json:"arguments"`
		Ready          int64  `json:"messages_ready"`
		Unacknowledged int64  `json:"messages_unacknowledged"`
		// Messages is the number of all messages: messages that a quorum queue is handing over to
		// its dead-letter exchange, or delays (4.3), count here, and nowhere else. Nil: the broker
		// does not report it, as for streams, or for a queue whose node is down.
		Messages *int64 `json:"messages"`
		// Policy is the name of the policy in effect. Even without statistics the list has it for
		// every queue, though not its definition.
		Policy string `json:"policy"`
	}
	binding struct {
		Source          string `json:"source"`
		Destination     string `json:"destination"`
		DestinationType string `json:"destination_type"`
		Key             string `json:"routing_key"`
		// Arguments are decoded when they are needed: there are many bindings, and almost all have
		// the same.
		Arguments     json.RawMessage `json:"arguments"`
		PropertiesKey string          `json:"properties_key"`
	}
	policy struct {
		Name       string   `json:"name"`
		Pattern    string   `json:"pattern"`
		ApplyTo    string   `json:"apply-to"`
		Priority   priority `json:"priority"`
		Definition any      `json:"definition"`
	}
	flagState struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
)

// held returns how many messages the queue holds. The counts are not taken at one moment: the
// larger one counts.
func (q queue) held() int64 {
	if q.Messages == nil {
		return q.Ready + q.Unacknowledged
	}
	return max(*q.Messages, q.Ready+q.Unacknowledged)
}

// flag is a boolean that 4.0 stores as "undefined" where an import left it out.
type flag bool

// UnmarshalJSON decodes everything except true as false.
func (f *flag) UnmarshalJSON(b []byte) error {
	*f = string(b) == "true"
	return nil
}

// listing is what was read, before it becomes a state.
type listing struct {
	overview   overview
	exchanges  []exchange
	queues     []queue
	bindings   []binding
	policies   []policy
	operator   []policy // nil where the user may not read them
	flags      []flagState
	alarm      string
	statistics []statistic
	have       topology.Topology // made of the lists, not sorted
}

// Inspect reads the virtual host: all its exchanges, queues, bindings and policies, whether dlxctl
// manages them or not, and what the queues hold. It leaves out the default exchange and its
// bindings, which cannot be changed. The user needs the tag management and any permission in the
// virtual host.
//
// The lists are read at the same time, not at one moment: an object that is created or deleted
// meanwhile may be in one of them only.
func (m *Client) Inspect(ctx context.Context) (topology.State, error) {
	return m.inspect(ctx, m.Begin(ctx), func(ctx context.Context) ([]statistic, error) {
		return m.listStatistics(ctx, queueStatistics)
	})
}

// InspectFor reads the same as Inspect, but statistics only of these queues. The consumers of the
// others are unknown, and so are their sizes and ages. ReadStatistics reads more of them. The lists
// are those of begun, unless it is nil or of another virtual host.
func (m *Client) InspectFor(ctx context.Context, begun *Reading, queues []string) (topology.State, error) {
	if begun == nil || begun.vhost != m.vhost {
		begun = m.Begin(ctx)
	}
	return m.inspect(ctx, begun, func(ctx context.Context) ([]statistic, error) {
		return m.statistics(ctx, queues, fewQueues, queueStatistics)
	})
}

// ReadPolicies returns state with the policies that the virtual host has now. Which of them is in
// effect on which object is not read.
func (m *Client) ReadPolicies(ctx context.Context, state topology.State) (topology.State, error) {
	var l listing
	vhost := url.PathEscape(m.vhost)
	err := together([]func() error{
		func() error { return m.get(ctx, &l.policies, "policies/"+vhost) },
		func() error { return ifPermitted(m.get(ctx, &l.operator, "operator-policies/"+vhost)) },
	})
	if err != nil {
		return topology.State{}, err
	}
	if what := l.malformed(); what != "" {
		return topology.State{}, m.notRabbitMQ(what)
	}
	state.QueuePolicies, state.ExchangePolicies = nil, nil
	if state.Have.Policies, err = policies(l.policies); err == nil {
		state.OperatorPolicies, err = policies(l.operator)
	}
	if err != nil {
		return topology.State{}, fmt.Errorf("read the policies of vhost %q: %w", m.vhost, err)
	}
	return state, nil
}

func (m *Client) inspect(ctx context.Context, begun *Reading,
	statistics func(context.Context) ([]statistic, error),
) (topology.State, error) {
	l, err := m.list(ctx, begun, statistics)
	if err != nil {
		return topology.State{}, err
	}
	l.have.Sort()
	down, err := m.down(ctx, l)
	if err != nil {
		return topology.State{}, err
	}
	operator, err := policies(l.operator)
	if err != nil {
		return topology.State{}, fmt.Errorf("read the operator policies of vhost %q: %w", m.vhost, err)
	}
	types := text.Each(l.overview.Types, func(t exchangeType) string { return t.Name })
	return topology.State{
		ExchangeTypes: types, OperatorPolicies: operator,
		Version: l.overview.Version, Cluster: l.overview.Cluster, VHost: m.vhost,
		Have: l.have, Down: down, Usage: l.usage(), QueuePolicies: l.queuePolicies(), ExchangePolicies: l.exchangePolicies(),
		Alarm:         l.alarm,
		DisabledFlags: l.disabledFlags(),
	}, nil
}

func (l listing) exchangePolicies() map[string]string {
	out := map[string]string{}
	for _, e := range l.exchanges {
		if e.Policy != "" {
			out[e.Name] = e.Policy
		}
	}
	return out
}

func (l listing) disabledFlags() []string {
	var out []string
	for _, f := range l.flags {
		if f.State == "disabled" {
			out = append(out, f.Name)
		}
	}
	return out
}

func (l listing) queuePolicies() map[string]string {
	out := map[string]string{}
	for _, q := range l.queues {
		if q.Policy != "" {
			out[q.Name] = q.Policy
		}
	}
	return out
}

// queueTotals asks for queues with how many messages they hold, and no other statistics. That is
// cheap, and current: with statistics the broker answers from a cache.
const queueTotals = "?disable_stats=true&enable_queue_totals=true"

// What a state has of queues and bindings. The rest is a quarter of these lists, which are long.
const (
	queueColumns = "&columns=name,type,durable,auto_delete,exclusive,arguments,policy," +
		"messages,messages_ready,messages_unacknowledged"
	bindingColumns = "?columns=source,destination,destination_type,routing_key,arguments"
)

// Reading are the lists of a virtual host while they are read; see Begin.
type Reading struct {
	vhost string
	lists listing       // without statistics; not to be read before done
	err   error         // the first of those of the lists
	done  chan struct{} // closed when all were read
}

// featureFlags lists the feature flags of the broker. Before 3.13 only administrators may read it.
const featureFlags = "feature-flags?columns=name,state"

// Begin begins to read all lists at once, until ctx ends, and does not wait for them.
func (m *Client) Begin(ctx context.Context) *Reading {
	r := &Reading{vhost: m.vhost, done: make(chan struct{})}
	l, vhost := &r.lists, url.PathEscape(m.vhost)
	// The first is the one whose error says most about the connection.
	reads := []func() error{
		func() (err error) { l.overview, err = m.overview(ctx); return err },
		making(ctx, m, &l.exchanges, "exchanges/"+vhost+"?disable_stats=true", &l.have.Exchanges, exchanges),
		making(ctx, m, &l.queues, "queues/"+vhost+queueTotals+queueColumns, &l.have.Queues, queues),
		making(ctx, m, &l.bindings, "bindings/"+vhost+bindingColumns, &l.have.Bindings, bindings),
		making(ctx, m, &l.policies, "policies/"+vhost, &l.have.Policies, policies),
		func() error { return ifPermitted(m.get(ctx, &l.operator, "operator-policies/"+vhost)) },
		func() error { return ifPermitted(m.get(ctx, &l.flags, featureFlags)) },
		func() (err error) { l.alarm, err = m.alarm(ctx); return err },
		func() error { return m.addressable(ctx) }, // the last: it relies on that there is the virtual host
	}
	go func() {
		defer close(r.done)
		r.err = together(reads)
	}()
	return r
}

// making returns a read of a list, of which objects are made as soon as it is there: longer lists
// are still being read then.
func making[T, O any](ctx context.Context, m *Client, list *[]T, path string, objects *[]O,
	of func([]T) ([]O, error),
) func() error {
	return func() error {
		if err := m.get(ctx, list, path); err != nil {
			return err
		}
		var err error
		if *objects, err = of(*list); err != nil {
			return fmt.Errorf("read vhost %q: %w", m.vhost, err)
		}
		return nil
	}
}

// list reads statistics, and waits for the lists.
func (m *Client) list(ctx context.Context, begun *Reading,
	statistics func(context.Context) ([]statistic, error),
) (listing, error) {
	found, err := statistics(ctx)
	<-begun.done
	l := begun.lists
	if version := l.overview.Version; version != "" {
		if err := m.endpoint.Check(version, l.overview.Cluster); err != nil {
			return listing{}, err
		}
	}
	if err = cmp.Or(begun.err, err); err != nil {
		return listing{}, err
	}
	l.statistics = found
	if what := l.malformed(); what != "" {
		return listing{}, m.notRabbitMQ(what)
	}
	return l, nil
}

// together does all at the same time, and returns the first error in their order.
func together(reads []func() error) error {
	errs := make([]error, len(reads))
	var wg sync.WaitGroup
	for i, read := range reads {
		wg.Go(func() { errs[i] = read() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// malformed returns what no broker would have answered. To treat it as absent could make a queue
// look empty, or unused.
func (l listing) malformed() string {
	for _, e := range l.exchanges {
		if e.Type == "" {
			return "it lists an exchange without a type"
		}
	}
	for _, q := range l.queues {
		switch {
		case q.Name == "":
			return "it lists a queue without a name"
		case q.Ready < 0 || q.Unacknowledged < 0 || q.Messages != nil && *q.Messages < 0:
			return "it lists a queue with a negative number of messages"
		}
	}
	for _, b := range l.bindings {
		if b.Destination == "" || b.DestinationType != topology.ToQueue && b.DestinationType != topology.ToExchange {
			return "it lists a binding without a destination"
		}
	}
	for _, p := range slices.Concat(l.policies, l.operator) {
		if p.Name == "" {
			return "it lists a policy without a name"
		}
	}
	for _, q := range l.statistics {
		switch {
		case q.Name == "":
			return "it lists the statistics of a queue without a name"
		case q.Consumers != nil && *q.Consumers < 0:
			return "it lists a queue with a negative number of consumers"
		}
	}
	return ""
}

// ifPermitted ignores that the user may not read what only leads to warnings.
func ifPermitted(err error) error {
	if errors.Is(err, broker.ErrForbidden) || errors.Is(err, broker.ErrUnauthorized) {
		return nil
	}
	return err
}

func (m *Client) overview(ctx context.Context) (overview, error) {
	var o overview
	if err := m.get(ctx, &o, "overview?disable_stats=true&columns=rabbitmq_version,cluster_name,exchange_types"); err != nil {
		return overview{}, err
	}
	if o.Version == "" {
		return overview{}, m.notRabbitMQ("it reports no version of RabbitMQ")
	}
	return o, nil
}

// usage returns what each queue holds, and how many consumers it has.
func (l listing) usage() map[string]topology.Usage {
	usage := make(map[string]topology.Usage, len(l.queues))
	for _, q := range l.queues {
		usage[q.Name] = topology.Usage{
			Ready: q.Ready, Unacknowledged: q.held() - q.Ready, Other: q.held() - q.Ready - q.Unacknowledged,
			Uncounted: q.Messages == nil, ConsumersUnknown: true,
		}
	}
	addStatistics(usage, l.statistics)
	return usage
}

// exchanges returns exchanges in canonical form, without the default exchange.
func exchanges(list []exchange) ([]topology.Exchange, error) {
	out := slices.Grow([]topology.Exchange(nil), len(list))
	for _, e := range list {
		if e.Name == "" {
			continue
		}
		args, err := arguments(e.Arguments)
		if err != nil {
			return nil, fmt.Errorf("exchange %q: %w", e.Name, err)
		}
		out = append(out, topology.Exchange{
			Name: e.Name, Type: e.Type, Durable: e.Durable,
			AutoDelete: bool(e.AutoDelete), Internal: e.Internal, Arguments: args,
		})
	}
	return out, nil
}

// queues returns queues in canonical form.
func queues(list []queue) ([]topology.Queue, error) {
	out := slices.Grow([]topology.Queue(nil), len(list))
	for _, q := range list {
		args, err := arguments(q.Arguments)
		if err != nil {
			return nil, fmt.Errorf("queue %q: %w", q.Name, err)
		}
		if q.Type != "" {
			args = args.With(topology.ArgQueueType, q.Type)
		}
		out = append(out, topology.Queue{
			Name: q.Name, Durable: q.Durable, AutoDelete: bool(q.AutoDelete),
			Exclusive: q.Exclusive, Arguments: args,
		})
	}
	return out, nil
}

// bindings returns bindings in canonical form, without those of the default exchange.
func bindings(list []binding) ([]topology.Binding, error) {
	out := slices.Grow([]topology.Binding(nil), len(list))
	read := map[string]topology.Arguments{} // by their text; arguments are never changed in place
	for _, b := range list {
		if b.Source == "" {
			continue
		}
		args, ok := read[string(b.Arguments)]
		if !ok {
			var err error
			if args, err = b.arguments(); err != nil {
				return nil, fmt.Errorf("binding from %q to %q: %w", b.Source, b.Destination, err)
			}
			read[string(b.Arguments)] = args
		}
		out = append(out, topology.Binding{
			Source: b.Source, Destination: b.Destination, DestinationType: b.DestinationType,
			Key: b.Key, Arguments: args,
		})
	}
	return out, nil
}

// policies returns policies in canonical form.
func policies(list []policy) ([]topology.Policy, error) {
	var out []topology.Policy
	for _, p := range list {
		definition, err := arguments(p.Definition)
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", p.Name, err)
		}
		out = append(out, topology.Policy{
			Name: p.Name, Pattern: p.Pattern, ApplyTo: p.ApplyTo, Priority: int64(p.Priority), Definition: definition,
		})
	}
	return out, nil
}

// arguments returns the binding's arguments in canonical form.
func (b binding) arguments() (topology.Arguments, error) {
	if b.Arguments == nil {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(b.Arguments))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if table, ok := v.(map[string]any); ok {
		return topology.CanonicalBinding(table)
	}
	return arguments(v)
}

// arguments returns arguments in canonical form. The broker writes empty arguments as {}, [] or
// null.
func arguments(v any) (topology.Arguments, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return topology.Canonical(v)
	case []any:
		if len(v) == 0 {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("its arguments are not an object: %s", broker.OneLine(fmt.Sprint(v)))
}
