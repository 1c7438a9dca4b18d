package policy

import (
	"maps"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// defaultDeliveryLimit is the delivery limit of a quorum queue that sets none, since 4.0.
const defaultDeliveryLimit = 20

// Effective returns the arguments of a queue as they apply together with its policy and its
// operator policy: of two limits the smaller, and otherwise what the queue itself says. The
// overflow of a quorum queue is that of the policy. Of a delivery limit of -1 and another one, the
// other one applies since 4.0, and -1 before, and where the version is not known.
func Effective(state topology.State, q topology.Queue) topology.Arguments {
	return All(state).Effective(q)
}

// Effective returns the arguments of a queue as they apply together with the policies of the set;
// see [Effective].
func (s *Set) Effective(q topology.Queue) topology.Arguments {
	definitions := text.Each(s.InEffect(q), func(p Applied) topology.Arguments { return p.Definition })
	return s.WithPolicies(q, definitions...)
}

// WithPolicies returns the arguments of a queue as they apply together with policies of these
// definitions: its policy and its operator policy. Without any they are the arguments of the queue
// itself. The caller does not change them.
func (s *Set) WithPolicies(q topology.Queue, definitions ...topology.Arguments) topology.Arguments {
	if len(definitions) == 0 && q.Arguments != nil {
		return q.Arguments
	}
	out := topology.Arguments{}
	maps.Copy(out, q.Arguments)
	for _, definition := range definitions {
		for name, v := range Arguments(definition) {
			if name == topology.ArgOverflow && q.Type() == topology.Quorum {
				out[name] = v // overflow in rabbit_quorum_queue asks the policy first
				continue
			}
			out[name] = s.stronger(name, out[name], v)
		}
	}
	return out
}

// stronger returns which of two values of an argument applies. The first is that of the queue.
func (s *Set) stronger(name string, own, other any) any {
	a, limited := own.(int64)
	b, limits := other.(int64)
	if name == topology.ArgDeliveryLimit && limited && limits && min(a, b) < 0 && s.state.Major() >= 4 {
		return max(a, b) // resolve_delivery_limit in rabbit_quorum_queue, which 3.x does not have
	}
	return smaller(own, other)
}

// smaller returns the smaller one of two limits, and otherwise the first value, if there is one.
func smaller(own, other any) any {
	a, limited := own.(int64)
	b, limits := other.(int64)
	switch {
	case own == nil:
		return other
	case !limited || !limits:
		return own
	default:
		return min(a, b)
	}
}

// DeliveryLimit returns how often a message may be returned to a queue before the broker drops or
// dead-letters it, by the arguments that Effective returns. It reports false if there is no limit.
func DeliveryLimit(state topology.State, q topology.Queue, effective topology.Arguments) (int64, bool) {
	if q.Type() != topology.Quorum {
		return 0, false
	}
	limit, set := effective[topology.ArgDeliveryLimit].(int64)
	since4 := state.Major() >= 4
	switch {
	case !set:
		return defaultDeliveryLimit, since4
	case limit < 0: // -1 means no limit since 4.0, and 0 before
		return 0, !since4
	default:
		return limit, true
	}
}

// DropsHead returns how many messages, and how many bytes of bodies, a queue may have before it
// drops its oldest ones, by the arguments that Effective returns. Zero is not such a limit.
func DropsHead(q topology.Queue, effective topology.Arguments) (messages, bytes int64) {
	if OverflowOf(q, effective) != DropHead {
		return 0, 0
	}
	return LengthLimits(effective)
}

// LengthLimits is DropsHead for any overflow: how much a queue may have when it is full.
func LengthLimits(effective topology.Arguments) (messages, bytes int64) {
	messages, _ = effective[topology.ArgMaxLength].(int64)
	bytes, _ = effective[topology.ArgMaxLengthBytes].(int64)
	return messages, bytes
}

// DelaysNothing is the type of delayed retry that is none.
const DelaysNothing = "disabled"

// DelayedRetry returns which returned messages a queue of RabbitMQ 4.3 withholds, and the least
// time for which it does. It reports false if it withholds none. The type of a policy counts before
// that of an argument (rabbit_quorum_queue.erl), and one without a minimum delays nothing.
func (s *Set) DelayedRetry(q topology.Queue) (kind string, least time.Duration, ok bool) {
	if !s.state.AtLeast(4, 3) || q.Type() != topology.Quorum {
		return "", 0, false
	}
	args := s.Effective(q)
	kind, _ = q.Arguments["x-"+topology.KeyDelayedRetryType].(string)
	for _, p := range s.InEffect(q) {
		if of, set := p.Definition[topology.KeyDelayedRetryType].(string); set {
			kind = of
		}
	}
	ms, _ := args["x-"+topology.KeyDelayedRetryMin].(int64)
	ok = kind != "" && kind != DelaysNothing && ms > 0
	return kind, time.Duration(ms) * time.Millisecond, ok
}

// Native returns the native backoff that RabbitMQ follows in a queue, without its name, whatever
// sets it. It reports false for a queue that does not delay all that is returned to it, or that
// delivers a message without end.
func (s *Set) Native(q topology.Queue) (topology.Backoff, bool) {
	kind, least, delays := s.DelayedRetry(q)
	if !delays {
		return topology.Backoff{}, false
	}
	effective := s.Effective(q)
	limit, _ := DeliveryLimit(s.state, q, effective)
	return topology.NativeOf(topology.Arguments{
		topology.KeyDelayedRetryType: kind,
		topology.KeyDelayedRetryMin:  least.Milliseconds(),
		topology.KeyDelayedRetryMax:  effective["x-"+topology.KeyDelayedRetryMax],
		topology.KeyDeliveryLimit:    limit,
	})
}
