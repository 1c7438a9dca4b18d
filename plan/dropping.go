package plan

import (
	"github.com/dlclark/regexp2"

	"github.com/dlxctl/dlxctl/topology"
)

// Dropping names the quorum queues of the virtual host, whoever made them, that
// somebody consumes and that drop a message which was returned too often: they
// have a delivery limit, since 4.0 by default, and no dead-letter exchange.
func Dropping(state State) []string {
	r := resolver{state: state, foreignPolicies: state.Have.Policies, patterns: map[string]*regexp2.Regexp{}}
	var out []string
	for _, q := range state.Have.Queues {
		if q.Type() != topology.Quorum || state.Usage[q.Name].Consumers == 0 {
			continue
		}
		deadLetters := hasAny(q.Arguments, topology.ArgDeadLetterExchange)
		limit, limited := q.Arguments[topology.ArgDeliveryLimit].(int64)
		for _, p := range r.inForce(q) {
			deadLetters = deadLetters || hasAny(p.Definition, "dead-letter-exchange")
			if n, ok := p.Definition["delivery-limit"].(int64); ok && (!limited || n < limit) {
				limit, limited = n, true
			}
		}
		byDefault := !limited && Major(state.Version) >= 4
		// -1 is no limit since 4.0, and 0 before.
		unlimited := limit == topology.Unlimited || limit < 0 && Major(state.Version) >= 4
		if !deadLetters && (byDefault || limited && !unlimited) {
			out = append(out, q.Name)
		}
	}
	return out
}
