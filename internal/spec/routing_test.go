package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// vhost routes messages as a broker does, over the objects of a topology: what
// RabbitMQ does with direct, fanout and headers exchanges, alternate exchanges
// and dead-lettering, and nothing else. Topic exchanges are where publishers
// begin; no message comes back to one.
type vhost struct {
	topology.Compiled
	// floatsMatch says that a header 1.0 matches the integer 1, as up to 3.13.
	floatsMatch bool
}

// message is what routing looks at.
type message struct {
	key     string
	cc      []string
	headers map[string]any
}

// keys gives the routing keys of m: its own, and those of its header CC.
func (m message) keys() []string { return append([]string{m.key}, m.cc...) }

func (v vhost) exchange(name string) (topology.Exchange, bool) {
	i := slices.IndexFunc(v.Exchanges, func(e topology.Exchange) bool { return e.Name == name })
	if i < 0 {
		return topology.Exchange{}, false
	}
	return v.Exchanges[i], true
}

// publish gives the queues that get m, in order. A queue that is reached on
// several ways gets one copy.
func (v vhost) publish(exchange string, m message) []string {
	queues := map[string]bool{}
	v.route(exchange, m, map[string]bool{}, queues)
	return slices.Sorted(maps.Keys(queues))
}

// route adds to queues what exchange leads to. An exchange is visited once per
// message; its alternate is used only if none of its bindings matches.
func (v vhost) route(name string, m message, visited, queues map[string]bool) {
	e, ok := v.exchange(name)
	if !ok || visited[name] {
		return
	}
	visited[name] = true
	matched := false
	for _, b := range v.Bindings {
		if b.Source != name || !v.matches(e.Type, b, m) {
			continue
		}
		matched = true
		if b.DestinationType == topology.ToQueue {
			queues[b.Destination] = true
		} else {
			v.route(b.Destination, m, visited, queues)
		}
	}
	if alternate, ok := e.Arguments[topology.ArgAlternateExchange].(string); ok && !matched {
		v.route(alternate, m, visited, queues)
	}
}

func (v vhost) matches(exchangeType string, b topology.Binding, m message) bool {
	switch exchangeType {
	case topology.Fanout:
		return true
	case topology.Direct:
		return slices.Contains(m.keys(), b.Key)
	case topology.Headers:
		return v.headersMatch(b.Arguments, m.headers)
	default:
		return false
	}
}

// headersMatch compares the headers that a binding names. Those that begin with
// x- are skipped, the mark of ownership among them. Integers of all widths are
// one type to the broker.
func (v vhost) headersMatch(want topology.Arguments, have map[string]any) bool {
	hits, misses := 0, 0
	for name, w := range want {
		if strings.HasPrefix(name, "x-") {
			continue
		}
		if h, ok := have[name]; ok && v.same(w, h) {
			hits++
		} else {
			misses++
		}
	}
	if want[topology.ArgMatch] == "any" {
		return hits > 0
	}
	return misses == 0
}

func (v vhost) same(want, have any) bool {
	switch h := have.(type) {
	case int8:
		return want == int64(h)
	case int32:
		return want == int64(h)
	case int64:
		return want == h
	case string:
		return want == h
	case float64:
		w, ok := want.(int64)
		return ok && v.floatsMatch && float64(w) == h
	default:
		return false
	}
}

// deadLetter gives the queues that get m when the queue of that name
// dead-letters it. A dead-letter routing key takes the place of the message's
// own keys and of CC; without one they stay.
func (v vhost) deadLetter(queue string, m message) []string {
	args := v.arguments(queue)
	exchange, ok := args[topology.ArgDeadLetterExchange].(string)
	if !ok {
		return nil
	}
	if key, ok := args[topology.ArgDeadLetterRoutingKey].(string); ok {
		m.key, m.cc = key, nil
	}
	return v.publish(exchange, m)
}

// arguments gives those of a queue, and those that its policy stands for.
func (v vhost) arguments(queue string) topology.Arguments {
	i := slices.IndexFunc(v.Queues, func(q topology.Queue) bool { return q.Name == queue })
	if i < 0 {
		return nil
	}
	args := v.Queues[i].Arguments
	for _, p := range v.Policies {
		if p.Name == topology.PolicyName(v.Name, queue) {
			for key, value := range p.Definition {
				args = args.With("x-"+key, value)
			}
		}
	}
	return args
}

// leadsTo gives all queues that any message could reach from exchange, whatever
// its keys and headers: every binding, and the alternate as well.
func (v vhost) leadsTo(exchange string, visited map[string]bool) []string {
	e, ok := v.exchange(exchange)
	if !ok || visited[exchange] {
		return nil
	}
	visited[exchange] = true
	var queues []string
	for _, b := range v.Bindings {
		switch {
		case b.Source != exchange:
		case b.DestinationType == topology.ToQueue:
			queues = append(queues, b.Destination)
		default:
			queues = append(queues, v.leadsTo(b.Destination, visited)...)
		}
	}
	if alternate, ok := e.Arguments[topology.ArgAlternateExchange].(string); ok {
		queues = append(queues, v.leadsTo(alternate, visited)...)
	}
	return queues
}
