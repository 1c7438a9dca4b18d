package migrate

import (
	"strings"

	"github.com/dlxctl/dlxctl/internal/broker/management"
)

// client is what the usual code of a client library does after basic.cancel. The table of the page
// docs/same-name.md has a row for each.
type client struct {
	// product and platform are how the library calls itself in the properties of its connections. The
	// platform may be followed by a version, and an empty one is any.
	product, platform string
	name              string // of the library, with the version that was measured
	code, does        string
	idle              bool // it stays connected and consumes nothing
}

const staysIdle = "stays connected and idle"

// clients returns what was measured, on RabbitMQ 4.3.6 and 3.10.8.
func clients() []client {
	const pika = "Pika Python Client Library"
	return []client{
		{pika, "", "pika 1.2", "`SelectConnection`, the documented example", "subscribes again in 1 to 2 s", false},
		{
			pika, "", "pika 1.2", "`BlockingConnection` with a loop on `AMQPConnectionError`",
			"`start_consuming` returns, the program ends", false,
		},
		{
			"amqplib", "", "amqplib 0.10", "callback of the tutorial",
			"the callback gets null and throws, the program ends", false,
		},
		{"amqplib", "", "amqplib 0.10", "null is checked", staysIdle, true},
		{"RabbitMQ", "Java", "Java client 5.0", "automatic recovery, `DefaultConsumer`", staysIdle, true},
		{
			"AMQP 0.9.1 Client", "golang", "amqp091-go", "`for range deliveries`",
			"the loop ends, the connection stays", false,
		},
	}
}

// afterCancel says what is known of a client with such properties: whether it was measured, and
// whether it stays idle, if its code is as usual.
func afterCancel(p management.Properties) (measured, idle bool) {
	for _, c := range clients() {
		if c.product == p.Product && strings.HasPrefix(p.Platform, c.platform) {
			measured, idle = true, idle || c.idle
		}
	}
	return measured, idle
}

// library names a client library: "amqplib 0.10.3".
func library(p management.Properties) string {
	name := p.Product
	switch name {
	case "":
		return "an unknown client"
	case "RabbitMQ": // as the libraries of RabbitMQ for Java and for .NET call themselves
		name = "RabbitMQ client for " + p.Platform
	}
	return strings.TrimSpace(name + " " + p.Version)
}
