package e2e_test

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// One processor serves two virtual hosts, with topologies of the same name.
func TestProcessInTwoVHosts(t *testing.T) {
	t.Parallel()
	targets := []brokertest.Target{brokertest.VHost(t), brokertest.VHost(t)}
	args := []string{"process", "--until-empty"}
	for i, target := range targets {
		path := writeTopology(t, fmt.Sprintf("vhost: %s\n%s", target.VHost, backoffFile("1h")))
		start(t, targets[0], "apply", "--yes", "-f", path).exits(t, 0)
		publishTo(t, target, "shop.failed", fmt.Sprint(i))
		args = append(args, "-f", path)
	}
	start(t, targets[0], args...).exits(t, 0)
	for i, target := range targets {
		m, ok, err := target.Channel(t).Get("shop.quick.retry.1h", true)
		if err != nil || !ok || m.MessageId != fmt.Sprint(i) {
			t.Errorf("virtual host %d holds message %q (%t, %v)", i, m.MessageId, ok, err)
		}
	}
}

// publishTo publishes a failed message of the queue work to the exchange of the failed queues.
func publishTo(t *testing.T, target brokertest.Target, exchange, id string) {
	t.Helper()
	ch := target.Confirming(t)
	brokertest.PublishConfirmed(t, ch, exchange, "@work", amqp091.Publishing{MessageId: id})
}
