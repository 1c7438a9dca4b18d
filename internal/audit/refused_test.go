package audit_test

import (
	"errors"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/audit"
	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// The audit says what RabbitMQ of its version refuses; package arguments has the table, measured.
func TestArgumentRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ version, argument, want string }{
		{"3.10.8", `"x-queue-version": 1`, ""},
		{"4.3.6", `"x-queue-version": 1`, "x-queue-version is 1; write 2"},
		{"", `"x-queue-version": 1`, ""},
		{"", `"x-delivery-limit": 5, "x-max-length": -1`, "x-delivery-limit is for quorum queues. x-max-length is -1; write 0 or more"},
		{"4.0.5", `"x-consumer-timeout": 60000`, ""},
		{"4.3.6", `"x-consumer-timeout": 60000`, "x-consumer-timeout is for quorum queues"},
	} {
		in := read(t, "argument.json", fmt.Sprintf(
			`{"queues": [{"name": "billing", "durable": true, "auto_delete": false, "arguments": {%s}}]}`, tc.argument))
		in.Rules, in.State.Version = []string{"argument-refused"}, tc.version
		got := ""
		for _, f := range audit.Run(in).Findings {
			got += f.Evidence
		}
		if got != tc.want {
			t.Errorf("%q %s: %q, want %q", tc.version, tc.argument, got, tc.want)
		}
	}
}

// The rule topic-key-refused is an error for the keys that the broker refuses.
func TestTopicKeysOnABroker(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Channel(t)
	brokertest.DeclareExchange(t, ch, "events", "topic", nil)
	brokertest.Declare(t, ch, "billing", nil)
	for _, key := range []string{"#.a.#", "a#.b#.#c.#", "#.#.#", "#.a.#.b.#"} {
		err := target.Channel(t).QueueBind("billing", key, "events", false, nil)
		answer, ok := errors.AsType[*amqp091.Error](err)
		if err != nil && (!ok || answer.Code != amqp091.PreconditionFailed) {
			t.Errorf("%s: %v", key, err)
		}
		in := read(t, "key.json", fmt.Sprintf(`{"exchanges": [{"name": "events", "type": "topic"}],
 "queues": [{"name": "billing"}],
 "bindings": [{"source": "events", "destination": "billing", "destination_type": "queue", "routing_key": %q}]}`, key))
		in.Rules, in.State.Version = []string{"topic-key-refused"}, target.Version
		var says []audit.Severity
		for _, f := range audit.Run(in).Findings {
			says = append(says, f.Severity)
		}
		if refused := len(says) == 1 && says[0] == audit.Error; refused != (err != nil) {
			t.Errorf("%s: the audit says %v, the broker %v", key, says, err)
		}
	}
}

// RabbitMQ accepts queues that are neither durable nor exclusive, which it has deprecated: the rule
// not-durable is not an error. 4.3.6 has the deprecated feature transient_nonexcl_queues permitted.
func TestTransientQueuesOnABroker(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	if _, err := target.Channel(t).QueueDeclare("billing", false, false, false, false, nil); err != nil {
		t.Errorf("%v: make not-durable an error on this line", err)
	}
}
