// Package survey says what each queue of a virtual host is for, and where its failed messages end.
//
// What the objects say decides: bindings, the keys under which messages arrive, TTLs, and where
// package route finds that dead letters go. Names decide only where the objects do not. The audit,
// the import and the graph all ask this package, so that they agree.
//
// The package is pure.
package survey

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/topology"
)

// Survey is the objects of a virtual host with what they are for.
type Survey struct {
	// State has a type for every queue.
	State    topology.State
	Router   *route.Router
	Policies *policy.Set
	// Queues and Exchanges are sorted by name. The exchanges that every virtual host has are
	// among them.
	Queues    []*Queue
	Exchanges []*Exchange
	// Outcomes is for how many choices of RabbitMQ the fates were computed; see [Queue.Fate]. Zero:
	// they were not asked for.
	Outcomes int

	queues    map[string]*Queue
	exchanges map[string]*Exchange
}

// Queue is a queue with what it is for.
type Queue struct {
	topology.Queue
	// Args are the arguments in effect, with those of policies.
	Args topology.Arguments
	// To is where the queue dead-letters to, if DeadLetters.
	To          route.DeadLettering
	DeadLetters bool
	Bindings    []topology.Binding

	// Role is what the queue is for: [topology.RoleWork], RoleDeadLetter, RoleRetry, RoleUnroutable
	// (it gets what no binding matches), RoleFailed, RoleHold, RoleParked, or one of this package.
	Role topology.Role
	// Made is true for what dlxctl generated.
	Made bool
	// Arrivals are the keys of the messages that come to the queue.
	Arrivals []Keys
	// Hops are where its dead letters go, by the keys of the messages.
	Hops []Hop
	// From are the other queues whose dead letters come to this one, sorted.
	From []string
	// Ways are what happens to its messages that fail.
	Ways []Way

	host    *Survey
	fate    Fate
	arrived map[Keys]bool
	from    map[string]bool
	// business is true if messages that are not dead letters come by bindings.
	business bool
}

// Exchange is an exchange with its bindings.
type Exchange struct {
	topology.Exchange
	Out, In      []topology.Binding
	Alternate    string
	HasAlternate bool
	// AlternateBy names the policy that set the alternate exchange; empty is the argument.
	AlternateBy string
	// DeadLettersOf are the queues whose dead-letter exchange it is.
	DeadLettersOf []string
	// AlternateOf are the exchanges whose alternate exchange it is.
	AlternateOf []string
	// Keyed are the dead-letter routing keys with which queues dead-letter to it.
	Keyed map[string]bool
	// BuiltIn is true for exchanges that every virtual host has.
	BuiltIn bool

	words [][]string // the keys of Out, at their dots
}

// New surveys a virtual host. It does not change the state.
func New(state topology.State) *Survey {
	s := &Survey{State: state, queues: map[string]*Queue{}, exchanges: map[string]*Exchange{}}
	s.State.Have = typed(state.Have)
	s.Router, s.Policies = route.New(s.State), policy.All(s.State)
	s.addExchanges()
	s.addQueues()
	for _, b := range s.State.Have.Bindings {
		if e := s.exchanges[b.Source]; e != nil {
			e.Out = append(e.Out, b)
		}
		if b.DestinationType == topology.ToExchange {
			if e := s.exchanges[b.Destination]; e != nil {
				e.In = append(e.In, b)
			}
		} else if q := s.queues[b.Destination]; q != nil {
			q.Bindings = append(q.Bindings, b)
		}
	}
	s.computeArrivals()
	s.setKnown()
	s.setRoles()
	s.follow()
	return s
}

// Queue returns a queue, or nil if there is none of that name.
func (s *Survey) Queue(name string) *Queue { return s.queues[name] }

// Exchange returns an exchange, or nil if there is none of that name.
func (s *Survey) Exchange(name string) *Exchange { return s.exchanges[name] }

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

func (s *Survey) addExchanges() {
	for _, e := range append(topology.BuiltInExchanges(), topology.Exchange{Type: topology.Direct, Durable: true}) {
		s.exchanges[e.Name] = &Exchange{Exchange: e, BuiltIn: true}
	}
	for _, e := range s.State.Have.Exchanges {
		if s.exchanges[e.Name] == nil {
			s.exchanges[e.Name] = &Exchange{Exchange: e}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.exchanges)) {
		e := s.exchanges[name]
		e.Keyed = map[string]bool{}
		s.Exchanges = append(s.Exchanges, e)
		e.Alternate, e.AlternateBy, e.HasAlternate = s.Policies.Alternate(e.Exchange)
	}
	for _, e := range s.Exchanges {
		if to := s.exchanges[e.Alternate]; e.HasAlternate && to != nil {
			to.AlternateOf = append(to.AlternateOf, e.Name)
		}
	}
}

func (s *Survey) addQueues() {
	for _, declared := range s.State.Have.Queues {
		q := &Queue{
			Queue: declared, Args: s.Policies.Effective(declared), host: s, arrived: map[Keys]bool{}, from: map[string]bool{},
		}
		q.To, q.DeadLetters = s.Router.DeadLettering(declared.Name)
		s.Queues, s.queues[declared.Name] = append(s.Queues, q), q
	}
	slices.SortFunc(s.Queues, func(a, b *Queue) int { return cmp.Compare(a.Name, b.Name) })
	for _, q := range s.Queues {
		if e := s.exchanges[q.To.Exchange]; q.DeadLetters && e != nil {
			e.DeadLettersOf = append(e.DeadLettersOf, q.Name)
			if q.To.HasKey {
				e.Keyed[q.To.Key] = true
			}
		}
	}
}

// Losses returns the settings by which the queue gives up messages that no consumer has taken.
func (q *Queue) Losses() []policy.Loss { return policy.Losses(q.Queue, q.Args) }

// DropsHead reports whether the queue drops its oldest messages when it is full.
func (q *Queue) DropsHead() bool { return policy.OverflowOf(q.Queue, q.Args) == policy.DropHead }

// Refuses reports whether the queue refuses messages when it is full.
func (q *Queue) Refuses() bool {
	overflow := policy.OverflowOf(q.Queue, q.Args)
	return overflow != "" && overflow != policy.DropHead && q.Type() != topology.Stream
}

// Business reports whether messages that are not dead letters come to the queue by its bindings.
func (q *Queue) Business() bool { return q.business }

// Temporary reports whether a queue is made for one connection or one consumer: its loss is meant.
func (q *Queue) Temporary() bool { return q.Exclusive || q.AutoDelete }

// Delivers returns how often a message may be returned before the queue gives it up, and whether
// that is the broker's default. It reports false if there is no such limit on this broker, or if
// it is a default and the version is not known.
func (s *Survey) Delivers(q *Queue) (limit int64, byDefault, ok bool) {
	_, set := q.Args[topology.ArgDeliveryLimit]
	limit, ok = policy.DeliveryLimit(s.State, q.Queue, q.Args)
	if limit >= topology.Unlimited {
		return 0, false, false
	}
	return limit, !set, ok
}
