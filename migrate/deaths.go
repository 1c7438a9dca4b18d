package migrate

import amqp "github.com/rabbitmq/amqp091-go"

// brokersDeaths reports whether x-death is as the broker writes it. A publisher may
// write anything there. RabbitMQ 3.10 believes it, and a quorum queue that
// dead-letters such a message at-least-once then ends that for the whole node, or
// makes a message that cannot be delivered (measured on 3.10.8). A classic queue,
// from which it is drained, does no such harm.
func brokersDeaths(v any) bool {
	list, ok := v.([]any)
	if !ok {
		return false
	}
	for _, entry := range list {
		death, ok := entry.(amqp.Table)
		if !ok || !brokersDeath(death) {
			return false
		}
	}
	return true
}

// brokersDeath reports so of one entry.
func brokersDeath(death amqp.Table) bool {
	for _, name := range []string{"queue", "reason", "exchange"} {
		if _, ok := death[name].(string); !ok {
			return false
		}
	}
	if _, ok := death["count"].(int64); !ok {
		return false
	}
	keys, ok := death["routing-keys"].([]any)
	if !ok {
		return false
	}
	for _, key := range keys {
		if _, ok := key.(string); !ok {
			return false
		}
	}
	return true
}
