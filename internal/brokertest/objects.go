package brokertest

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Declare declares a durable queue, and fails the test if the broker refuses it.
func Declare(tb testing.TB, ch *amqp091.Channel, queue string, args amqp091.Table) {
	tb.Helper()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		tb.Fatalf("declare queue %q: %v", queue, err)
	}
}

// DeclareExchange declares a durable exchange of that type, and fails the test if the broker
// refuses it.
func DeclareExchange(tb testing.TB, ch *amqp091.Channel, exchange, kind string, args amqp091.Table) {
	tb.Helper()
	if err := ch.ExchangeDeclare(exchange, kind, true, false, false, false, args); err != nil {
		tb.Fatalf("declare exchange %q: %v", exchange, err)
	}
}

// Bind binds a queue to an exchange, and fails the test if the broker refuses it.
func Bind(tb testing.TB, ch *amqp091.Channel, queue, key, exchange string, args amqp091.Table) {
	tb.Helper()
	if err := ch.QueueBind(queue, key, exchange, false, args); err != nil {
		tb.Fatalf("bind queue %q to exchange %q with key %q: %v", queue, exchange, key, err)
	}
}

// Unbind removes a binding of a queue, and fails the test if the broker refuses it.
func Unbind(tb testing.TB, ch *amqp091.Channel, queue, key, exchange string, args amqp091.Table) {
	tb.Helper()
	if err := ch.QueueUnbind(queue, key, exchange, args); err != nil {
		tb.Fatalf("unbind queue %q from exchange %q with key %q: %v", queue, exchange, key, err)
	}
}

// Delete deletes a queue with what is in it, and fails the test if the broker refuses it.
func Delete(tb testing.TB, ch *amqp091.Channel, queue string) {
	tb.Helper()
	if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
		tb.Fatalf("delete queue %q: %v", queue, err)
	}
}
