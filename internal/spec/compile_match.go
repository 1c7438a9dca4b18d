package spec

import (
	"github.com/dlxctl/dlxctl/topology"
)

// matches adds what queues have in common that a pattern covers: policies for their dead-lettering,
// the way to the failed queue, and the dead-letter queue. The queues themselves are known when a
// broker is read; see [topology.Compiled.WithMatched].
//
// All of their failures have the key [topology.UnnamedAddress]. Failures under an address that no
// apply has bound come to the exchange for any others, and from there to the same failed queue.
func (c *compiler) matches() {
	if len(c.spec.Matches) == 0 {
		return
	}
	failed := topology.FailedQueueName(c.spec.Name, c.spec.Matches[0].Backoff)
	label := topology.Label{Role: topology.RoleFailed, Queue: c.spec.Matches[0].Pattern}
	c.bind(topology.FailedExchangeName(c.spec.Name), failed, topology.UnnamedAddress, nil, label)
	c.bind(topology.AnyFailedExchangeName(c.spec.Name), failed, "", nil, label)
	bound := map[string]bool{}
	for i, m := range c.spec.Matches {
		c.matchPolicies(m, len(c.spec.Matches)-1-i)
		if dead := m.Dead.Queue; !bound[dead] {
			bound[dead] = true
			c.bind(topology.DeadLetterName(c.spec.Name), dead, topology.AddressKey(dead), nil,
				topology.Label{Role: topology.RoleDeadLetter, Queue: dead})
			c.deadQueue(Queue{Name: m.Pattern, Dead: m.Dead}, topology.Label{Role: topology.RoleDeadLetter})
		}
		c.out.Matches = append(c.out.Matches, topology.Match{
			Pattern: m.Pattern, Type: m.Type, Backoff: m.Backoff, DeadLetterQueue: m.Dead.Queue, Owner: m.Owner,
			Severity: m.Severity, SeverityRules: m.SeverityRules, Place: placed(m.Pos, m.Overlay),
		})
	}
}

// matchPolicies adds the policies of m. Its priority is higher than that of later entries: of two
// that match a queue, the first applies.
func (c *compiler) matchPolicies(m Match, later int) {
	names := topology.Match{Pattern: m.Pattern, Type: m.Type}.PolicyNames(c.spec.Name)
	for _, kind := range []string{topology.Quorum, topology.Classic} {
		if names[kind] == "" {
			continue
		}
		q := Queue{Type: kind}
		if kind == topology.Quorum {
			q.DeliveryLimit = m.DeliveryLimit
		}
		definition := topology.Arguments{}
		for name, v := range c.deadLettering(q, nil) {
			definition[topology.PolicyKey(name)] = v
		}
		definition[topology.KeyDeadLetterRoutingKey] = topology.UnnamedAddress
		c.out.Policies = append(c.out.Policies, topology.Policy{
			Name: names[kind], Pattern: m.Pattern, ApplyTo: kind + "_queues",
			Priority: topology.PolicyPriority + 2*int64(later), Definition: definition,
			Label: topology.Label{Role: topology.RoleWork, Queue: m.Pattern},
		})
	}
}
