package relay

import (
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// HeaderSize returns the size of the content header of m on the wire, in bytes. A content header
// cannot be split: one that is larger than a frame makes the broker close the connection. Source:
// AMQP 0-9-1, 4.2.6.
func HeaderSize(m amqp091.Publishing) int {
	size := 2 + 2 + 8 + 2 // class, weight, body size, flags
	for _, s := range []string{
		m.ContentType, m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.Expiration, m.MessageId,
		m.Type, m.UserId, m.AppId,
	} {
		if s != "" {
			size += 1 + len(s)
		}
	}
	if m.DeliveryMode > 0 {
		size++
	}
	if m.Priority > 0 {
		size++
	}
	if !m.Timestamp.IsZero() {
		size += 8
	}
	if len(m.Headers) > 0 {
		size += tableSize(m.Headers)
	}
	return size
}

func tableSize(t amqp091.Table) int {
	size := 4
	for name, v := range t {
		size += 1 + len(name) + fieldSize(v)
	}
	return size
}

// fieldSize returns the size of a value with the octet for its type.
func fieldSize(v any) int {
	switch v := v.(type) {
	case nil:
		return 1
	case bool, uint8, int8:
		return 2
	case int16, uint16:
		return 3
	case int, int32, uint32, float32:
		return 5
	case int64, float64, time.Time:
		return 9
	case amqp091.Decimal:
		return 6
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case amqp091.Table:
		return 1 + tableSize(v)
	case []any:
		size := 5
		for _, e := range v {
			size += fieldSize(e)
		}
		return size
	default:
		return 9 // there is no other type in a table that was decoded
	}
}
