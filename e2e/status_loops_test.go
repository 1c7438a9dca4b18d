package e2e_test

import (
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A consumer that requeues what it gets is a problem of the queue: of a classic queue on every
// line, and of a quorum queue with a delivery limit where the broker does not count basic.nack.
// With --all it is found in the queues of other teams too.
func TestStatusShowsLoops(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1h]}}
queues:
  - {name: mail, deliveryLimit: 5}
  - {name: plain, type: classic}
`)
	succeeds(t, target, "apply", "--yes", "-f", file)
	putQueue(t, target, "foreign", map[string]any{"x-queue-type": "classic"})
	own, all := "plain (", "foreign ("
	for _, queue := range []string{"mail", "plain", "foreign"} {
		brokertest.PublishConfirmed(t, target.Confirming(t), "", queue, amqp091.Publishing{})
		deliveries := brokertest.Consume(t, target.Channel(t), queue, 0)
		pace := time.Tick(5 * time.Millisecond) // it leaves the processor to other tests
		go func() {
			for d := range deliveries {
				<-pace
				_ = d.Nack(false, true)
			}
		}()
	}
	endless := target.AtLeast("4.3")
	var out string
	brokertest.Eventually(t, "a loop", func() bool {
		_, out = dlxctl(target, "status", "-f", file, "--all", "--exit-code")
		return strings.Contains(out, "problem loops:") && strings.Contains(out, own) && strings.Contains(out, all) &&
			strings.Contains(out, "mail (") == endless
	}, &out)
	code, out := dlxctl(target, "status", "-f", file, "--exit-code")
	if code != 2 || !strings.Contains(out, "problem loops:") || strings.Contains(out, all) {
		t.Errorf("exit code %d, or a queue of another team:\n%s", code, out)
	}
}
