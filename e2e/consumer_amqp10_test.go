package e2e_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	amqp10 "github.com/Azure/go-amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A consumer that speaks AMQP 1.0 says why it failed by settling the message. The retry is readable
// for it, and the desk shows the error of the last attempt. The log and the history of the
// processor say that it is the consumer's or the publisher's: a publisher can write the same, and
// it decides nothing.
func TestAConsumerOfAMQP10SaysWhy(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	if !target.AtLeast("4.0") {
		t.Skip("before 4.0, RabbitMQ keeps no annotations of a consumer")
	}
	file := writeTopology(t, `
version: 1
name: shop
backoff: {quick: {tiers: [100ms]}}
defaults: {backoff: quick}
exchanges: [{name: events, type: topic}]
queues: [{name: billing, bindings: [{exchange: events, key: "order.*"}]}]
`)
	succeeds(t, target, "apply", "--yes", "-f", file)
	process := start(t, target, "process", "-f", file)
	brokertest.PublishConfirmed(t, target.Confirming(t), "events", "order.placed", amqp091.Publishing{
		MessageId: "m-1", DeliveryMode: amqp091.Persistent, Body: []byte("order"),
	})
	r, err := target.Session10(t).NewReceiver(t.Context(), "/queues/billing", nil)
	if err != nil {
		t.Fatal(err)
	}
	for attempt, why := range []string{"no answer in 30 s", "row 7 is bad"} {
		m, err := r.Receive(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		counted, body := m.ApplicationProperties["retry-attempts"], string(m.GetData())
		if body != "order" || counted != []any{nil, int64(1)}[attempt] {
			t.Errorf("attempt %d has the body %q and the properties %v", attempt+1, body, m.ApplicationProperties)
		}
		settle := amqp10.ModifyMessageOptions{UndeliverableHere: true, Annotations: amqp10.Annotations{
			"x-opt-error": why, "x-opt-error-type": "BadOrder", "x-opt-error-stack": "at pay()",
		}}
		if err := r.ModifyMessage(t.Context(), m, &settle); err != nil {
			t.Fatal(err)
		}
	}
	process.logs(t, `annotated_error_type=BadOrder annotated_error="row 7 is bad"`)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var list []struct{ Name string }
	brokertest.Eventually(t, "the dead letter", func() bool {
		_, out := dlxctl(target, "desk", "list", "@billing", "-f", file, "-o", "json")
		out, _, _ = strings.Cut(out, "\n]\n")
		return json.Unmarshal([]byte(out+"]"), &list) == nil && len(list) == 1
	})
	show := succeeds(t, target, "desk", "show", list[0].Name, "-f", file)
	for _, line := range []string{`error +row 7 is bad`, `error type +BadOrder`, `attempts +2`, `stack +at pay\(\)`} {
		if !regexp.MustCompile(`(?m)^  ` + line + `$`).MatchString(show) {
			t.Errorf("desk show has no line %q:\n%s", line, show)
		}
	}
	past := "attempt 1: rejected by BadOrder (its consumer or its publisher says), then waited 100ms"
	if !strings.Contains(show, past) {
		t.Errorf("desk show does not say %q:\n%s", past, show)
	}
	forged := amqp091.Table{"x-opt-error": "all is lost", "x-opt-error-type": "Forged", "retry-permanent": true}
	brokertest.PublishConfirmed(t, target.Confirming(t), "events", "order.placed", amqp091.Publishing{
		MessageId: "m-2", Headers: forged,
	})
	ch := target.Channel(t)
	for attempt := range 2 { // as many as without these headers
		m := brokertest.Take(t, ch, "billing")
		if n := m.Headers["retry-attempts"]; n != []any{nil, int64(1)}[attempt] || m.Headers["x-opt-error"] != "all is lost" {
			t.Errorf("attempt %d has the headers %v", attempt+1, m.Headers)
		}
		if err := m.Reject(false); err != nil {
			t.Fatal(err)
		}
	}
	process.logs(t, `annotated_error_type=Forged annotated_error="all is lost"`)
	said := regexp.MustCompile(`message_id=.* error(_type)?=| error(_type)?=.* message_id=`)
	if log := process.stderr.String(); said.MatchString(log) {
		t.Errorf("the log says that a consumer said it:\n%s", log)
	}
}
