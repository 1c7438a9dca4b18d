// Package policy answers two questions about RabbitMQ's policies: which policy
// applies to a queue, and what it does to the queue.
//
// Only the policy with the highest priority applies to a queue, and in addition one
// operator policy. Of argument and policy the smaller limit holds. What a key of a
// policy does to a work queue or to a generated queue is listed in one table, see
// [Table]; docs/policies.md shows it.
//
// The package is pure: it knows the values of package topology and nothing else.
package policy

import (
	"slices"

	"github.com/dlxctl/dlxctl/internal/pattern"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// Set is the policies of a virtual host that are looked at, and what the broker
// reports of them. It remembers patterns that it has compiled: a Set must not be
// used by several goroutines at once.
type Set struct {
	state    topology.State
	topology string // empty for All
	policies []topology.Policy
	patterns map[string]*pattern.Pattern
	unknown  map[string][]string // by the type of queues, see UnknownKeys
	cells    cells
	harmful  bool // a policy has a key that harms some generated queue
}

// All returns the set of all policies of a virtual host.
func All(state topology.State) *Set {
	return &Set{
		state: state, policies: state.Have.Policies, patterns: map[string]*pattern.Pattern{}, unknown: map[string][]string{},
	}
}

// Foreign returns the set of the policies that a topology does not own.
func Foreign(state topology.State, topologyName string) *Set {
	s := All(state)
	s.topology, s.policies = topologyName, nil
	for _, p := range state.Have.Policies {
		if owner, _ := topology.PolicyOwner(p.Name); owner != topologyName {
			s.policies = append(s.policies, p)
		}
	}
	s.cells = queueCells()
	s.harmful = len(state.OperatorPolicies) > 0 || slices.ContainsFunc(s.policies, s.mayHarm)
	return s
}

// Policies returns the policies of the set, operator policies excepted.
func (s *Set) Policies() []topology.Policy { return s.policies }

// For returns the policy of the set that is in effect on a queue, or would be
// without the policies that are not in the set, or if the queue existed. What the
// broker reports is believed first, unless the policy is not for the type of q: the queue of that
// name is of another type then. It reports false where there is none.
func (s *Set) For(q topology.Queue) (topology.Policy, bool) {
	reported := s.state.QueuePolicies[q.Name]
	i := slices.IndexFunc(s.policies, func(p topology.Policy) bool { return p.Name == reported })
	if i >= 0 && (q.Type() == "" || s.suits(s.policies[i], q.Type())) {
		return s.policies[i], true
	}
	return s.Strongest(s.policies, q)
}

// ForExchange returns the policy of the set that is in effect on an exchange, as [Set.For] does
// for a queue.
func (s *Set) ForExchange(e topology.Exchange) (topology.Policy, bool) {
	reported := s.state.ExchangePolicies[e.Name]
	if i := slices.IndexFunc(s.policies, func(p topology.Policy) bool { return p.Name == reported }); i >= 0 {
		return s.policies[i], true
	}
	return strongest(s.policies, func(p topology.Policy) bool { return s.MatchesExchange(p, e) })
}

// Alternate returns the alternate exchange of an exchange: that of its arguments, or else of the
// policy in effect, which by names then.
func (s *Set) Alternate(e topology.Exchange) (name, by string, ok bool) {
	if name, ok = e.Arguments[topology.ArgAlternateExchange].(string); ok {
		return name, "", true
	}
	p, _ := s.ForExchange(e)
	if name, ok = p.Definition[topology.ArgAlternateExchange].(string); ok {
		by = p.Name
	}
	return name, by, ok
}

// MatchesExchange reports whether a policy is for exchanges, and its pattern matches the name.
func (s *Set) MatchesExchange(p topology.Policy, e topology.Exchange) bool {
	return slices.Contains([]string{"exchanges", "all", ""}, p.ApplyTo) && s.matches(p, e.Name)
}

// Operator returns the operator policy that applies to a queue. Between policies of equal priority
// the broker chooses as it likes: a harmful one is assumed to be chosen.
func (s *Set) Operator(q topology.Queue) (topology.Policy, bool) {
	p, _, found := s.worst(s.state.OperatorPolicies, q, s.Applies)
	return p, found
}

// Applied is a policy that is in effect on a queue.
type Applied struct {
	topology.Policy

	// Operator says that it is an operator policy.
	Operator bool
}

// String names the policy with its kind: "the operator policy x".
func (a Applied) String() string {
	if a.Operator {
		return "the operator policy " + text.Name(a.Name)
	}
	return "the policy " + text.Name(a.Name)
}

// InEffect returns the policies that apply to a queue: that of [Set.For], and the
// operator policy.
func (s *Set) InEffect(q topology.Queue) []Applied {
	var out []Applied
	if p, ok := s.For(q); ok {
		out = append(out, Applied{Policy: p})
	}
	if p, ok := s.Operator(q); ok {
		out = append(out, Applied{p, true})
	}
	return out
}

// Origin returns the policy that gives a queue an argument which is in effect with this value. It
// reports false if the queue itself has it.
func (s *Set) Origin(q topology.Queue, argument string, value any) (Applied, bool) {
	if own, ok := q.Arguments[argument]; ok && own == value {
		return Applied{}, false
	}
	for _, p := range s.InEffect(q) {
		if p.Definition[topology.PolicyKey(argument)] == value {
			return p, true
		}
	}
	return Applied{}, false
}

// Strongest returns the policy of list that applies to a queue: of those whose
// pattern matches, the one with the highest priority. Between equals the broker
// chooses as it likes.
func (s *Set) Strongest(list []topology.Policy, q topology.Queue) (topology.Policy, bool) {
	return strongest(list, func(p topology.Policy) bool { return s.Applies(p, q) })
}

func strongest(list []topology.Policy, applies func(topology.Policy) bool) (topology.Policy, bool) {
	var best topology.Policy
	found := false
	for _, p := range list {
		if (!found || p.Priority > best.Priority) && applies(p) {
			best, found = p, true
		}
	}
	return best, found
}

// Applies reports whether a policy is for a queue of that name and type. The broker
// passes over a policy with a key that the type does not know, whatever else the
// policy sets (measured on 3.10.8, 4.0.5 and 4.3.6). A pattern that cannot be read
// is assumed not to match.
func (s *Set) Applies(p topology.Policy, q topology.Queue) bool {
	return s.suits(p, q.Type()) && s.matches(p, q.Name)
}

// suits reports whether a policy is for queues of that type, and has only keys that it knows.
func (s *Set) suits(p topology.Policy, queueType string) bool {
	return !p.Definition.HasAny(s.UnknownKeys(queueType)...) && isFor(p, queueType)
}

// Matches reports whether a policy is for queues of that type, and its pattern matches the name.
// Its keys may be ones that the type does not know; see [Set.Applies].
func (s *Set) Matches(p topology.Policy, q topology.Queue) bool {
	return isFor(p, q.Type()) && s.matches(p, q.Name)
}

// isFor reports whether a policy is for queues of that type.
func isFor(p topology.Policy, queueType string) bool {
	kinds := map[string]string{
		topology.Quorum: "quorum_queues", topology.Classic: "classic_queues",
		topology.Stream: "streams",
	}
	return slices.Contains([]string{"queues", "all", "", kinds[queueType]}, p.ApplyTo)
}

func (s *Set) matches(p topology.Policy, name string) bool {
	read, known := s.patterns[p.Pattern]
	if !known {
		read = compile(p.Pattern)
		s.patterns[p.Pattern] = read
	}
	matches, err := read.Matches(name)
	return err == nil && matches
}

// Reaches reports whether a policy applies to a queue, also if only the broker can
// read its pattern: what is in effect shows it then.
func (s *Set) Reaches(p topology.Policy, q topology.Queue) bool {
	if s.Applies(p, q) || s.state.QueuePolicies[q.Name] == p.Name {
		return true
	}
	_, _, base, protects := topology.ProtectionOf(s.topology, s.state.QueuePolicies[q.Name])
	return protects && base == p.Name && compile(p.Pattern) == nil
}

// compile reads a pattern. It returns nil for one that cannot be read.
func compile(s string) *pattern.Pattern {
	p, err := pattern.Compile(s)
	if err != nil {
		return nil
	}
	return p
}

// UnknownKeys returns the keys of policies that are not for queues of a type, on the line of
// RabbitMQ of the set, and without a version on the oldest one. The broker passes over a policy
// that has one of them, whatever else it sets. The caller does not change them.
func (s *Set) UnknownKeys(queueType string) []string {
	out, known := s.unknown[queueType]
	if !known {
		out = unknownKeys(queueType, s.state)
		s.unknown[queueType] = out
	}
	return out
}

// unknownKeys returns the keys of [Set.UnknownKeys]: the unsupported_policies of
// rabbit_classic_queue, rabbit_quorum_queue and rabbit_stream_queue: TestUnknownKeysOnABroker
// measures them on 3.10, 4.0 and 4.3, and those of the lines in between are read from the sources
// of each (3.11.28, 3.12.14, 3.13.7, 4.1.8, 4.2.9). The two of queues for JMS are not in every
// edition of RabbitMQ.
func unknownKeys(queueType string, state topology.State) []string {
	ofStreams := []string{"max-age", "stream-max-segment-size-bytes"}
	inMemory := []string{"max-in-memory-length", "max-in-memory-bytes"}
	ofClassic := []string{
		"queue-mode", "queue-master-locator", "ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown",
		"ha-promote-on-failure",
	}
	ofQuorum := []string{topology.KeyDeadLetterStrategy, topology.KeyDeliveryLimit, "target-group-size"}
	out := []string{"selector-fields", "selector-field-max-bytes"}
	switch queueType {
	case topology.Classic:
		out = slices.Concat(out, ofStreams, ofQuorum, []string{clusterSize})
		if state.AtLeast(3, 12) { // since 3.12.7
			out = append(out, inMemory...)
		}
		if !state.AtLeast(4, 0) {
			out = append(out, "queue-leader-locator")
		}
	case topology.Quorum:
		out = slices.Concat(out, ofStreams, ofClassic, []string{clusterSize})
	case topology.Stream:
		out = slices.Concat(out, ofClassic, ofQuorum, inMemory, []string{
			topology.KeyExpires, topology.KeyMessageTTL, topology.KeyDeadLetterExchange, topology.KeyDeadLetterRoutingKey,
			topology.KeyMaxLength, topology.KeyOverflow,
		})
	}
	return out
}

// clusterSize is the key for how many replicas a queue has when it is declared. Only streams read
// it from a policy.
const clusterSize = "initial-cluster-size"
