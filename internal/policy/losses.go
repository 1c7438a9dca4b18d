package policy

import (
	"fmt"
	"time"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// AutoDelete is the Argument of the [Loss] of a queue that is deleted with its last consumer.
const AutoDelete = "auto-delete"

// Loss is a setting by which a queue gives up messages that no consumer has taken.
type Loss struct {
	// Argument is x-message-ttl, x-expires, x-max-length, x-max-length-bytes or [AutoDelete].
	Argument string
	// Limit is its value, in milliseconds, messages or bytes. Zero for AutoDelete.
	Limit int64
}

// Losses returns the settings by which a queue gives up messages that no consumer has taken, by the
// arguments that [Set.Effective] returns. What it dead-letters is not given up: a deletion of the
// queue dead-letters nothing. Streams keep messages in their own way, and have none.
func Losses(q topology.Queue, effective topology.Arguments) []Loss {
	if q.Type() == topology.Stream {
		return nil
	}
	var names []string
	if !effective.HasAny(topology.ArgDeadLetterExchange) {
		names = append(names, topology.ArgMessageTTL)
		if OverflowOf(q, effective) == DropHead {
			names = append(names, topology.ArgMaxLength, topology.ArgMaxLengthBytes)
		}
	}
	var out []Loss
	for _, name := range append(names, topology.ArgExpires) {
		if limit, ok := effective[name].(int64); ok {
			out = append(out, Loss{name, limit})
		}
	}
	if q.AutoDelete {
		out = append(out, Loss{Argument: AutoDelete})
	}
	return out
}

// The least TTL and length limit of a queue that keeps dead letters which are taken for a retention
// that is meant: what such a queue drops was kept.
const (
	retention     = 24 * time.Hour
	retainedCount = 10_000
)

// Retains reports whether what the queue gives up was kept long enough: for a day, or until there
// were 10,000 messages.
func (l Loss) Retains() bool {
	return l.Argument == topology.ArgMessageTTL && l.Limit >= retention.Milliseconds() ||
		l.Argument == topology.ArgMaxLength && l.Limit >= retainedCount
}

// Deletes reports whether the queue itself is deleted, with all messages in it.
func (l Loss) Deletes() bool { return l.Argument == topology.ArgExpires || l.Argument == AutoDelete }

// String says what the setting does to dead letters, as the continuation of the name of a queue:
// "deletes dead letters after 5s".
func (l Loss) String() string {
	switch {
	case l.Argument == topology.ArgMessageTTL && l.Limit == 0:
		return "deletes dead letters at once"
	case l.Argument == topology.ArgMessageTTL:
		return "deletes dead letters after " + text.Millis(l.Limit)
	case l.Argument == topology.ArgMaxLength:
		return fmt.Sprintf("deletes its oldest dead letter above %s", text.Count(l.Limit, "message"))
	case l.Argument == topology.ArgMaxLengthBytes:
		return fmt.Sprintf("deletes its oldest dead letter above %s", text.Count(l.Limit, "byte"))
	case l.Argument == topology.ArgExpires:
		return fmt.Sprintf("is deleted with its dead letters after %s without a consumer", text.Millis(l.Limit))
	default:
		return "is deleted with its dead letters when its last consumer disconnects"
	}
}

// The values of x-overflow that package topology has no names for.
const (
	DropHead         = "drop-head"
	RejectPublishDLX = "reject-publish-dlx"
)

// OverflowOf returns what a queue does when it is full, a value of x-overflow, by the arguments
// that [Set.Effective] returns. Empty: its length is not limited.
func OverflowOf(q topology.Queue, effective topology.Arguments) string {
	overflow, _ := effective[topology.ArgOverflow].(string)
	switch {
	case !effective.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes):
		return ""
	case overflow == "", overflow == RejectPublishDLX && q.Type() == topology.Quorum:
		return DropHead // a quorum queue takes reject-publish-dlx for drop-head, and logs a warning
	default:
		return overflow
	}
}
