package broker

import (
	"fmt"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ClosedError is why the broker ended a channel or a connection, in its own words.
type ClosedError struct {
	Code   int
	Reason string // on one line
	// Broker says that the broker said so; otherwise the library did, as of a
	// connection that is gone.
	Broker bool
	kind   error // one of the errors of this package, or nil
}

// Error gives the reason, with the code where no sentinel says what it means.
func (e *ClosedError) Error() string {
	if e.kind != nil {
		return e.Reason
	}
	return fmt.Sprintf("the broker closed the channel: %d %s", e.Code, e.Reason)
}

// Unwrap gives the sentinel.
func (e *ClosedError) Unwrap() error { return e.kind }

// ByMessage reports whether a message may be the reason, so that the same will
// happen again. A node that stops, or an operator, ends connections with
// CONNECTION_FORCED.
func (e *ClosedError) ByMessage() bool {
	if !e.Broker {
		return e.Reason == amqp.ErrSyntax.Error() || e.Reason == amqp.ErrFrame.Error()
	}
	return e.Code != amqp.ConnectionForced && e.Code != amqp.NotFound
}

// Refuses reports whether the user lacks the right to publish to an exchange.
func (e *ClosedError) Refuses(exchange string) bool {
	return e.Broker && e.Code == amqp.AccessRefused && names(e.Reason, exchange)
}

// sizeLimit is how RabbitMQ names max_message_size, in rabbit_channel
// (measured on 3.10.8, 4.0.5 and 4.3.6).
var sizeLimit = regexp.MustCompile(`^PRECONDITION_FAILED - message size \d+ .*max size (\d+)`)

// SizeLimit gives the size of the largest body that the broker takes, if it
// refused one for its size.
func (e *ClosedError) SizeLimit() (int, bool) {
	m := sizeLimit.FindStringSubmatch(e.Reason)
	if !e.Broker || e.Code != amqp.PreconditionFailed || m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}
