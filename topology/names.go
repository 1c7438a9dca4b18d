package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// Arguments that dlxctl reads or writes. A policy has the same settings without x-; an exchange has
// alternate-exchange in both.
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
	ArgExpires              = "x-expires"
	ArgMaxPriority          = "x-max-priority"
	ArgSingleActiveConsumer = "x-single-active-consumer"
	ArgAlternateExchange    = "alternate-exchange"
)

// ArgBoundBy is the argument of a binding of a switch exchange that keeps the owner mark of the
// binding for which it is made: a queue that is replaced under its name gets that one back with its
// mark. The switch exchange itself is bound with the mark of the move, so that the plan of the
// other owner does not delete that. Without the argument, the binding had no mark.
const ArgBoundBy = "x-bound-by"

// Properties of a connection of a processor, while work queues are in outage: tables with the time,
// as in RFC 3339, by the name of the work queue. The processor saw the outage begin then, or has
// known of it since then and may have started later than the outage.
const (
	PropertyInOutageSince       = "dlxctl-in-outage-since"
	PropertyInOutageSinceBefore = "dlxctl-in-outage-since-before"
)

// Keys of policies that dlxctl reads or writes. [PolicyKey] makes them of arguments.
const (
	KeyMessageTTL           = "message-ttl"
	KeyExpires              = "expires"
	KeyDeadLetterExchange   = "dead-letter-exchange"
	KeyDeadLetterRoutingKey = "dead-letter-routing-key"
	KeyDeadLetterStrategy   = "dead-letter-strategy"
	KeyOverflow             = "overflow"
	KeyDeliveryLimit        = "delivery-limit"
	KeyMaxLength            = "max-length"
	KeyMaxLengthBytes       = "max-length-bytes"
	KeyConsumerTimeout      = "consumer-timeout"
	KeyDelayedRetryType     = "delayed-retry-type"
	KeyDelayedRetryMin      = "delayed-retry-min"
	KeyDelayedRetryMax      = "delayed-retry-max"
)

// Values of x-dead-letter-strategy and x-overflow.
const (
	AtLeastOnce   = "at-least-once"
	AtMostOnce    = "at-most-once"
	RejectPublish = "reject-publish"
)

// DefaultExchange is what the permissions of RabbitMQ, and its management API, call the exchange
// without a name.
const DefaultExchange = "amq.default"

const (
	// Unlimited is the delivery limit of queues in which a message must stay whatever happens
	// to its consumers. -1 has that meaning too, but 3.10 reads it as 0 and drops the message
	// at its first return.
	Unlimited int64 = 1<<31 - 1
	// DeadLetterCount is the count of a message that is a dead letter.
	DeadLetterCount int64 = -1
	// MaxAttempts is the greatest number of attempts in one backoff. Each is a
	// binding of the headers exchange.
	MaxAttempts = 1000
	// MaxNameBytes is the greatest length of a name or routing key in AMQP 0-9-1.
	MaxNameBytes = 255
	// MaxDelay is the greatest x-message-ttl that a broker accepts: 2^32-1 ms.
	MaxDelay = (1<<32 - 1) * time.Millisecond
	// NoBackoff is the backoff of a queue whose failures are dead letters at once.
	NoBackoff = "none"
	// PolicyPriority is the priority of the policies of dlxctl, unless another policy
	// for the queue has the same or a higher one. It is high because a new policy of
	// another team that overrides a lower one would take the dead-lettering from the
	// queue, and its rejected messages would be lost.
	PolicyPriority = 1000
	// DefaultCountHeader is the header that counts attempts unless the file says otherwise.
	DefaultCountHeader = "count"
)

// The parts of generated names. What begins with a dot follows the name of the topology, or
// of a backoff or work queue behind it.
const (
	unroutableSuffix    = ".unroutable"
	deadSuffix          = ".dead"
	returnSuffix        = ".return"
	failedSuffix        = ".failed"
	retryExchangeSuffix = ".dlx"
	anySuffix           = ".any"
	nextSuffix          = ".next"
	retryInfix          = ".retry."
	switchInfix         = ".switch."
	holdSuffix          = ".hold"
	lockSuffix          = ".lock"
	deskInfix           = ".desk."
	deskLockPrefix      = "lock."
	deskWorkerSuffix    = ".worker"
	deskLogRun          = "log"
	parkedSuffix        = ".parked"
	verifyInfix         = ".verify."
	policyPrefix        = "dlxctl."
	matchInfix          = ".match."
	deskMarkSuffix      = "/desk"
)

// QueueLabelOf returns the Label that the name of a generated queue implies. It reports false for a
// name that no function of this file gives a queue. It does not know the objects of the topology:
// a work queue that is named like a generated queue is taken for that.
func QueueLabelOf(topology, name string) (Label, bool) {
	switch name {
	case UnroutableName(topology):
		return Label{Role: RoleUnroutable}, true
	case DeadLetterName(topology):
		return Label{Role: RoleDeadLetter}, true
	}
	if label, ok := DelayOf(topology, name); ok {
		return label, true
	}
	if queue, ok := strings.CutSuffix(name, deadSuffix); ok {
		return Label{Role: RoleDeadLetter, Queue: queue}, true
	}
	if backoff, ok := RetryBackoff(topology, name); ok {
		return Label{Role: RoleRetry, Backoff: backoff}, true
	}
	if backoff, ok := FailedBackoff(topology, name); ok {
		return Label{Role: RoleFailed, Backoff: backoff}, true
	}
	return Label{}, false
}

// ExchangeLabelOf is [QueueLabelOf] for an exchange.
func ExchangeLabelOf(topology, name string) (Label, bool) {
	switch name {
	case UnroutableName(topology):
		return Label{Role: RoleUnroutable}, true
	case ReturnExchangeName(topology):
		return Label{Role: RoleReturn}, true
	case DeadLetterName(topology), NextExchangeName(DeadLetterName(topology)):
		return Label{Role: RoleDeadLetter}, true
	case FailedExchangeName(topology), NextExchangeName(FailedExchangeName(topology)),
		AnyFailedExchangeName(topology), NextExchangeName(AnyFailedExchangeName(topology)):
		return Label{Role: RoleFailed}, true
	}
	if label, ok := DelayOf(topology, name); ok {
		return label, true
	}
	if IsOutageQueueName(topology, name) { // its exchange has the same name
		backoff, _ := RetryBackoff(topology, name)
		return Label{Role: RoleRetry, Backoff: backoff}, true
	}
	if retry := strings.TrimSuffix(name, nextSuffix); IsRetryExchangeName(topology, retry) {
		backoff := strings.TrimPrefix(strings.TrimSuffix(retry, retryExchangeSuffix), topology+".")
		return Label{Role: RoleRetry, Backoff: backoff}, true
	}
	return Label{}, false
}

// UnroutableName names the exchange and the queue for messages that the processor cannot
// route.
func UnroutableName(topology string) string { return topology + unroutableSuffix }

// DeadLetterName names the exchange that picks the dead-letter queue, and the queue
// that work queues share with "dead: shared".
func DeadLetterName(topology string) string { return topology + deadSuffix }

// DeadLetterQueueName names the dead-letter queue of one work queue.
func DeadLetterQueueName(queue string) string { return queue + deadSuffix }

// ReturnExchangeName names the exchange that returns messages to their work queues.
func ReturnExchangeName(topology string) string { return topology + returnSuffix }

// FailedExchangeName names the direct exchange that all work queues of a topology
// dead-letter to. Its binding with the key [AddressKey] decides where the failures of a
// queue go: to the failed queue of its backoff, or to the exchange [DeadLetterName].
func FailedExchangeName(topology string) string { return topology + failedSuffix }

// AnyFailedExchangeName names the fanout exchange for failures of work queues that
// [FailedExchangeName] has no binding for: those that a [Match] covers. Only topologies with
// matches have it.
func AnyFailedExchangeName(topology string) string { return FailedExchangeName(topology) + anySuffix }

// NextExchangeName names the alternate exchange of [FailedExchangeName], [AnyFailedExchangeName],
// [DeadLetterName] or [RetryExchangeName], which has bindings only while a route changes.
func NextExchangeName(exchange string) string { return exchange + nextSuffix }

// FailedQueueName names the queue that the processor reads for one backoff.
func FailedQueueName(topology, backoff string) string {
	return topology + "." + backoff + failedSuffix
}

// FailedBackoff returns the backoff in a name that [FailedQueueName] made. It reports false for
// any other name.
func FailedBackoff(topology, name string) (backoff string, ok bool) {
	rest, generated := strings.CutPrefix(name, topology+".")
	backoff, ok = strings.CutSuffix(rest, failedSuffix)
	return backoff, generated && ok && backoff != "" && !strings.Contains(backoff, ".")
}

// RetryExchangeName names the headers exchange that picks the tier.
func RetryExchangeName(topology, backoff string) string {
	return topology + "." + backoff + retryExchangeSuffix
}

// IsRetryExchangeName reports whether exchange is named like the headers exchange of any backoff
// of the topology.
func IsRetryExchangeName(topology, exchange string) bool {
	rest, generated := strings.CutPrefix(exchange, topology+".")
	backoff, ok := strings.CutSuffix(rest, retryExchangeSuffix)
	return generated && ok && backoff != "" && !strings.Contains(backoff, ".")
}

// RetryQueueName names the queue in which messages wait for delay.
func RetryQueueName(topology, backoff string, delay time.Duration) string {
	return RetryQueuePrefix(topology, backoff) + FormatDelay(delay)
}

// RetryQueuePrefix is how the names of the retry queues of a backoff begin.
func RetryQueuePrefix(topology, backoff string) string { return topology + "." + backoff + retryInfix }

// IsRetryQueueName reports whether queue is named like a retry queue of any
// backoff of the topology.
func IsRetryQueueName(topology, queue string) bool {
	_, ok := RetryBackoff(topology, queue)
	return ok
}

// RetryBackoff returns the backoff in a name that [RetryQueueName] made. It reports false
// for any other name. Neither topology nor backoff names hold a dot.
func RetryBackoff(topology, queue string) (backoff string, ok bool) {
	rest, generated := strings.CutPrefix(queue, topology+".")
	backoff, rest, ok = strings.Cut(rest, ".")
	return backoff, generated && ok && backoff != "" && strings.HasPrefix(rest, "retry.")
}

// LockName names the exclusive queue that is the lock of a topology.
func LockName(topology string) string { return topology + lockSuffix }

// HoldName names the hold of a run of the desk: the queue in which the chosen messages lie
// until they are sent. A run is named by lower-case letters, digits and hyphens.
func HoldName(topology, run string) string { return topology + deskInfix + run }

// HoldRun returns the run in a name that [HoldName] made. It reports false for any other name,
// such as that of the failed queue of a backoff that is named desk.
func HoldRun(topology, name string) (run string, ok bool) {
	run, ok = strings.CutPrefix(name, topology+deskInfix)
	_, failed := FailedBackoff(topology, name)
	return run, ok && run != "" && run != deskLogRun && !failed && !strings.Contains(run, ".")
}

// IsHoldName reports whether a queue is named like the hold of a run of the desk.
func IsHoldName(topology, name string) bool {
	_, ok := HoldRun(topology, name)
	return ok
}

// DeskLockName names the exclusive queue that is the lock of the desk for one queue. The name
// has a hash of the queue's name, so that it stays within [MaxNameBytes].
func DeskLockName(topology, queue string) string {
	sum := sha256.Sum256([]byte(queue))
	return topology + deskInfix + deskLockPrefix + hex.EncodeToString(sum[:6])
}

// DeskWorkerName names the exclusive queue of the process that works on a run. It is the lock
// of the run, and receives requests to stop.
func DeskWorkerName(topology, run string) string { return HoldName(topology, run) + deskWorkerSuffix }

// IsDeskWorker reports whether a queue is named like that of a process that works on a run.
func IsDeskWorker(topology, name string) bool {
	run, ok := strings.CutSuffix(name, deskWorkerSuffix)
	return ok && IsHoldName(topology, run)
}

// DeskName stands for the name of a topology where the desk works in a virtual host that has none.
// The names of its queues and exchanges begin with it and a dot.
const DeskName = "desk"

// ParkedName names the queue in which the desk parks messages for 30 days.
func ParkedName(topology string) string { return topology + parkedSuffix }

// LogName names the queue in which the desk keeps the records of the runs that have ended, for 90
// days. Nothing that a user published is ever there.
func LogName(topology string) string { return HoldName(topology, deskLogRun) }

// IsLog reports whether a queue keeps the records of the runs of a topology.
func IsLog(topology string, q Queue) bool {
	return q.Name == LogName(topology) && q.Arguments[ArgManagedBy] == DeskMark(topology)
}

// VerifyName names the queue to which the canaries of a run of verify come back. A run is named by
// lower-case letters and digits. The queue has [DeskMark], so that no plan takes it for a queue
// that is no longer in the file.
func VerifyName(topology, run string) string { return topology + verifyInfix + run }

// IsVerifyQueue reports whether a queue was made by a run of verify.
func IsVerifyQueue(topology string, q Queue) bool {
	return strings.HasPrefix(q.Name, VerifyName(topology, "")) && q.Arguments[ArgManagedBy] == DeskMark(topology)
}

// PolicyName names the policy that gives a queue its dead-lettering.
func PolicyName(topology, queue string) string { return policyPrefix + topology + ".queue." + queue }

// MatchPolicyName names the policy that gives the queues of a type whose names a pattern matches
// their dead-lettering.
func MatchPolicyName(topology, queueType, pattern string) string {
	return policyPrefix + topology + matchInfix + queueType + "." + pattern
}

// IsMatchPolicyName reports whether a policy is named like that of a pattern.
func IsMatchPolicyName(topology, name string) bool {
	return strings.HasPrefix(name, policyPrefix+topology+matchInfix)
}

// PolicyOwner returns the topology that made the policy of that name. It reports
// false for a foreign policy.
func PolicyOwner(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, policyPrefix)
	owner, _, more := strings.Cut(rest, ".")
	return owner, ok && more
}

// PolicyKey returns the key of a policy's definition that does what the queue
// argument of that name does.
func PolicyKey(argument string) string { return strings.TrimPrefix(argument, "x-") }

// SwitchPrefix is how the names of all switch exchanges of a topology begin.
func SwitchPrefix(topology string) string { return topology + switchInfix }

// SwitchExchangeName names the temporary exchange that routes the messages of a legacy queue
// during its cutover. The name has a hash of the queue's name, so that it stays within
// [MaxNameBytes].
func SwitchExchangeName(topology, legacy string) string {
	sum := sha256.Sum256([]byte(legacy))
	return SwitchPrefix(topology) + hex.EncodeToString(sum[:6])
}

// SuccessorEndName names the exchange that leads from the switch exchange of a legacy queue to its
// successor. A cutover makes it first, and the end of the migration deletes it.
func SuccessorEndName(topology, legacy string) string {
	return SwitchExchangeName(topology, legacy) + ".new"
}

// ReplacementHoldName names the quorum queue in which messages wait while a queue is replaced under
// its name. It has [DeskMark], so that no plan takes it for a queue that is no longer in the file.
func ReplacementHoldName(topology, queue string) string {
	return SwitchExchangeName(topology, queue) + holdSuffix
}

// IsReplacementHold reports whether messages wait in a queue while another one is replaced under
// its name. A queue of another client that has such a name lacks the mark.
func IsReplacementHold(topology string, q Queue) bool {
	return IsSwitchName(topology, q.Name) && strings.HasSuffix(q.Name, holdSuffix) &&
		q.Arguments[ArgManagedBy] == DeskMark(topology)
}

// SwitchPolicyName names the policy that says where the switch exchange routes to.
func SwitchPolicyName(topology, legacy string) string {
	return policyPrefix + SwitchExchangeName(topology, legacy)
}

// ForwardPolicyName names the policy by which a legacy queue forwards to its successor.
func ForwardPolicyName(topology, legacy string) string {
	return SwitchPolicyName(topology, legacy) + ".forward"
}

// IsSwitchName reports whether an exchange or policy is named like a switch exchange or its
// policy.
func IsSwitchName(topology, name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, policyPrefix), SwitchPrefix(topology))
}

// AddressKey is the routing key that means one work queue, on the exchanges
// that return messages and that pick dead-letter queues: "@billing". On the latter it may mean a
// dead-letter queue.
func AddressKey(queue string) string { return "@" + queue }

// Addressable reports whether a queue can have an address: a routing key has 255 bytes at most.
func Addressable(queue string) bool { return len(AddressKey(queue)) <= MaxNameBytes }

// UnnamedAddress is the routing key of failures of queues that a [Match] covers: one policy is for
// all of them, and cannot name each. The broker notes in x-death in which queue a message failed.
const UnnamedAddress = "@"

// OwnerMark is the owner mark: the value of x-managed-by on every object that the topology
// owns.
func OwnerMark(topology string) string { return "dlxctl/" + topology }

// DeskMark is the owner mark of the queues that the desk makes: holds, the queue of parked
// messages, and that of the records of runs. No file declares them, and only the desk deletes them.
// The mark names another owner than [OwnerMark] does, so that a plan, also one of a release that
// does not know the desk, never takes them for queues that are no longer in the file. No topology
// name has a slash.
func DeskMark(topology string) string { return OwnerMark(topology) + deskMarkSuffix }

// IsDeskQueue reports whether a queue was made by the desk of the topology: a hold, the queue of
// parked messages or that of the records of runs, which have [DeskMark], or an exclusive queue of a
// process of the desk.
func IsDeskQueue(topology string, q Queue) bool {
	if q.Exclusive {
		return strings.HasPrefix(q.Name, topology+deskInfix)
	}
	return q.Arguments[ArgManagedBy] == DeskMark(topology)
}

// DeskSender returns the topology and the run of a desk if a binding leads from an exchange of that
// run to a queue. It reports false for any other binding.
func DeskSender(b Binding) (topology, run string, ok bool) {
	owner, _ := Owner(b.Arguments)
	topology, isDesk := strings.CutSuffix(owner, deskMarkSuffix)
	run, sends := strings.CutPrefix(b.Source, topology+deskInfix)
	run, _, _ = strings.Cut(run, ".")
	return topology, run, isDesk && sends && run != ""
}

// Owner returns the topology that the owner mark in args names. It reports false if args have
// no owner mark of dlxctl.
func Owner(args Arguments) (string, bool) {
	v, _ := args[ArgManagedBy].(string)
	return strings.CutPrefix(v, "dlxctl/")
}
