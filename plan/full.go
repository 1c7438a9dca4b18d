package plan

import (
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// FullAt gives how many messages a queue holds when it refuses more, by its
// arguments and the policies in force. Zero: it does not go by their number, does not
// refuse any, or is not there.
func FullAt(state State, queue string) int64 {
	r := anyPolicies(state)
	for _, q := range state.Have.Queues {
		if q.Name != queue {
			continue
		}
		overflow, _ := q.Arguments[topology.ArgOverflow].(string)
		limit, _ := q.Arguments[topology.ArgMaxLength].(int64)
		for _, p := range r.inForce(q) {
			if s, ok := p.Definition["overflow"].(string); ok && overflow == "" {
				overflow = s
			}
			if n, ok := p.Definition["max-length"].(int64); ok && (limit == 0 || n < limit) {
				limit = n
			}
		}
		if strings.HasPrefix(overflow, "reject-publish") {
			return limit
		}
	}
	return 0
}
