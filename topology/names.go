package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// Arguments and policy keys that dlxctl reads or writes.
const (
	ArgQueueType            = "x-queue-type"
	ArgMessageTTL           = "x-message-ttl"
	ArgDeadLetterExchange   = "x-dead-letter-exchange"
	ArgDeadLetterRoutingKey = "x-dead-letter-routing-key"
	ArgDeadLetterStrategy   = "x-dead-letter-strategy"
	ArgOverflow             = "x-overflow"
	ArgDeliveryLimit        = "x-delivery-limit"
	ArgMaxLength            = "x-max-length"
	ArgMaxLengthBytes       = "x-max-length-bytes"
	ArgMatch                = "x-match"
	ArgManagedBy            = "x-managed-by"
	ArgAlternateExchange    = "alternate-exchange"
)

// Values of x-dead-letter-strategy and x-overflow.
const (
	AtLeastOnce   = "at-least-once"
	AtMostOnce    = "at-most-once"
	RejectPublish = "reject-publish"
)

const (
	// Unlimited is the delivery limit of queues in which a message must stay
	// whatever happens to its consumers. -1 would say so too, but 3.10 takes it
	// for 0 and destroys the message at its first return.
	Unlimited int64 = 1<<31 - 1
	// DeadCount is the count of a message that is a dead letter.
	DeadCount int64 = -1
	// MaxAttempts is the greatest number of attempts in one backoff. Each is a
	// binding of the headers exchange.
	MaxAttempts = 1000
	// MaxNameBytes is the greatest length of a name or routing key in AMQP 0-9-1.
	MaxNameBytes = 255
	// MaxDelay is the greatest x-message-ttl that a broker takes: 2^32-1 ms.
	MaxDelay = (1<<32 - 1) * time.Millisecond
	// NoBackoff is the backoff of a queue whose failures are dead letters at once.
	NoBackoff = "none"
	// PolicyPriority is the priority of our policies, unless another policy for
	// the queue has as much: high, as a queue that loses its dead-lettering to
	// somebody's new policy loses the messages that it would have dead-lettered.
	PolicyPriority = 1000
	// DefaultCountHeader is the header that counts attempts unless the file says otherwise.
	DefaultCountHeader = "count"
)

// UnroutableName names the exchange and the queue for what fitted nowhere.
func UnroutableName(topology string) string { return topology + ".unroutable" }

// DeadName names the exchange that picks the dead-letter queue, and the queue
// that work queues share with "dead: shared".
func DeadName(topology string) string { return topology + ".dead" }

// OwnDeadName names the dead-letter queue of one work queue.
func OwnDeadName(queue string) string { return queue + ".dead" }

// ReturnName names the exchange that brings messages back to their queues.
func ReturnName(topology string) string { return topology + ".return" }

// FailedExchangeName names the direct exchange that all work queues of a topology
// dead-letter to. Its binding with the key [AddressKey] decides where the failures of a
// queue go: to the failed queue of its backoff, or to the exchange [DeadName].
func FailedExchangeName(topology string) string { return topology + ".failed" }

// NextFailedExchangeName names the alternate exchange of [FailedExchangeName]. It has
// bindings only while the failures of a queue change their way.
func NextFailedExchangeName(topology string) string { return topology + ".failed.next" }

// FailedName names the queue that the processor reads for one backoff. Up to the
// release before [FailedExchangeName] a fanout exchange of the same name led there, and
// work queues dead-lettered to that.
func FailedName(topology, backoff string) string { return topology + "." + backoff + ".failed" }

// FailedBackoff gives the backoff in a name that [FailedName] made. It reports false for
// any other name.
func FailedBackoff(topology, name string) (backoff string, ok bool) {
	rest, ours := strings.CutPrefix(name, topology+".")
	backoff, ok = strings.CutSuffix(rest, ".failed")
	return backoff, ours && ok && backoff != "" && !strings.Contains(backoff, ".")
}

// RetryExchangeName names the headers exchange that picks the tier.
func RetryExchangeName(topology, backoff string) string { return topology + "." + backoff + ".dlx" }

// RetryQueueName names the queue in which messages wait for delay.
func RetryQueueName(topology, backoff string, delay time.Duration) string {
	return topology + "." + backoff + ".retry." + FormatDelay(delay)
}

// IsRetryQueueName reports whether queue is named like a retry queue of any
// backoff of the topology.
func IsRetryQueueName(topology, queue string) bool {
	_, ok := RetryBackoff(topology, queue)
	return ok
}

// RetryBackoff gives the backoff in a name that [RetryQueueName] made. It reports false
// for any other name. Neither topology nor backoff names hold a dot.
func RetryBackoff(topology, queue string) (backoff string, ok bool) {
	rest, ours := strings.CutPrefix(queue, topology+".")
	backoff, rest, ok = strings.Cut(rest, ".")
	return backoff, ours && ok && backoff != "" && strings.HasPrefix(rest, "retry.")
}

// LockName names the exclusive queue that is the lock of a topology.
func LockName(topology string) string { return topology + ".lock" }

// PolicyName names the policy that brings a queue its dead-lettering.
func PolicyName(topology, queue string) string { return policyPrefix + topology + ".queue." + queue }

// PolicyOwner gives the topology that made the policy of that name. It reports
// false for a policy of somebody else.
func PolicyOwner(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, policyPrefix)
	owner, _, more := strings.Cut(rest, ".")
	return owner, ok && more
}

const policyPrefix = "dlxctl."

// PolicyKey gives the key of a policy's definition that does what the queue
// argument of that name does.
func PolicyKey(argument string) string { return strings.TrimPrefix(argument, "x-") }

// SwitchName names the exchange that leads a legacy queue's messages during its
// migration: its hash keeps the name within bounds. What belongs to it adds a
// suffix.
func SwitchName(topology, legacy string) string {
	sum := sha256.Sum256([]byte(legacy))
	return topology + ".switch." + hex.EncodeToString(sum[:6])
}

// SwitchPolicyName names the policy that says where a switch leads.
func SwitchPolicyName(topology, legacy string) string {
	return policyPrefix + SwitchName(topology, legacy)
}

// ForwardPolicyName names the policy by which a legacy queue forwards to its successor.
func ForwardPolicyName(topology, legacy string) string {
	return SwitchPolicyName(topology, legacy) + ".forward"
}

// IsSwitchName reports whether an exchange or policy is named like those that
// lead messages during a migration.
func IsSwitchName(topology, name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, policyPrefix), topology+".switch.")
}

// AddressKey is the routing key that means one work queue, on the exchanges
// that return messages and that pick dead-letter queues: "@billing".
func AddressKey(queue string) string { return "@" + queue }

// Mark is the value of x-managed-by on everything that the topology owns.
func Mark(topology string) string { return "dlxctl/" + topology }

// Owner gives the topology named by the mark in args. It reports false if there
// is no mark of dlxctl.
func Owner(args Arguments) (string, bool) {
	v, _ := args[ArgManagedBy].(string)
	return strings.CutPrefix(v, "dlxctl/")
}
