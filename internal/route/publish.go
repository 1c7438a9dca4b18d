package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Message is what routing looks at: a message as it lies in a queue. It is never changed in
// place, so that one may be in several queues.
type Message struct {
	// Exchange is where the message was published, or dead-lettered to, last.
	Exchange string
	// Keys are the routing keys that were used last: the key of the publish, then those of the
	// headers CC and BCC. After a dead-letter routing key there is that one alone.
	Keys []string
	// Headers are those that a consumer would see, except that deaths have no time. The broker
	// has removed BCC.
	Headers map[string]any
	// Deaths is the header x-death as the broker counts it, in its order: the newest first.
	Deaths []Death

	bcc []string
}

// Result is where a message goes.
type Result struct {
	// Queues are the queues that get the message, sorted. Each gets one copy, also if several
	// bindings lead there.
	Queues []string
	// Message is the message as it lies in these queues.
	Message Message
	// Steps are the bindings and alternate exchanges that the message takes, exchange by
	// exchange.
	Steps []Step
	// Lost says why there are copies that reach no queue: all of them if Queues, Stuck and
	// Unknown are empty. A binding to an exchange that routes nothing loses no copy as long as
	// another way leads to a queue.
	Lost []End
	// Stuck says why a dead letter cannot leave its queue. With at-least-once dead-lettering the
	// broker keeps it there, invisible to consumers, and tries again.
	Stuck []End
	// Unknown is what the objects do not tell. The message may reach more queues.
	Unknown []Unknown
}

// Via is how a message goes on from an exchange.
type Via string

// The ways.
const (
	ViaBinding Via = "binding"
	// ViaDefault is the default exchange, which routes to the queue that the key names.
	ViaDefault Via = "default"
	// ViaAlternate is the alternate exchange of an exchange without a matching binding.
	ViaAlternate Via = "alternate"
)

// Step is one hop of a message, from the exchange Source to Destination.
type Step struct {
	Via Via
	// Binding is the binding. For the other ways it has source, destination and, with
	// ViaDefault, the key.
	topology.Binding
	// Policy names the policy that set the alternate exchange; empty is the argument.
	Policy string
}

// Cause is why a message reaches no queue.
type Cause string

// The causes.
const (
	// NoExchange: the exchange does not exist. A publisher's channel is closed.
	NoExchange Cause = "no-exchange"
	// Internal: clients may not publish to the exchange.
	Internal Cause = "internal-exchange"
	// BadHeader: CC or BCC is not a list. A publisher's channel is closed.
	BadHeader Cause = "bad-header"
	// NoBinding: no binding matches, and there is no alternate exchange.
	NoBinding Cause = "no-binding"
	// Circle: bindings lead from exchange to exchange in a circle, and never to a queue.
	Circle Cause = "circle"
	// NoQueue: the queue does not exist.
	NoQueue Cause = "no-queue"
	// NoDeadLettering: the queue has no dead-letter exchange.
	NoDeadLettering Cause = "no-dead-lettering"
	// Cycle: the message has died in the queue before, and no consumer has rejected it since.
	Cycle Cause = "cycle"
)

// End is where a copy of a message ends without a queue.
type End struct {
	Cause Cause
	// Exchange and Queue are where, as far as they apply. Queue is the one that does not exist,
	// that does not dead-letter, or that would be reached again.
	Exchange, Queue string
	// Header is the one with the wrong type.
	Header string
}

// String says why in words, as the end of a sentence.
func (e End) String() string {
	switch e.Cause {
	case NoExchange:
		return fmt.Sprintf("exchange %s does not exist", text.Name(e.Exchange))
	case Internal:
		return fmt.Sprintf("exchange %s is internal, and clients may not publish to it", text.Name(e.Exchange))
	case BadHeader:
		return fmt.Sprintf("the header %s is not a list", e.Header)
	case NoBinding:
		return fmt.Sprintf("exchange %s has no binding that matches, and no alternate exchange", text.Name(e.Exchange))
	case Circle:
		return fmt.Sprintf("exchange %s leads to exchanges alone, in a circle", text.Name(e.Exchange))
	case NoQueue:
		return fmt.Sprintf("queue %s does not exist", text.Name(e.Queue))
	case NoDeadLettering:
		return fmt.Sprintf("queue %s has no dead-letter exchange", text.Name(e.Queue))
	case Cycle:
		return fmt.Sprintf("the message died in %s before and was not rejected since: the broker drops it",
			text.Name(e.Queue))
	default:
		return string(e.Cause)
	}
}

// Unknown is something that the objects do not tell.
type Unknown struct {
	// Exchange is where the way is unknown.
	Exchange string
	// Why says in words what is unknown.
	Why string
	// May are the queues that the message may reach from there, sorted.
	May []string
}

// Path returns one way to a queue, from the first exchange on. It is nil if the message does not
// reach the queue.
func (r Result) Path(queue string) []Step {
	if !slices.Contains(r.Queues, queue) {
		return nil
	}
	var path []Step
	kind, name, first := topology.ToQueue, queue, r.Steps[0].Source
	// The first step to an exchange comes from one that was visited earlier.
	for len(path) == 0 || path[len(path)-1].Source != first {
		i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.DestinationType == kind && s.Destination == name })
		path = append(path, r.Steps[i])
		kind, name = topology.ToExchange, r.Steps[i].Source
	}
	slices.Reverse(path)
	return path
}

// Publish returns where a message goes that a client publishes to an exchange with a key and
// headers. The values of the headers may have the types of an AMQP library.
func (r *Router) Publish(exchange, key string, headers map[string]any) Result {
	m := Message{Exchange: exchange, Keys: []string{key}, Headers: headers}
	x := r.exchanges[exchange]
	switch {
	case x == nil:
		return Result{Message: m, Lost: []End{{Cause: NoExchange, Exchange: exchange}}}
	case x.Internal:
		return Result{Message: m, Lost: []End{{Cause: Internal, Exchange: exchange}}}
	}
	for _, name := range []string{topology.CC, topology.BCC} {
		v, ok := headers[name]
		if !ok {
			continue
		}
		keys, isList := texts(v)
		if !isList {
			return Result{Message: m, Lost: []End{{Cause: BadHeader, Exchange: exchange, Header: name}}}
		}
		m.Keys = append(m.Keys, keys...)
		if name == topology.BCC {
			m.bcc = keys
			m.Headers = without(headers, topology.BCC)
		}
	}
	if r.dialect.headerDeaths {
		m.Deaths = deathsIn(headers)
	}
	return r.from(x, m)
}

func (r *Router) from(x *exchange, m Message) Result {
	w := walk{router: r, seen: map[string]bool{x.Name: true}, queues: map[string]bool{}}
	w.result.Message = m
	if x.Name == "" {
		w.byName()
	} else {
		w.todo = []*exchange{x}
		for len(w.todo) > 0 {
			next := w.todo[0]
			w.todo = w.todo[1:]
			w.visit(next)
		}
	}
	w.result.Queues = sortedNames(w.queues)
	switch {
	case len(w.queues) > 0:
		w.result.Lost = nil
	case len(w.result.Lost)+len(w.result.Unknown) == 0:
		w.result.Lost = []End{{Cause: Circle, Exchange: x.Name}}
	}
	return w.result
}

// walk is the way of one message. Each exchange is visited once.
type walk struct {
	router *Router
	result Result
	todo   []*exchange
	seen   map[string]bool
	queues map[string]bool
}

// byName routes from the default exchange: each key is the name of a queue.
func (w *walk) byName() {
	for _, key := range w.result.Message.Keys {
		switch {
		case strings.HasPrefix(key, "amq.rabbitmq.reply-to."):
			w.result.Unknown = append(w.result.Unknown, Unknown{
				Why: fmt.Sprintf("the key %q is the address of a client that waits for a reply", key),
			})
		case !w.queues[key]:
			w.take(Step{Via: ViaDefault, Binding: topology.Binding{
				Destination: key, DestinationType: topology.ToQueue, Key: key,
			}})
		}
	}
}

// visit routes from one exchange. Its alternate exchange gets the message only if none of its own
// bindings matches, whatever they lead to.
func (w *walk) visit(x *exchange) {
	if x.matcher == nil {
		why := fmt.Sprintf("exchange %s has the type %s, and its plugin decides about routes",
			text.Name(x.Name), text.Name(x.Type))
		if x.Type == "" {
			why = fmt.Sprintf("the type of exchange %s is not known", text.Name(x.Name))
		}
		w.unknown(x, why, w.router.Reachable(x.Name))
		return
	}
	matched, doubts := x.matcher.match(w.result.Message)
	w.result.Steps = slices.Grow(w.result.Steps, len(matched))
	for _, i := range matched {
		w.take(Step{Via: ViaBinding, Binding: x.bindings[i]})
	}
	for _, i := range doubts {
		b := x.bindings[i]
		w.unknown(x, fmt.Sprintf("whether binding %s matches depends on AMQP types that it does not show", b),
			w.router.behind(b))
	}
	switch {
	case len(matched) > 0:
	case !x.hasAlternate && len(doubts) == 0:
		w.result.Lost = append(w.result.Lost, End{Cause: NoBinding, Exchange: x.Name})
	case x.hasAlternate && len(doubts) == 0:
		w.take(Step{Via: ViaAlternate, Policy: x.policy, Binding: topology.Binding{
			Source: x.Name, Destination: x.alternate, DestinationType: topology.ToExchange,
		}})
	case x.hasAlternate:
		w.unknown(x, fmt.Sprintf("if no binding of exchange %s matches, its alternate exchange gets the message",
			text.Name(x.Name)), w.router.Reachable(x.alternate))
	}
}

func (w *walk) take(s Step) {
	w.result.Steps = append(w.result.Steps, s)
	name := s.Destination
	if s.DestinationType == topology.ToQueue {
		if _, ok := w.router.queues[name]; ok {
			w.queues[name] = true
		} else {
			w.result.Lost = append(w.result.Lost, End{Cause: NoQueue, Exchange: s.Source, Queue: name})
		}
		return
	}
	x := w.router.exchanges[name]
	switch {
	case x == nil:
		w.result.Lost = append(w.result.Lost, End{Cause: NoExchange, Exchange: name})
	case !w.seen[name]:
		w.seen[name] = true
		w.todo = append(w.todo, x)
	}
}

func (w *walk) unknown(x *exchange, why string, may []string) {
	w.result.Unknown = append(w.result.Unknown, Unknown{Exchange: x.Name, Why: why, May: may})
}

// behind returns the queues that a binding may lead to.
func (r *Router) behind(b topology.Binding) []string {
	if b.DestinationType == topology.ToExchange {
		return r.Reachable(b.Destination)
	}
	if _, ok := r.queues[b.Destination]; !ok {
		return nil
	}
	return []string{b.Destination}
}
