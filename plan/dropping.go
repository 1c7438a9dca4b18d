package plan

import (
	"github.com/dlxctl/dlxctl/topology"
)

// Dropping names the quorum queues of the virtual host, whoever made them, that
// somebody consumes and that drop a message which was returned too often: they
// have a delivery limit, since 4.0 by default, and no dead-letter exchange.
func Dropping(state State) []string {
	r := anyPolicies(state)
	var out []string
	for _, q := range state.Have.Queues {
		if state.Usage[q.Name].Consumers > 0 && r.drops(q) {
			out = append(out, q.Name)
		}
	}
	return out
}

// Drops reports whether a queue drops a message that was returned too often; see
// [Dropping].
func Drops(state State, q topology.Queue) bool {
	r := anyPolicies(state)
	return r.drops(q)
}

func (r *resolver) drops(q topology.Queue) bool {
	if q.Type() != topology.Quorum {
		return false
	}
	deadLetters := hasAny(q.Arguments, topology.ArgDeadLetterExchange)
	limit, limited := q.Arguments[topology.ArgDeliveryLimit].(int64)
	for _, p := range r.inForce(q) {
		deadLetters = deadLetters || hasAny(p.Definition, "dead-letter-exchange")
		if n, ok := p.Definition["delivery-limit"].(int64); ok && (!limited || n < limit) {
			limit, limited = n, true
		}
	}
	byDefault := !limited && Major(r.state.Version) >= 4
	// -1 is no limit since 4.0, and 0 before.
	unlimited := limit == topology.Unlimited || limit < 0 && Major(r.state.Version) >= 4
	return !deadLetters && (byDefault || limited && !unlimited)
}
