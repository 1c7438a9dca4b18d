package amqp

import (
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// LastDeath returns the queue in which a message was dead-lettered last. Empty: in none.
func LastDeath(headers amqp091.Table) string {
	list, _ := headers[topology.HeaderDeath].([]any)
	if len(list) == 0 {
		return ""
	}
	death, _ := list[0].(amqp091.Table)
	queue, _ := death["queue"].(string)
	return queue
}
