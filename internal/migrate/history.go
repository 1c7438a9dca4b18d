package migrate

import (
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// asBrokerWrites reports whether the history of a message, if it has one, has the form in
// which RabbitMQ writes it. A publisher can send any header of that name. RabbitMQ 3.x trusts
// it: such a message crashes the at-least-once dead-lettering of quorum queues, for all queues
// of the node, or returns in a form that closes the connection of its consumer.
func asBrokerWrites(headers amqp091.Table) bool {
	for name, v := range headers {
		_, isText := v.(string)
		switch {
		case name == topology.HeaderDeath && !deaths(v):
			return false
		case topology.IsDeathHeader(name) && name != topology.HeaderDeath && !isText:
			return false
		}
	}
	return true
}

func deaths(v any) bool {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return false
	}
	for _, entry := range list {
		death, isTable := entry.(amqp091.Table)
		if !isTable || !isDeath(death) {
			return false
		}
	}
	return true
}

func isDeath(d amqp091.Table) bool {
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

func withoutHistory(headers amqp091.Table) {
	for name := range headers {
		if topology.IsDeathHeader(name) {
			delete(headers, name)
		}
	}
}
