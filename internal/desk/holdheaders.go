package desk

import (
	"maps"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/deadletter"
	"github.com/dlxctl/dlxctl/internal/relay"
	"github.com/dlxctl/dlxctl/topology"
)

// Headers that a message has while it is in a hold, or parked. They are not part of its handle.
const (
	headerQueue      = "desk-queue"      // the queue that it was taken from
	headerExchange   = "desk-exchange"   // the exchange by which it came into that queue
	headerExpiration = "desk-expiration" // the property, which must not apply in a hold
	headerUserID     = "desk-user-id"    // the property, which the broker accepts from that user only
)

// More headers of a parked message, in place of headerQueue.
const (
	headerParkedFrom   = deadletter.HeaderParkedFrom
	headerParkedKey    = "desk-parked-key" // its key there
	headerParkedAt     = "desk-parked-at"
	headerParkedBy     = "desk-parked-by"
	headerParkedReason = "desk-parked-reason"
	headerParkedAs     = "desk-parked-as"
)

// toHold returns a message as it is published to the hold. fromHold is its inverse.
//
// Nothing that came with the message is believed there: deadletter.Aside puts aside what it has
// under names of the desk. A publisher that could set headerExpiration would
// decide when the message expires after its return.
func toHold(d amqp091.Delivery, queue string) amqp091.Publishing {
	h := deadletter.Aside(d.Headers)
	maps.DeleteFunc(h, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	h[headerQueue], h[headerExchange] = queue, d.Exchange
	if d.Expiration != "" {
		h[headerExpiration] = d.Expiration
	}
	if d.UserId != "" {
		h[headerUserID] = d.UserId
	}
	return relay.Republish(d, h)
}

// fromHold returns a message of a hold as it was in its queue, but for the delivery itself.
func fromHold(d amqp091.Delivery) amqp091.Delivery {
	d.Exchange, _ = d.Headers[headerExchange].(string)
	d.Expiration, _ = d.Headers[headerExpiration].(string)
	d.UserId, _ = d.Headers[headerUserID].(string)
	d.Headers = deadletter.Restore(d.Headers)
	maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return topology.IsDeliveryCount(name) })
	return d
}

// toParked returns a message of a queue as it is published to the queue of parked ones. fromParked
// is its inverse.
func (m *manifest) toParked(d amqp091.Delivery, from, as, at string) amqp091.Publishing {
	p := toHold(d, "")
	delete(p.Headers, headerQueue)
	p.Headers[headerParkedFrom], p.Headers[headerParkedKey] = from, d.RoutingKey
	p.Headers[headerParkedAt], p.Headers[headerParkedAs] = at, as
	p.Headers[headerParkedBy], p.Headers[headerParkedReason] = m.By, m.Reason
	return p
}

// fromParked returns a message that lies in a queue as it was before it was parked: as it is, if it
// does not lie in the queue of parked ones, where alone its headers say so.
func (d *Desk) fromParked(m amqp091.Delivery, queue string) amqp091.Delivery {
	if queue != topology.ParkedName(d.Topology.Name) || parkedFrom(m) == "" {
		return m
	}
	key, _ := m.Headers[headerParkedKey].(string)
	m = fromHold(m)
	m.RoutingKey = key
	return m
}

// parkedFrom returns the queue from which a message was parked that lies in the queue of parked
// ones. Empty: none has parked it.
func parkedFrom(m amqp091.Delivery) string {
	from, _ := m.Headers[headerParkedFrom].(string)
	return from
}
