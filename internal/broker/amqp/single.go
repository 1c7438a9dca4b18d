package amqp

import (
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/text"
)

// deliveryTime is how long EmptyToConsumer waits for a message. The broker delivers one that is
// ready within milliseconds of the subscription.
const deliveryTime = time.Second

// EmptyToConsumer reports whether a queue has nothing ready, where basic.get cannot tell: RabbitMQ
// refuses it on a quorum queue with a single active consumer (405, measured on 3.10.8, 4.0.5 and
// 4.3.6). It subscribes, which goes through the leader's log as basic.get does. The queue is empty
// if it then delivers no message and counts none. With another consumer only the count tells.
//
// Nothing is acknowledged: a message that arrives returns to its place. EmptyToConsumer fails with
// ErrRefused if a 0 took so long that the broker may have answered for a leader that is silent.
func (c *Conn) EmptyToConsumer(queue string) (bool, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	if err := ch.Qos(1, 0, false); err != nil {
		return false, explainChannel(err)
	}
	deliveries, err := ch.Consume(queue, consumerTag, false, false, false, false, nil)
	if err != nil {
		return false, explainChannel(err)
	}
	began := time.Now()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return false, explainChannel(err)
	}
	took := time.Since(began)
	timer := time.NewTimer(deliveryTime)
	defer timer.Stop()
	var arrived []amqp091.Delivery
	select {
	case d, ok := <-deliveries:
		if !ok {
			return false, ErrCanceled
		}
		arrived = append(arrived, d)
	case <-timer.C:
	}
	// Before a message is returned, or the queue would deliver it here again.
	if err := ch.Cancel(consumerTag, false); err != nil {
		return false, explainChannel(err)
	}
	for d := range deliveries { // what arrived since
		arrived = append(arrived, d)
	}
	for _, d := range arrived {
		if err := d.Nack(false, true); err != nil {
			return false, err
		}
	}
	empty := len(arrived) == 0 && q.Messages == 0
	if empty && took >= silence {
		return false, broker.Errorf(broker.ErrRefused,
			"the queue took %s to answer: it is unknown whether it is empty; check that its leader is up",
			text.Took(took))
	}
	return empty, ch.Close()
}
