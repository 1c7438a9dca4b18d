// Package route says where RabbitMQ routes a message: which queues a publish reaches and through
// which bindings, where a dead letter goes, what is lost, and why.
//
// It works on any set of objects: what a topology file compiles to, what was read from a broker,
// or a definitions file. It follows the source of RabbitMQ 3.10.8, 4.0.5 and 4.3.6, and a
// property test holds it equal to those brokers. What the objects do not tell is reported as
// unknown and never guessed: exchanges of plugins, and values whose AMQP type decides.
//
// The package is pure. It imports policy, because the policies in effect decide about alternate
// exchanges and dead-lettering.
package route

import (
	"slices"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/topology"
)

// Router routes messages over the objects of one virtual host. It is an index of them, built
// once, and may be used by several goroutines at once.
type Router struct {
	dialect   dialect
	exchanges map[string]*exchange
	queues    map[string]queue
}

// exchange is an exchange, its bindings, and where its messages go if none matches.
type exchange struct {
	topology.Exchange
	matcher   matcher // nil for a type that the router does not know
	bindings  []topology.Binding
	alternate string
	// hasAlternate is true if the exchange has an alternate exchange: "" is a name too.
	hasAlternate bool
	// policy names the policy that set the alternate exchange; empty is the argument.
	policy string
}

// queue is a queue, and where it dead-letters to.
type queue struct {
	topology.Queue
	deadLettering DeadLettering
	deadLetters   bool
}

// New returns a router for what state has. Its version decides between the rules of RabbitMQ's
// lines; empty is the newest one. The exchanges that every virtual host has are known without
// being listed.
func New(state topology.State) *Router {
	r := &Router{
		dialect: dialectOf(state), exchanges: map[string]*exchange{}, queues: map[string]queue{},
	}
	policies := policy.All(state)
	for _, e := range slices.Concat(builtIn(), state.Have.Exchanges) {
		x := &exchange{Exchange: e}
		x.alternate, x.policy, x.hasAlternate = policies.Alternate(e)
		r.exchanges[e.Name] = x
	}
	for _, b := range state.Have.Bindings {
		if x := r.exchanges[b.Source]; x != nil && b.Source != "" {
			x.bindings = append(x.bindings, b)
		}
	}
	for _, x := range r.exchanges {
		x.matcher = newMatcher(x.Type, x.bindings, r.dialect)
	}
	for _, q := range state.Have.Queues {
		d, ok := r.dialect.deadLettering(policies, q)
		r.queues[q.Name] = queue{Queue: q, deadLettering: d, deadLetters: ok}
	}
	return r
}

// builtIn returns the exchanges that every virtual host has. The default exchange has a binding
// for each queue; the router does not store them.
func builtIn() []topology.Exchange {
	return append(topology.BuiltInExchanges(), topology.TraceExchange(),
		topology.Exchange{Type: topology.Direct, Durable: true})
}

// Reachable returns all queues that some message could reach from an exchange, whatever its keys
// and headers: through every binding and every alternate exchange. The names are sorted.
func (r *Router) Reachable(exchange string) []string {
	queues := map[string]bool{}
	if exchange == "" {
		for q := range r.queues {
			queues[q] = true
		}
	} else {
		r.reachable(exchange, map[string]bool{}, queues)
	}
	return sortedNames(queues)
}

// reachable adds what can be reached from an exchange that another one leads to. The default
// exchange has no bindings there: as an alternate it routes to no queue, and on to its own
// alternate exchange, which a policy for all exchanges gives it (measured).
func (r *Router) reachable(name string, seen, queues map[string]bool) {
	x := r.exchanges[name]
	if x == nil || seen[name] {
		return
	}
	seen[name] = true
	for _, b := range x.bindings {
		if b.DestinationType == topology.ToExchange {
			r.reachable(b.Destination, seen, queues)
		} else if _, ok := r.queues[b.Destination]; ok {
			queues[b.Destination] = true
		}
	}
	if x.hasAlternate {
		r.reachable(x.alternate, seen, queues)
	}
}

func sortedNames(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Alternate returns the alternate exchange of an exchange, by its argument or by the policy in
// effect.
func (r *Router) Alternate(exchange string) (string, bool) {
	x := r.exchanges[exchange]
	if x == nil {
		return "", false
	}
	return x.alternate, x.hasAlternate
}
