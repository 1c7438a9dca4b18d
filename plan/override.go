package plan

import (
	"fmt"
	"maps"
	"strings"

	"github.com/dlxctl/dlxctl/internal/policy"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// overridden warns of foreign policies that change what the queues of the
// topology do. Only the policy with the highest priority applies to a queue, and
// in addition one operator policy. Of argument and policy the smaller value wins;
// the overflow of quorum queues is that of the policy.
func (r *resolver) overridden() (f findings) {
	found := map[string]*overruling{}
	var order []string
	shared := r.shared()
	for _, q := range r.want.Queues {
		if q.External {
			continue // what its owner's policies do to it is their affair
		}
		q.Arguments = maps.Clone(q.Arguments)
		maps.Copy(q.Arguments, r.limits[q.Name])
		for _, p := range r.foreign.InEffect(q) {
			for _, key := range p.Definition.Names() {
				change, instead, ok := policy.Overrides(q, key, p.Definition[key])
				if !ok || r.handled(q, p, key) {
					continue
				}
				id := p.String() + " " + key + change + instead // such as a TTL where the file has one, and none
				if found[id] == nil {
					found[id] = &overruling{policy: p, change: change, instead: instead}
					order = append(order, id)
				}
				found[id].queues = append(found[id].queues, text.Name(q.Name))
				if strings.HasPrefix(key, topology.KeyMaxLength) && q.Type() == topology.Quorum && shared[q.Name] &&
					!r.accepts(topology.WarnStarvesTier, q.Name) {
					found[id].starves = append(found[id].starves, text.Name(q.Name))
				}
			}
		}
	}
	for _, id := range order {
		o := found[id]
		if !r.accepts(topology.WarnOverruled, o.policy.Name) {
			f.warn(topology.WarnOverruled, fmt.Sprintf("%s (pattern %s) %s on %s%s", o.policy,
				text.Name(o.policy.Pattern), o.change, text.Some(o.queues), o.instead))
		}
		if len(o.starves) > 0 {
			f.warn(topology.WarnStarvesTier,
				fmt.Sprintf("%s limits the length of %s, whose retries share a backoff with others: while %s is full, it holds them up; give %s a backoff of their own",
					o.policy, text.Some(o.starves), text.Choose(len(o.starves), "it", "one"),
					text.Choose(len(o.starves), "its retries", "the retries of each")))
		}
	}
	return f
}

// handled reports whether a key of a policy is overridden on a queue, or needs
// consent: see protections.
func (r *resolver) handled(q topology.Queue, p policy.Applied, key string) bool {
	e := r.foreign.Cell(key, q)
	return e.Effect == policy.Harmful && (e.Hazard != "" || topology.Overridable(p.Priority) && !p.Operator)
}

// overruling is one key of one foreign policy that changes queues of this topology.
type overruling struct {
	policy          policy.Applied
	change, instead string // see policy.Overrides
	queues          []string
	starves         []string // quorum work queues that share a backoff and get a limit
}
