package main

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// One process works in two virtual hosts; topologies of the same name do not
// meet.
func TestProcessInTwoVHosts(t *testing.T) {
	t.Parallel()
	targets := []brokertest.Target{brokertest.VHost(t), brokertest.VHost(t)}
	args := []string{"process", "--until-empty"}
	for i, target := range targets {
		path := file(t, fmt.Sprintf("vhost: %s\n%s", target.VHost, ladderFile("1h")))
		start(t, targets[0], "apply", "--yes", "-f", path).exits(t, 0)
		publishTo(t, target, "shop.failed", fmt.Sprint(i))
		args = append(args, "-f", path)
	}
	start(t, targets[0], args...).exits(t, 0)
	for i, target := range targets {
		m, ok, err := target.Channel(t).Get("shop.quick.retry.1h", true)
		if err != nil || !ok || m.MessageId != fmt.Sprint(i) {
			t.Errorf("vhost %d holds %q, %t, %v", i, m.MessageId, ok, err)
		}
	}
}

// publishTo lets a message of the queue work fail, to an exchange before a failed
// queue.
func publishTo(t *testing.T, target brokertest.Target, exchange, id string) {
	t.Helper()
	ch := target.Channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm(exchange, "@work", true, false, amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent})
	if err != nil || !confirm.Wait() {
		t.Fatalf("not confirmed: %v", err)
	}
}
