package amqp

import (
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/topology"
)

// Listen subscribes to copies of what an exchange routes by these keys, through a queue of that
// name. The queue belongs to the connection and ends with it. It keeps the newest messages, most
// of them at the most, so that it never holds back those who publish. The arguments are those of
// its bindings.
func (c *Conn) Listen(
	queue, exchange string, keys []string, most int, args topology.Arguments,
) (*Consumer, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if _, err := ch.QueueDeclare(queue, false, true, true, false, amqp091.Table{
		topology.ArgQueueType: topology.Classic, topology.ArgMaxLength: int64(most), topology.ArgOverflow: "drop-head",
	}); err != nil {
		return nil, explainChannel(err)
	}
	for _, key := range keys {
		if err := ch.QueueBind(queue, key, exchange, false, Table(args)); err != nil {
			return nil, explainChannel(err)
		}
	}
	if err := ch.Close(); err != nil { // the queue belongs to the connection
		return nil, err
	}
	return c.Consume(queue, listenPrefetch, 0)
}

// listenPrefetch is the prefetch of a listener.
const listenPrefetch = 1000
