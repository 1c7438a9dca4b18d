package amqp

import (
	"time"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp/wire"
)

// ExplainDial explains why a connection could not be opened.
func ExplainDial(e broker.Endpoint, socket *wire.Socket, err error) error {
	return explainDial(e, socket, err)
}

// PerConsumer returns options that give each consumer at most n messages.
func (o HolderOptions) PerConsumer(n int) HolderOptions {
	o.perConsumer = n
	return o
}

// AnswerTime returns options that give the broker that time to answer.
func (o HolderOptions) AnswerTime(t time.Duration) HolderOptions {
	o.answerTime = t
	return o
}
