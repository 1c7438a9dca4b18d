package survey

import (
	"maps"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// Decides reports whether a key of a policy decides about the loss of messages.
func Decides(key string) bool {
	return strings.HasPrefix(key, "dead-letter-") || slices.Contains([]string{
		topology.KeyMessageTTL, topology.KeyExpires, topology.KeyMaxLength, topology.KeyMaxLengthBytes,
		topology.KeyDeliveryLimit, topology.KeyOverflow, topology.ArgAlternateExchange,
	}, key)
}

// maxOutcomes is how many of the policies that tie for one object are looked at.
const maxOutcomes = 4

// choices are the policies that RabbitMQ may choose for the objects of one kind, by name: those of
// the highest priority that differ from the one that the survey takes to be in effect.
type choices map[string][]topology.Policy

// add notes the choices for an object. Of those that do the same, one is enough.
func (c choices) add(
	name string, inEffect topology.Policy, policies []topology.Policy, applies func(topology.Policy) bool,
) {
	seen := map[string]bool{deciding(inEffect): true}
	for _, p := range policies {
		if p.Priority == inEffect.Priority && applies(p) && !seen[deciding(p)] {
			seen[deciding(p)] = true
			c[name] = append(c[name], p)
		}
	}
}

// deciding is equal for policies that do the same to messages.
func deciding(p topology.Policy) string {
	definition := maps.Clone(p.Definition)
	maps.DeleteFunc(definition, func(key string, _ any) bool { return !Decides(key) })
	return definition.String()
}

// inEffect returns the policies that are in effect in one outcome: the choice of that number for
// each object that has one.
func (c choices) inEffect(reported map[string]string, number int, chosen func(name string) bool) map[string]string {
	out := maps.Clone(reported)
	if out == nil {
		out = map[string]string{}
	}
	for name, list := range c {
		if chosen(name) {
			out[name] = list[min(number, len(list)-1)].Name
		}
	}
	return out
}

// outcomes returns the virtual host as it is if RabbitMQ chooses other policies where two of the
// same priority match, and reports the queues for which more of them match than are looked at. In
// one outcome all objects have another policy, in others those alone whose messages fail, or those
// alone that get them.
func (s *Survey) outcomes() (others []*Survey, more map[string]bool) {
	queues, exchanges, more := choices{}, choices{}, map[string]bool{}
	for _, q := range s.Queues {
		if p, ok := s.Policies.For(q.Queue); ok {
			queues.add(q.Name, p, s.State.Have.Policies, func(o topology.Policy) bool { return s.Policies.Applies(o, q.Queue) })
		}
		more[q.Name] = len(queues[q.Name]) > maxOutcomes
	}
	for _, e := range s.Exchanges {
		if p, ok := s.Policies.ForExchange(e.Exchange); ok {
			exchanges.add(e.Name, p, s.State.Have.Policies, func(o topology.Policy) bool {
				return s.Policies.MatchesExchange(o, e.Exchange)
			})
		}
	}
	most := 0
	for _, list := range slices.Concat(slices.Collect(maps.Values(queues)), slices.Collect(maps.Values(exchanges))) {
		most = max(most, min(len(list), maxOutcomes))
	}
	works := func(name string) bool { return s.queues[name].Role == topology.RoleWork }
	kinds := []func(string) bool{func(string) bool { return true }}
	if names := slices.Collect(maps.Keys(queues)); slices.ContainsFunc(names, works) &&
		slices.ContainsFunc(names, func(name string) bool { return !works(name) }) {
		kinds = append(kinds, works, func(name string) bool { return !works(name) })
	}
	for number := range most {
		for _, chosen := range kinds {
			state := s.State
			state.QueuePolicies = queues.inEffect(state.QueuePolicies, number, chosen)
			state.ExchangePolicies = exchanges.inEffect(state.ExchangePolicies, number, func(string) bool { return true })
			others = append(others, New(state))
		}
	}
	return others, more
}

// setFates computes the fate of each queue over all outcomes.
func (s *Survey) setFates() {
	others, more := s.outcomes()
	s.Outcomes = 1 + len(others)
	for _, q := range s.Queues {
		q.fate = q.Assumed()
		for _, other := range others {
			q.fate = s.either(q.fate, other.Queue(q.Name).Assumed())
		}
		if more[q.Name] {
			q.fate = s.either(q.fate, Undecided)
		}
	}
}

// either returns the fate where only RabbitMQ knows which of two it is. What is lost by the policy
// that a broker reports to be in effect is lost.
func (s *Survey) either(fate, other Fate) Fate {
	keeps := []Fate{Kept, Endless}
	switch {
	case fate == other, fate == Lost && s.State.QueuePolicies != nil:
		return fate
	case slices.Contains(keeps, fate) && slices.Contains(keeps, other):
		return Endless
	default:
		return Undecided
	}
}
