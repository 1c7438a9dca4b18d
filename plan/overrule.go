package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlclark/regexp2"

	"github.com/dlxctl/dlxctl/topology"
)

// overruled warns of somebody's policies that change what the queues of the
// topology do. Only the policy with the highest priority applies to a queue, and
// beside it one operator policy. Of argument and policy the smaller value wins;
// the overflow of quorum queues is that of the policy.
func (r *resolver) overruled() {
	found := map[string]*overruling{}
	var order []string
	shared := map[string]int{}
	for _, w := range r.want.Works {
		shared[w.Backoff]++
	}
	for _, q := range r.want.Queues {
		if q.External {
			continue // what its owner's policies do to it is their affair
		}
		for _, p := range r.inForce(q) {
			for _, key := range p.Definition.Names() {
				text, ok := overrules(q, key, p.Definition[key])
				if !ok || r.handled(q, p, key) {
					continue
				}
				id := p.Name + " " + key
				if found[id] == nil {
					found[id] = &overruling{policy: p, text: text}
					order = append(order, id)
				}
				found[id].queues = append(found[id].queues, display(q.Name))
				if w, ok := r.works[q.Name]; ok && strings.HasPrefix(key, "max-length") && q.Type() == topology.Quorum && w.Backoff != topology.NoBackoff && shared[w.Backoff] > 1 {
					found[id].starves = append(found[id].starves, display(q.Name))
				}
			}
		}
	}
	for _, id := range order {
		o := found[id]
		r.out.Warnings = append(r.out.Warnings, Warning{
			Name: "overruled", Text: fmt.Sprintf("the policy %s (pattern %s) %s of %s", display(o.policy.Name), display(o.policy.Pattern), o.text, some(o.queues)),
		})
		if len(o.starves) > 0 {
			r.out.Warnings = append(r.out.Warnings, Warning{
				Name: "starves-tier", Text: fmt.Sprintf("the policy %s limits the length of %s, which shares its backoff: while it is full it holds up the retries of the others; give it a backoff of its own", display(o.policy.Name), some(o.starves)),
			})
		}
	}
}

// handled reports whether a key of a policy is overridden on a queue, or needs
// consent: see protections.
func (r *resolver) handled(q topology.Queue, p topology.Policy, key string) bool {
	e := r.effects[effectKey{key, q.Label.Role}]
	isOperator := slices.ContainsFunc(r.state.Operator, func(o topology.Policy) bool {
		return o.Name == p.Name && o.Pattern == p.Pattern && o.Definition.Equal(p.Definition)
	})
	return e.Effect == Harmful && (e.Hazard != "" || topology.Overridable(p.Priority) && !isOperator)
}

// overruling is one key of one policy that changes queues of ours.
type overruling struct {
	policy  topology.Policy
	text    string
	queues  []string
	starves []string // quorum work queues that share a backoff and get a limit
}

// anyPolicies gives a resolver to which all policies are those of others.
func anyPolicies(state State) resolver {
	return resolver{state: state, foreignPolicies: state.Have.Policies, patterns: map[string]*regexp2.Regexp{}}
}

// inForce gives somebody's policy that applies to a queue, and the operator's.
func (r *resolver) inForce(q topology.Queue) []topology.Policy {
	var out []topology.Policy
	if p, ok := r.foreignPolicy(q); ok {
		out = append(out, p)
	}
	if p, ok := r.strongest(r.state.Operator, q); ok {
		out = append(out, p)
	}
	return out
}

// overrules says what a key of a policy does to a queue, if it changes anything.
func overrules(q topology.Queue, key string, value any) (string, bool) {
	own, given := q.Arguments["x-"+key]
	if key == "overflow" {
		if q.Type() != topology.Quorum || own == nil || own == value {
			return "", false
		}
		return fmt.Sprintf("sets overflow to %s, which turns at-least-once dead-lettering off, in place of the %s", topology.FormatValue(value), topology.FormatValue(own)), true
	}
	if !slices.Contains([]string{"message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit"}, key) {
		return "", false
	}
	limit, isNumber := value.(int64)
	before, _ := own.(int64)
	if !isNumber || given && limit >= before || key == "delivery-limit" && (q.Type() != topology.Quorum || !given) {
		return "", false
	}
	if !given {
		return fmt.Sprintf("sets %s to %s, where there is none,", key, withUnit(key, limit)), true
	}
	return fmt.Sprintf("lowers %s to %s", key, withUnit(key, limit)), true
}

// withUnit gives a number with its duration, if it is one.
func withUnit(key string, n int64) string { return value("x-"+key, n) }
