package relay

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker"
)

// Sink is where messages go: a broker.Publisher.
type Sink interface {
	Publish(exchange, key string, m amqp.Publishing) (uint64, error)
	Settled() <-chan struct{}
	Outcomes() []broker.Outcome
	Late() (oldest uint64, late []broker.Outcome)
	Err() error
}
