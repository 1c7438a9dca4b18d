package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker/management/managementtest"
	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/relay"
)

// A message whose copy the broker does not accept, as its headers are too large with the user-id
// among them, stays in the failed queue and is named. The others are moved, and none of them again
// by the next run.
func TestAMessageThatCannotBeHandedOverHoldsUpNoOther(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	for _, queue := range []string{"shop.a.failed", "next"} {
		brokertest.Declare(t, ch, queue, amqp091.Table{"x-queue-type": "quorum"})
	}
	brokertest.DeclareExchange(t, ch, "shop.failed", "direct", nil)
	brokertest.Bind(t, ch, "next", "shop.a.failed", "shop.failed", nil)
	e := managementtest.Endpoint(t, target)
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

// The CC of a publisher stays as it was kept at the first failure. The processor's own CC, which
// since 4.0 is still there when the retry fails, does not take its place.
func TestHandOverKeepsThePublishersCC(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	for _, exchange := range []string{"in", "shop.failed"} {
		brokertest.DeclareExchange(t, ch, exchange, "direct", nil)
	}
	for queue, exchange := range map[string]string{"shop.a.failed": "in", "next": "shop.failed"} {
		brokertest.Declare(t, ch, queue, amqp091.Table{"x-queue-type": "quorum"})
		brokertest.Bind(t, ch, queue, "@billing", exchange, nil)
	}
	e := managementtest.Endpoint(t, target)
	want := map[string]string{"retried": "[x.y]", "first failure": "[x.y z]", "without": "<nil>"}
	for id, headers := range map[string]amqp091.Table{
		"retried":       {"CC": []any{"@billing"}, "retry-cc": []any{"x.y"}},
		"first failure": {"CC": []any{"x.y", "z"}},
		"without":       {"CC": []any{"@billing"}},
	} {
		brokertest.PublishConfirmed(t, ch, "in", "@billing", amqp091.Publishing{MessageId: id, Headers: headers})
	}
	if n, err := apply.HandOverQueue(t.Context(), e, "shop", "shop.a.failed"); err != nil || n != 3 {
		t.Fatalf("%d messages are moved: %v", n, err)
	}
	for range want {
		d, ok, err := ch.Get("next", true)
		if err != nil || !ok {
			t.Fatalf("a message is not there: %v", err)
		}
		if got := fmt.Sprint(d.Headers["retry-cc"]); got != want[d.MessageId] || d.Headers["CC"] != nil {
			t.Errorf("%s: retry-cc is %s, want %s; CC is %v", d.MessageId, got, want[d.MessageId], d.Headers["CC"])
		}
	}
}

// A message that no tier of its backoff took, and that came back to the failed queue, is handed
// over through the same retry exchange: by it the next processor knows that it has not failed
// again.
func TestHandOverKeepsHowAMessageReturned(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	ch := target.Confirming(t)
	for exchange, args := range map[string]amqp091.Table{
		"shop.failed": nil, "shop.a.dlx": {"alternate-exchange": "shop.failed"},
	} {
		kind := "direct"
		if args != nil {
			kind = "headers"
		}
		brokertest.DeclareExchange(t, ch, exchange, kind, args)
	}
	for _, queue := range []string{"shop.a.failed", "next"} {
		brokertest.Declare(t, ch, queue, amqp091.Table{"x-queue-type": "quorum"})
	}
	brokertest.Bind(t, ch, "shop.a.failed", "@billing", "shop.failed", nil)
	brokertest.PublishConfirmed(t, ch, "shop.a.dlx", "order.placed", amqp091.Publishing{
		Headers: amqp091.Table{
			"CC": []any{"@billing"}, "count": int32(2), "retry-queue": "billing", "retry-cc": []any{"x.y"},
		},
	})
	brokertest.Unbind(t, ch, "shop.a.failed", "@billing", "shop.failed", nil)
	brokertest.Bind(t, ch, "next", "@billing", "shop.failed", nil)
	e := managementtest.Endpoint(t, target)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := apply.HandOverQueue(ctx, e, "shop", "shop.a.failed"); err != nil || n != 1 {
		t.Fatalf("%d messages are moved: %v", n, err)
	}
	d := brokertest.Take(t, ch, "next")
	if d.Exchange != "shop.a.dlx" || d.RoutingKey != "order.placed" || fmt.Sprint(d.Headers["CC"]) != "[@billing]" ||
		d.Headers["count"] != int32(2) || fmt.Sprint(d.Headers["retry-cc"]) != "[x.y]" {
		t.Errorf("it came by %q, key %q, with %v", d.Exchange, d.RoutingKey, d.Headers)
	}
}
