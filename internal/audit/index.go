package audit

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// index is the objects of a virtual host with the facts that rules share, each computed once.
type index struct {
	in       Input
	state    topology.State
	router   *route.Router
	policies *policy.Set

	queues    []*queue // sorted by name
	exchanges []*exchange
	byName    map[string]*queue
	exchange  map[string]*exchange
	// matching is, by queue, the policies that match it, the one with the highest priority first.
	matching map[string][]topology.Policy
}

// queue is a queue with what an audit knows about it.
type queue struct {
	topology.Queue
	// args are the arguments in effect, with those of policies.
	args        topology.Arguments
	policy      topology.Policy
	hasPolicy   bool
	operator    topology.Policy
	hasOperator bool
	to          route.DeadLettering
	deadLetters bool
	bindings    []topology.Binding

	role role
	// made is true for what dlxctl made.
	made bool
	// arrivals are the keys of the messages that come to the queue.
	arrivals []keys
	arrived  map[keys]bool
	// hops are where its dead letters go, by the keys of the messages.
	hops []hop
	// from are the other queues whose dead letters come to this one.
	from map[string]bool
	// ways are what happens to its messages that fail.
	ways []way
}

// exchange is an exchange with its bindings.
type exchange struct {
	topology.Exchange
	out, in      []topology.Binding
	alternate    string
	hasAlternate bool
	// alternateBy names the policy that set the alternate exchange; empty is the argument.
	alternateBy string
	// deadLettersOf are the queues whose dead-letter exchange it is.
	deadLettersOf []string
	// alternateOf are the exchanges whose alternate exchange it is.
	alternateOf []string
	// keyed are the dead-letter routing keys with which queues dead-letter to it.
	keyed map[string]bool
	// words are the keys of the bindings, byFirst the bindings by their first word, and any those
	// that begin with a wildcard or are empty.
	words   [][]string
	byFirst map[string][]int
	any     []int
	// builtIn is true for exchanges that every virtual host has.
	builtIn bool
}

// newIndex computes the facts of a virtual host. It does not change the input.
func newIndex(in Input) *index {
	x := &index{
		in: in, state: in.State, byName: map[string]*queue{}, exchange: map[string]*exchange{},
		matching: map[string][]topology.Policy{},
	}
	x.state.Have = typed(in.State.Have)
	x.router, x.policies = route.New(x.state), policy.All(x.state)
	x.addExchanges()
	x.addQueues()
	for _, b := range x.state.Have.Bindings {
		if e := x.exchange[b.Source]; e != nil {
			e.out = append(e.out, b)
		}
		if b.DestinationType == topology.ToExchange {
			if e := x.exchange[b.Destination]; e != nil {
				e.in = append(e.in, b)
			}
		} else if q := x.byName[b.Destination]; q != nil {
			q.bindings = append(q.bindings, b)
		}
	}
	x.arrive()
	x.setRoles()
	x.follow()
	return x
}

// typed returns the objects with a type for every queue: a file that does not say one makes
// classic queues.
func typed(have topology.Topology) topology.Topology {
	have.Queues = slices.Clone(have.Queues)
	for i, q := range have.Queues {
		if q.Type() == "" {
			have.Queues[i].Arguments = q.Arguments.With(topology.ArgQueueType, topology.Classic)
		}
	}
	return have
}

func (x *index) addExchanges() {
	for _, name := range []string{"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"} {
		x.exchange[name] = &exchange{Exchange: topology.Exchange{Name: name, Durable: true}, builtIn: true}
	}
	for name, kind := range map[string]string{
		"": topology.Direct, "amq.direct": topology.Direct, "amq.fanout": topology.Fanout,
		"amq.topic": topology.Topic, "amq.headers": topology.Headers, "amq.match": topology.Headers,
	} {
		x.exchange[name].Type = kind
	}
	for _, e := range x.state.Have.Exchanges {
		if known := x.exchange[e.Name]; known == nil {
			x.exchange[e.Name] = &exchange{Exchange: e}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.exchange)) {
		e := x.exchange[name]
		e.keyed = map[string]bool{}
		x.exchanges = append(x.exchanges, e)
		if alternate, ok := e.Arguments[topology.ArgAlternateExchange].(string); ok {
			e.alternate, e.hasAlternate = alternate, true
		} else if p, ok := x.policies.ForExchange(e.Exchange); ok {
			if alternate, ok := p.Definition[topology.ArgAlternateExchange].(string); ok {
				e.alternate, e.hasAlternate, e.alternateBy = alternate, true, p.Name
			}
		}
	}
	for _, e := range x.exchanges {
		if to := x.exchange[e.alternate]; e.hasAlternate && to != nil {
			to.alternateOf = append(to.alternateOf, e.Name)
		}
	}
}

func (x *index) addQueues() {
	for _, declared := range x.state.Have.Queues {
		q := &queue{
			Queue: declared, args: x.policies.Effective(declared), arrived: map[keys]bool{}, from: map[string]bool{},
		}
		q.policy, q.hasPolicy = x.policies.For(declared)
		q.operator, q.hasOperator = x.policies.Operator(declared)
		q.to, q.deadLetters = x.router.DeadLettering(declared.Name)
		x.queues, x.byName[declared.Name] = append(x.queues, q), q
		for _, p := range x.state.Have.Policies {
			if x.policies.Matches(p, declared) {
				x.matching[declared.Name] = append(x.matching[declared.Name], p)
			}
		}
		slices.SortStableFunc(x.matching[declared.Name], func(a, b topology.Policy) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
		})
	}
	slices.SortFunc(x.queues, func(a, b *queue) int { return cmp.Compare(a.Name, b.Name) })
	for _, q := range x.queues {
		if e := x.exchange[q.to.Exchange]; q.deadLetters && e != nil {
			e.deadLettersOf = append(e.deadLettersOf, q.Name)
			if q.to.HasKey {
				e.keyed[q.to.Key] = true
			}
		}
	}
}

// number returns an argument in effect that is a number.
func (q *queue) number(argument string) (int64, bool) {
	n, ok := q.args[argument].(int64)
	return n, ok
}

// dropsHead reports whether the queue drops its oldest messages when it is full.
func (q *queue) dropsHead() bool {
	overflow, _ := q.args[topology.ArgOverflow].(string)
	limited := q.args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes)
	// A quorum queue takes reject-publish-dlx for drop-head, and logs a warning.
	return limited && (overflow == "" || overflow == dropHead ||
		overflow == rejectPublishDLX && q.Type() == topology.Quorum)
}

// refuses reports whether the queue refuses messages when it is full.
func (q *queue) refuses() bool {
	return q.args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes) && !q.dropsHead() &&
		q.Type() != topology.Stream
}

// The values of x-overflow that package topology has no names for.
const (
	dropHead         = "drop-head"
	rejectPublishDLX = "reject-publish-dlx"
)

// temporary reports whether a queue is made for one connection or one consumer: its loss is meant.
func (q *queue) temporary() bool { return q.Exclusive || q.AutoDelete }

// delivers returns how often a message may be returned before the queue gives it up, and whether
// that is the broker's default. It reports false if there is no such limit on this broker, or if
// it is a default and the version is not known.
func (x *index) delivers(q *queue) (limit int64, byDefault, ok bool) {
	_, set := q.args[topology.ArgDeliveryLimit]
	limit, ok = policy.DeliveryLimit(x.state, q.Queue, q.args)
	if limit >= topology.Unlimited {
		return 0, false, false
	}
	return limit, !set, ok
}

// argument says where the value of an argument in effect comes from, for evidence:
// "x-message-ttl 5000 (argument)".
func (q *queue) argument(name string) string {
	value := describe(name, q.args[name])
	if own, ok := q.Arguments[name]; ok && topology.FormatValue(own) == topology.FormatValue(q.args[name]) {
		return name + " " + value + " (argument)"
	}
	key := topology.PolicyKey(name)
	for _, p := range []struct {
		topology.Policy
		kind string
		ok   bool
	}{{q.policy, "policy", q.hasPolicy}, {q.operator, "operator policy", q.hasOperator}} {
		if v, set := p.Definition[key]; p.ok && set && topology.FormatValue(v) == topology.FormatValue(q.args[name]) {
			return key + " " + value + " (" + p.kind + " " + p.Name + ")"
		}
	}
	return name + " " + value
}
