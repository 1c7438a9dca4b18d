package relay

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
)

// Sink is where messages go: a broker.Publisher.
type Sink interface {
	Publish(exchange, key string, m amqp.Publishing) (uint64, error)
	Confirms() <-chan amqp.Confirmation
	Outcome(c amqp.Confirmation) broker.Outcome
	Late() (oldest uint64, late []broker.Outcome)
	Err() error
}
