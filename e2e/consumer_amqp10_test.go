package e2e_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	amqp10 "github.com/Azure/go-amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A consumer that speaks AMQP 1.0 says why it failed by settling the message. The retry is readable
// for it, and the desk shows the error of the last attempt.
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
	start(t, target, "process", "-f", file)
	brokertest.PublishConfirmed(t, target.Confirming(t), "events", "order.placed", amqp091.Publishing{
		MessageId: "m-1", DeliveryMode: amqp091.Persistent, Body: []byte("order"),
	})
	r := receive10(t, target, "billing")
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
}

// receive10 consumes from a queue over AMQP 1.0.
func receive10(t *testing.T, target brokertest.Target, queue string) *amqp10.Receiver {
	t.Helper()
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	conn, err := amqp10.Dial(t.Context(), "amqp://"+u.Host, &amqp10.ConnOptions{
		SASLType: amqp10.SASLTypePlain(u.User.Username(), password), HostName: "vhost:" + strings.TrimPrefix(u.Path, "/"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the messages are settled
	session, err := conn.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := session.NewReceiver(t.Context(), "/queues/"+queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
