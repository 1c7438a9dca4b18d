package topology

import (
	"slices"
	"time"
)

// EngineNative and EngineProcessor are the values of engine in a topology file.
const (
	EngineProcessor = "processor"
	EngineNative    = "native"
)

// EngineLevels is the other engine of a delay.
const EngineLevels = "levels"

// FirstNative is the first version of RabbitMQ to which dlxctl leaves the retries of a queue.
const FirstNative = "4.3.1"

// RetryAll is the type of a delayed retry that delays each message which is returned to its queue.
const RetryAll = "all"

// RetryPolicy returns the keys of a policy by which RabbitMQ does the retries of a native backoff.
// RabbitMQ delays the n-th return of a message by n times the minimum, and by no more than the
// maximum. When it is returned more often than the delivery limit allows, it is dead-lettered
// (measured on 4.3.6).
func (b Backoff) RetryPolicy() Arguments {
	longest := time.Duration(0)
	for _, t := range b.Tiers {
		longest = max(longest, t.Delay)
	}
	return Arguments{
		KeyDelayedRetryType: RetryAll,
		KeyDelayedRetryMin:  b.Tiers[0].Delay.Milliseconds(),
		KeyDelayedRetryMax:  longest.Milliseconds(),
		KeyDeliveryLimit:    int64(len(b.Tiers)),
	}
}

// NativeOf returns the native backoff that a policy stands for, without its name. It reports false
// for a policy of another kind.
func NativeOf(policy Arguments) (Backoff, bool) {
	least, _ := policy[KeyDelayedRetryMin].(int64)
	limit, _ := policy[KeyDeliveryLimit].(int64)
	if policy[KeyDelayedRetryType] != RetryAll || least < 1 || limit < 1 || limit > MaxAttempts {
		return Backoff{}, false
	}
	most, limited := policy[KeyDelayedRetryMax].(int64)
	b := Backoff{Native: true}
	for n := range limit {
		ms := least * (n + 1)
		if limited {
			ms = min(ms, most)
		}
		b.Tiers = append(b.Tiers, Tier{Delay: time.Duration(ms) * time.Millisecond})
	}
	return b, true
}

// TakesNative reports whether a queue of the broker can have a native backoff as it is, by a policy
// and under its own name: its arguments decide about neither dead-lettering nor delays. Limits that
// plan looks at, of operator policies for example, can still refuse it.
func (s State) TakesNative(q Queue) bool {
	return q.Type() == Quorum && s.DelaysRetries() && !slices.ContainsFunc(q.Arguments.Names(), func(name string) bool {
		switch PolicyKey(name) {
		case PolicyKey(ArgDeadLetterExchange), PolicyKey(ArgDeadLetterRoutingKey), KeyDelayedRetryType, KeyDelayedRetryMin,
			KeyDelayedRetryMax, KeyDeliveryLimit:
			return true
		}
		return false
	})
}
