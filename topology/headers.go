package topology

import "strings"

// The headers that the processor writes; docs/headers.md says what they mean. They begin with
// retry-, so that a headers exchange can be bound by them: it skips names that begin with x-.
const (
	// RetryPrefix begins the names of all of them.
	RetryPrefix         = "retry-"
	HeaderQueue         = "retry-queue"
	HeaderExchange      = "retry-exchange"
	HeaderRoutingKey    = "retry-routing-key"
	HeaderFirstFailedAt = "retry-first-failed-at"
	HeaderLastFailedAt  = "retry-last-failed-at"
	HeaderReason        = "retry-reason"
	HeaderAttempts      = "retry-attempts"
	HeaderError         = "retry-error"
	HeaderHistory       = "retry-history"
	HeaderOriginalCount = "retry-original-count"
	HeaderCC            = "retry-cc"
	HeaderBCC           = "retry-bcc"
	HeaderUserID        = "retry-user-id"
	HeaderExpiration    = "retry-expiration"
	// HeaderUnsureSince is since when the message waits, after its last tier, as it is not known
	// whether its work queue is in outage.
	HeaderUnsureSince = "retry-unsure-since"
	// HeaderFirstQueue is the work queue in which a message failed first, once retryTo has sent it to
	// another one.
	HeaderFirstQueue = "retry-first-queue"
)

// The headers with which a consumer says why it failed, on a copy that it publishes to the exchange
// NAME.failed in place of a rejection (docs/consumers.md). [HeaderError] is one of them, and so are
// [HeaderExchange] and [HeaderRoutingKey] on a first failure. The processor cuts what is longer.
const (
	// HeaderErrorType names the kind of the error, such as its class.
	HeaderErrorType = "retry-error-type"
	// HeaderErrorStack is the stack trace.
	HeaderErrorStack = "retry-error-stack"
	// HeaderPermanent is true on a message that no retry would help: it is dead at once.
	HeaderPermanent = "retry-permanent"
	// HeaderAfter is how long the message has to wait at least: seconds, or a text such as 90s.
	HeaderAfter = "retry-after"
)

// The annotations with which a consumer that speaks AMQP 1.0 says why it settles a message as
// modified, undeliverable here. A publisher can write the same, and one that no settlement
// overwrites stays: RabbitMQ does not tell them apart.
const (
	AnnotatedError      = "x-opt-error"
	AnnotatedErrorType  = "x-opt-error-type"
	AnnotatedErrorStack = "x-opt-error-stack"
)

// The fields of a failure in [HeaderHistory], a list of tables with texts and one integer. A field
// of which nothing is known is missing.
const (
	HistoryAt        = "at"         // as [HeaderTime]
	HistoryAttempt   = "attempt"    // the integer: the first is 1
	HistoryReason    = "reason"     // as in [HeaderReason]
	HistoryErrorType = "error-type" // as in [HeaderErrorType]
	// HistoryAnnotated is the type of the error by [AnnotatedErrorType], where the consumer did not
	// say it in a copy.
	HistoryAnnotated = "annotated-type"
	HistoryTier      = "tier"  // the delay of the tier in which the message then waited, such as 10s
	HistoryQueue     = "queue" // the work queue, on a message with [HeaderFirstQueue]
)

// HeaderTime is how times are written into headers: RFC 3339 with milliseconds, in UTC.
const HeaderTime = "2006-01-02T15:04:05.000Z"

// The headers of RabbitMQ that dlxctl reads and writes.
const (
	// HeaderDeath is the history of dead-lettering: a list of tables, the newest first.
	HeaderDeath = "x-death"
	// HeaderFirstDeath and HeaderLastDeath begin the names of headers with the queue, the reason and
	// the exchange of the first and the last death.
	HeaderFirstDeath = "x-first-death-"
	HeaderLastDeath  = "x-last-death-"
	// HeaderDeliveryCount is how often a quorum queue has returned the message.
	HeaderDeliveryCount = "x-delivery-count"
	// CC and BCC are lists of more routing keys. The broker removes BCC, and refuses a value that
	// is not a list, as messages of other protocols may have it.
	CC  = "CC"
	BCC = "BCC"
)

// SetAside returns the name under which CC, BCC or x-death is kept, where the header itself would
// route the message or be refused.
func SetAside(header string) string { return RetryPrefix + strings.ToLower(header) }

// RetryHeaders returns the headers that the processor and failing consumers write, without the
// count header. A first failure replaces or removes them: what a publisher set under these names
// means nothing.
func RetryHeaders() []string {
	return []string{
		HeaderQueue, HeaderExchange, HeaderRoutingKey, HeaderFirstFailedAt, HeaderLastFailedAt, HeaderReason,
		HeaderAttempts, HeaderHistory, HeaderError, HeaderErrorType, HeaderErrorStack, HeaderPermanent, HeaderAfter,
		HeaderOriginalCount, HeaderCC, HeaderBCC, HeaderUserID, HeaderExpiration,
		HeaderUnsureSince, HeaderFirstQueue,
	}
}

// IsDeathHeader reports whether a header is one in which RabbitMQ writes where a message was
// dead-lettered.
func IsDeathHeader(name string) bool {
	return name == HeaderDeath || strings.HasPrefix(name, HeaderFirstDeath) ||
		strings.HasPrefix(name, HeaderLastDeath)
}

// IsDeliveryCount reports whether a header is one in which RabbitMQ counts deliveries. It belongs
// to one delivery and is never republished.
func IsDeliveryCount(name string) bool {
	return name == HeaderDeliveryCount || name == "x-acquired-count"
}
