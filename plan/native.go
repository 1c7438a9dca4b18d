package plan

import (
	"fmt"
	"slices"

	"github.com/dlxctl/dlxctl/internal/arguments"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// nativeFlag is enabled only once all nodes of a cluster are of RabbitMQ 4.3.
const nativeFlag = "rabbitmq_4.3.0"

// delaysRetries reports whether a policy leaves retries to RabbitMQ.
func delaysRetries(p topology.Policy) bool {
	return p.Definition[topology.KeyDelayedRetryType] == topology.RetryAll
}

// undelayable says why a queue cannot have its native backoff: retries would be fewer than the file
// says, or none, or messages would be dead letters before their time. want is the policy of the
// queue, which starts from the one that is in effect. Empty: it can.
func (r *resolver) undelayable(want topology.Policy, q topology.Queue) string {
	b, native := r.want.NativeBackoff(r.works[q.Name].Backoff)
	if !native {
		return ""
	}
	what := fmt.Sprintf("the backoff %s of the queue %s has engine: native", text.Name(b.Name), text.Name(q.Name))
	other := "; or write engine: processor"
	if v := r.state.Version; v != "" && !r.state.DelaysRetries() {
		return fmt.Sprintf("%s, which is for RabbitMQ %s and later, and this broker is %s; write engine: processor", what,
			topology.FirstNative, v)
	}
	if slices.Contains(r.state.DisabledFlags, nativeFlag) {
		return fmt.Sprintf("%s, and the feature flag %s is not enabled: nodes of an older version may be in the cluster; rabbitmqctl enable_feature_flag %[2]s", what, nativeFlag)
	}
	have, exists := r.existing[q.Name]
	if !exists {
		have = q
	}
	if have.Type() != topology.Quorum {
		return fmt.Sprintf("%s, and the queue is of type %s: only quorum queues delay retries; replace it with a quorum queue, or write engine: processor", what, have.Type())
	}
	for _, name := range have.Arguments.Names() {
		if slices.Contains(arguments.DelayedRetry(), topology.PolicyKey(name)) {
			return fmt.Sprintf("%s, and the queue was declared with %s; have it declared without that argument%s", what, name, other)
		}
	}
	operator, _ := r.foreign.Operator(have)
	effective := r.foreign.WithPolicies(have, want.Definition, operator.Definition)
	attempts := int64(len(b.Tiers))
	if limit, ok := effective[topology.ArgDeliveryLimit].(int64); ok && limit < attempts {
		return fmt.Sprintf("%s and %s, and %s limits it to %d: of two limits the smaller one applies; raise or remove that one, or write fewer tiers%s",
			what, text.Count(attempts, "retry"), limiter(have, operator, topology.ArgDeliveryLimit), limit, other)
	}
	if ttl, ok := effective[topology.ArgMessageTTL].(int64); ok && ttl <= b.Wait().Milliseconds() {
		return fmt.Sprintf("%s and delays of %s together, and messages of the queue expire %s after their publish (message-ttl), also while they are delayed: dead letters before all retries; set a longer TTL, or write shorter delays%s",
			what, text.Duration(b.Wait()), text.Millis(ttl), other)
	}
	return ""
}

// untimed says why the broker cannot have a queue that is the timer of a delay: RabbitMQ would give
// its messages back at once. Empty: it can, or the queue is not one.
func (r *resolver) untimed(q topology.Queue) string {
	if !q.IsTimer() {
		return ""
	}
	what := fmt.Sprintf("the delay %s has engine: native", text.Name(q.Label.Delay))
	switch v := r.state.Version; {
	case v != "" && !r.state.DelaysRetries():
		return fmt.Sprintf("%s, which is for RabbitMQ %s and later, and this broker is %s; write engine: levels", what,
			topology.FirstNative, v)
	case slices.Contains(r.state.DisabledFlags, nativeFlag):
		return fmt.Sprintf("%s, and the feature flag %s is not enabled: nodes of an older version may be in the cluster; rabbitmqctl enable_feature_flag %[2]s", what, nativeFlag)
	}
	return ""
}

// limiter says what limits a queue in addition to the policy of dlxctl: its own argument or the
// operator policy, whichever is smaller.
func limiter(q topology.Queue, operator topology.Policy, argument string) string {
	own, limited := q.Arguments[argument].(int64)
	other, limits := operator.Definition[topology.PolicyKey(argument)].(int64)
	if limits && (!limited || other < own) {
		return "the operator policy " + text.Name(operator.Name)
	}
	return "its argument " + argument
}

// nativeBefore returns the native backoff that a queue has on the broker, by the policy of this
// topology.
func (r *resolver) nativeBefore(queue string) (topology.Backoff, bool) {
	name := topology.PolicyName(r.want.Name, queue)
	i := slices.IndexFunc(r.state.Have.Policies, func(p topology.Policy) bool { return p.Name == name })
	if i < 0 {
		return topology.Backoff{}, false
	}
	return topology.NativeOf(r.state.Have.Policies[i].Definition)
}

// engines marks the change of a policy with which retries are left to RabbitMQ, or no longer. The
// consumers of the queue must know. When the processor takes over, messages must come to it first:
// until then a failure that RabbitMQ no longer delays would soon be a dead letter.
func engines(c *Change) {
	i := slices.IndexFunc(c.Fields, func(f Field) bool { return f.Name == topology.KeyDelayedRetryType })
	if i < 0 {
		return
	}
	switch f := c.Fields[i]; {
	case f.After == topology.RetryAll:
		c.Hazards = append(c.Hazards, topology.UncountedNack)
		why := "consumers must requeue what fails with basic.reject: what they requeue with basic.nack is delayed, but never counted, what they reject without requeue is a dead letter at once, and what they hold when a channel closes loses a retry"
		if c.Reason != "" {
			why = c.Reason + "; " + why
		}
		c.Reason = why
	case f.Before == topology.RetryAll && c.Action == Update:
		c.Phase = phaseDetach
	}
}
