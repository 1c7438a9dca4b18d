package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Feeder is a queue whose messages can reach another queue by the name of that queue, through
// dead-lettering to the default exchange. No binding shows this, so it does not move along when
// bindings move to a successor: once the other queue is deleted, the broker drops the messages.
type Feeder struct {
	topology.Queue
	topology.Usage

	// To is the queue that the feeder dead-letters to: the fed queue, or another feeder.
	To string
	// AnyKey says that the feeder has no dead-letter routing key. Its messages keep the routing
	// keys that they have, and which these are the broker does not show.
	AnyKey bool
	// Open lists the routes by which the feeder can get new messages even after the fed queue
	// stops dead-lettering. Empty: the broker shows none.
	Open []string
}

// Feeders returns the queues from which messages can come to queue by its name, directly or through
// other queues: by their arguments, and by the policies in effect. They are in the order of names.
//
// A queue that dead-letters to a named exchange is not a feeder of the queues that are bound to
// that exchange: their bindings move to the successor.
func Feeders(state topology.State, queue string) []Feeder {
	f := feeding{
		state: state, target: queue, needs: map[string]need{}, types: map[string]string{},
		alternates: map[string]string{},
	}
	f.dead = deadLetterings(state)
	for _, e := range state.Have.Exchanges {
		f.types[e.Name] = e.Type
		f.alternates[e.Name], _ = e.Arguments[topology.ArgAlternateExchange].(string)
	}
	f.search()
	var out []Feeder
	for i, q := range state.Have.Queues {
		if n, feeds := f.needs[q.Name]; feeds {
			out = append(out, Feeder{Queue: q, Usage: state.Usage[q.Name], To: n.to, AnyKey: !f.dead[i].hasKey, Open: f.open(q)})
		}
	}
	slices.SortFunc(out, func(a, b Feeder) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// feeding is the search for the feeders of one queue.
type feeding struct {
	state      topology.State
	target     string
	dead       []deadLettering   // of the queues of state, in their order
	types      map[string]string // of exchanges
	alternates map[string]string // the alternate exchanges that arguments give
	needs      map[string]need   // of the feeders found so far
}

// need is what a message in a feeder must have to come to the target.
type need struct {
	to  string // the next queue on the way
	key bool   // the routing key must be the name of the target; else any will do
}

// deadLettering is where a queue dead-letters to.
type deadLettering struct {
	on       bool
	exchange string
	key      string
	hasKey   bool
}

// deadLetterings says where the queues of a state dead-letter to, in their order. Each of the two
// is read from the arguments first, then from the policies in effect: so does the broker.
func deadLetterings(state topology.State) []deadLettering {
	policies := policy.All(state)
	var operator []topology.Policy
	for _, p := range state.OperatorPolicies {
		if p.Definition.HasAny(topology.KeyDeadLetterExchange, topology.KeyDeadLetterRoutingKey) {
			operator = append(operator, p)
		}
	}
	listed := byName(state.Have.Policies, func(p topology.Policy) string { return p.Name })
	out := make([]deadLettering, len(state.Have.Queues))
	for i, q := range state.Have.Queues {
		d := &out[i]
		d.exchange, d.on = q.Arguments[topology.ArgDeadLetterExchange].(string)
		d.key, d.hasKey = q.Arguments[topology.ArgDeadLetterRoutingKey].(string)
		if state.QueuePolicies != nil {
			d.add(listed[state.QueuePolicies[q.Name]])
		} else if p, ok := policies.Strongest(state.Have.Policies, q); ok {
			d.add(p)
		}
		if p, ok := policies.Strongest(operator, q); ok {
			d.add(p)
		}
	}
	return out
}

// add completes d with a policy.
func (d *deadLettering) add(p topology.Policy) {
	if s, ok := p.Definition[topology.KeyDeadLetterExchange].(string); ok && !d.on {
		d.exchange, d.on = s, true
	}
	if s, ok := p.Definition[topology.KeyDeadLetterRoutingKey].(string); ok && !d.hasKey {
		d.key, d.hasKey = s, true
	}
}

// search goes from the target against the way of the messages, until no more feeders are found.
func (f *feeding) search() {
	reach := []topology.Queue{{Name: f.target}}
	for len(reach) > 0 {
		next := reach[0]
		reach = reach[1:]
		for i, q := range f.state.Have.Queues {
			if !f.dead[i].on || q.Name == f.target || q.Name == next.Name {
				continue // what is in the target itself is drained
			}
			n, feeds := f.feeds(f.dead[i], next.Name)
			known, seen := f.needs[q.Name]
			if feeds && (!seen || known.key && !n.key) {
				if seen {
					n.to = known.to
				}
				f.needs[q.Name] = n
				reach = append(reach, q)
			}
		}
	}
}

// feeds reports whether messages that are dead-lettered so can come to the queue next, from which
// they can come to the target, and what they need for that.
func (f *feeding) feeds(d deadLettering, next string) (need, bool) {
	behind := f.needs[next].key // what is in next needs the key of the target
	switch {
	case d.exchange == "" && d.hasKey:
		return need{to: next}, d.key == next && (!behind || next == f.target)
	case d.exchange == "":
		// A message comes to next that has the name of next for its key.
		return need{to: next, key: next == f.target}, next == f.target || !behind
	case next == f.target:
		return need{}, false // by a binding
	case d.hasKey:
		return need{to: next}, (!behind || d.key == f.target) && f.routes(d.exchange, next, d.key, true, nil)
	default:
		return need{to: next, key: behind}, f.routes(d.exchange, next, f.target, behind, nil)
	}
}

// routes reports whether an exchange can lead a message with a key to a queue. If the key is not
// known, any binding may match.
func (f *feeding) routes(exchange, queue, key string, known bool, been []string) bool {
	if exchange == "" || slices.Contains(been, exchange) {
		return false
	}
	been = append(slices.Clone(been), exchange)
	for _, b := range f.state.Have.Bindings {
		if b.Source != exchange || known && !matches(f.types[exchange], b.Key, key) {
			continue
		}
		if b.DestinationType == topology.ToQueue && b.Destination == queue ||
			b.DestinationType == topology.ToExchange && f.routes(b.Destination, queue, key, known, been) {
			return true
		}
	}
	return f.routes(f.alternates[exchange], queue, key, known, been)
}

// matches reports whether a binding of an exchange of that type can match a routing key.
func matches(exchangeType, pattern, key string) bool {
	switch exchangeType {
	case topology.Direct:
		return pattern == key
	case topology.Topic:
		return matchesTopic(strings.Split(pattern, "."), strings.Split(key, "."))
	default:
		return true // by headers, or by what a plugin makes of it
	}
}

func matchesTopic(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return matchesTopic(pattern[1:], words) || len(words) > 0 && matchesTopic(pattern, words[1:])
	default:
		return len(words) > 0 && (pattern[0] == "*" || pattern[0] == words[0]) && matchesTopic(pattern[1:], words[1:])
	}
}

// open says by which ways new messages can come to a feeder, other than the dead-lettering of the
// target and of the feeders. Whether a service publishes to it by its name does not show.
func (f *feeding) open(q topology.Queue) []string {
	var out []string
	if u := f.state.Usage[q.Name]; u.Consumers > 0 {
		out = append(out, "it has "+u.ConsumersText())
	}
	for _, b := range f.state.Have.Bindings {
		if b.DestinationType != topology.ToQueue || b.Destination != q.Name || f.closed(b.Source) {
			continue
		}
		if text := fmt.Sprintf("the exchange %s routes messages to it", text.Name(b.Source)); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// closed reports whether an exchange is but for the dead-lettering of the target and its feeders.
func (f *feeding) closed(exchange string) bool {
	for _, b := range f.state.Have.Bindings {
		if b.DestinationType == topology.ToExchange && b.Destination == exchange {
			return false
		}
	}
	for i, q := range f.state.Have.Queues {
		if _, feeds := f.needs[q.Name]; (feeds || q.Name == f.target) && f.dead[i].on && f.dead[i].exchange == exchange {
			return true
		}
	}
	return false
}
