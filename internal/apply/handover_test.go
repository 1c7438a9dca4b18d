package apply_test

import (
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// A message whose copy the broker does not accept, as its headers are too large with the user-id
// among them, stays in the failed queue and is named. The others are moved, and none of them again
// by the next run.
func TestAMessageThatCannotBeHandedOverHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	for _, queue := range []string{"shop.a.failed", "next"} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.ExchangeDeclare("shop.failed", "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("next", "shop.a.failed", "shop.failed", false, nil); err != nil {
		t.Fatal(err)
	}
	e, err := broker.Config{URL: target.URL, API: target.API}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	brokertest.Fill(t, ch, "", "shop.a.failed", 20, 10)
	large := amqp091.Publishing{MessageId: "large", UserId: e.AMQP.User, Headers: amqp091.Table{"big": ""}}
	large.Headers["big"] = strings.Repeat("x", 131_072-8-relay.HeaderSize(large)) // the largest that fit a frame
	brokertest.PublishConfirmed(t, ch, "", "shop.a.failed", large)
	brokertest.Fill(t, ch, "", "shop.a.failed", 20, 10)
	held := 0
	for run := range 2 {
		_, err := apply.HandOverQueue(t.Context(), e, "shop", "shop.a.failed")
		if err == nil || !strings.Contains(err.Error(), `message "large"`) {
			t.Errorf("it ends with %v", err)
		}
		q, err := ch.QueueDeclarePassive("next", true, false, false, false, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case run == 0 && (q.Messages < 40 || q.Messages > 80), run == 1 && q.Messages != held:
			t.Errorf("run %d: the queue holds %d messages, before %d", run, q.Messages, held)
		}
		held = q.Messages
	}
	brokertest.Eventually(t, "the message in the failed queue", func() bool {
		q, err := ch.QueueDeclarePassive("shop.a.failed", true, false, false, false, nil)
		return err == nil && q.Messages == 1
	})
}
