package amqp

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
)

// ClosedError is why the broker ended a channel or a connection, in the broker's words.
type ClosedError struct {
	Code   int
	Reason string // on one line
	// Broker reports that the reason comes from the broker; otherwise it comes from the library, as
	// for a connection that was lost.
	Broker bool
	kind   error // one of the errors of package broker, or nil
}

// Error returns the reason, with the code where no sentinel explains it and the broker sent one.
func (e *ClosedError) Error() string {
	switch {
	case e.kind != nil:
		return e.Reason
	case !e.Broker && timedOut(e.Reason):
		return fmt.Sprintf("the broker sent nothing in time, not even a heartbeat, and the connection was closed (%s)", e.Reason)
	case !e.Broker:
		return fmt.Sprintf("the connection to the broker was lost (%s)", e.Reason)
	}
	return fmt.Sprintf("the broker closed the channel: %d %s", e.Code, e.Reason)
}

// timedOut reports whether the library gave up reading. It keeps only the text of the error.
func timedOut(reason string) bool { return strings.HasSuffix(reason, os.ErrDeadlineExceeded.Error()) }

// Unwrap returns the sentinel. Where none of a channel applies, it is ErrInternal for a broker that
// failed, and ErrUnreachable for a connection that was lost or that the broker ended as a whole.
func (e *ClosedError) Unwrap() error {
	switch {
	case e.kind != nil:
		return e.kind
	case !e.Broker, endsConnection(e.Code):
		return broker.ErrUnreachable
	case e.Code == amqp091.InternalError:
		return broker.ErrInternal
	default:
		return nil
	}
}

// endsConnection reports whether the code of an answer is about the connection, not about what was
// requested on it: a node that stops, an operator who closes the connection, or frames that do not
// belong together, as when an answer was lost.
func endsConnection(code int) bool {
	return code == amqp091.ConnectionForced || code == amqp091.FrameError || code == amqp091.ChannelError
}

// Forced reports whether a node that stops, or an operator, has ended the connection. No message is
// the reason.
func (e *ClosedError) Forced() bool { return e.Broker && e.Code == amqp091.ConnectionForced }

// ByMessage reports whether a message may be the reason, so that the same will happen again.
func (e *ClosedError) ByMessage() bool {
	if !e.Broker {
		return e.Reason == amqp091.ErrSyntax.Error() || e.Reason == amqp091.ErrFrame.Error()
	}
	return !e.Forced() && e.Code != amqp091.NotFound
}

// Refuses reports whether the user may not publish to an exchange.
func (e *ClosedError) Refuses(exchange string) bool {
	return e.Broker && e.Code == amqp091.AccessRefused && names(e.Reason, exchange)
}

// AboutKey reports whether the user lacks a topic permission for the routing key of a message.
func (e *ClosedError) AboutKey() bool {
	return e.Broker && e.Code == amqp091.AccessRefused && strings.Contains(e.Reason, topicRefused)
}

// RefusesKey reports whether it is for this key of that exchange.
func (e *ClosedError) RefusesKey(exchange, key string) bool {
	return e.AboutKey() && namesKey(e.Reason, exchange, key)
}

// Internal reports whether the broker refused a message because clients may not publish to the
// exchange, whatever their rights: check_internal_exchange in rabbit_channel (measured on 3.10.8,
// 4.0.5 and 4.3.6).
func (e *ClosedError) Internal() bool {
	return e.Broker && e.Code == amqp091.AccessRefused &&
		strings.HasPrefix(e.Reason, "ACCESS_REFUSED - cannot publish to internal ")
}

// sizeLimit matches how RabbitMQ reports max_message_size, in rabbit_channel (measured on 3.10.8,
// 4.0.5 and 4.3.6).
var sizeLimit = regexp.MustCompile(`^PRECONDITION_FAILED - message size \d+ .*max size (\d+)`)

// SizeLimit returns the size of the largest body that the broker accepts, if it refused one for its
// size.
func (e *ClosedError) SizeLimit() (int, bool) {
	m := sizeLimit.FindStringSubmatch(e.Reason)
	if !e.Broker || e.Code != amqp091.PreconditionFailed || m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}

// consumerTimeout matches how RabbitMQ before 4.3 reports a delivery that was unacknowledged for
// longer than consumer_timeout, in rabbit_channel (3.10 to 4.2).
var consumerTimeout = regexp.MustCompile(`^PRECONDITION_FAILED - delivery acknowledgement on channel \d+ timed out\. .* (\d+) ms`)

// ConsumerTimeout returns how long a delivery may be unacknowledged, if the broker ended the
// channel as one was for longer.
func (e *ClosedError) ConsumerTimeout() (time.Duration, bool) {
	m := consumerTimeout.FindStringSubmatch(e.Reason)
	if !e.Broker || e.Code != amqp091.PreconditionFailed || m == nil {
		return 0, false
	}
	ms, err := strconv.Atoi(m[1])
	return time.Duration(ms) * time.Millisecond, err == nil
}

// explainChannel returns sentinels for the channel exceptions that callers distinguish.
func explainChannel(err error) error {
	var e *amqp091.Error
	if !errors.As(err, &e) {
		return err
	}
	out := &ClosedError{Code: e.Code, Reason: broker.OneLine(e.Reason), Broker: e.Server}
	switch e.Code {
	case amqp091.NotFound:
		out.kind = broker.ErrNotFound
	case amqp091.ResourceLocked:
		out.kind = broker.ErrInUse
	case amqp091.AccessRefused:
		out.kind = broker.ErrForbidden
		if strings.Contains(e.Reason, "in exclusive use") {
			out.kind = broker.ErrInUse
		}
	}
	return out
}
