package migrate

import (
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// asBrokerWrites reports whether the history of a message, if it has one, has the form in which
// RabbitMQ writes it. A publisher can send any header of that name. RabbitMQ 3.x believes it: at
// such a message at-least-once dead-lettering of a quorum queue crashes, for all queues of the
// node, or the message comes back in a form that ends the connection of its consumer.
func asBrokerWrites(headers amqp.Table) bool {
	for name, v := range headers {
		_, isText := v.(string)
		switch {
		case name == "x-death" && !deaths(v):
			return false
		case isHistory(name) && name != "x-death" && !isText:
			return false
		}
	}
	return true
}

// isHistory reports whether a header is of those in which RabbitMQ writes where a message died.
func isHistory(name string) bool {
	return name == "x-death" || strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

func deaths(v any) bool {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	for _, entry := range list {
		death, isTable := entry.(amqp.Table)
		if !isTable || !isDeath(death) {
			return false
		}
	}
	return true
}

func isDeath(d amqp.Table) bool {
	_, queue := d["queue"].(string)
	_, reason := d["reason"].(string)
	_, exchange := d["exchange"].(string)
	_, at := d["time"].(time.Time)
	keys, listed := d["routing-keys"].([]any)
	if !queue || !reason || !exchange || !at || !listed {
		return false
	}
	for _, key := range keys {
		if _, ok := key.(string); !ok {
			return false
		}
	}
	if expiration, given := d["original-expiration"]; given {
		if _, ok := expiration.(string); !ok {
			return false
		}
	}
	switch d["count"].(type) {
	case int8, int16, int32, int64, int, uint8, uint16, uint32:
		return true
	default:
		return false
	}
}

// withoutHistory takes the history out of headers.
func withoutHistory(headers amqp.Table) {
	for name := range headers {
		if isHistory(name) {
			delete(headers, name)
		}
	}
}
