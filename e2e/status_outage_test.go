package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// A user with the tag monitoring, and no right, sees since when a queue is in outage, by what a
// connection of a processor tells. One with the tag management does not see that connection: it
// sees that messages wait.
func TestStatusShowsSinceWhenAQueueIsInOutage(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: standard}
backoff: {standard: {tiers: [1h], outage: {}}}
queues:
  - {name: billing}
`)
	succeeds(t, target, "apply", "--yes", "-f", file)
	at := time.Now().Add(-time.Minute)
	brokertest.Consume(t, target.Channel(t), "shop.standard.failed", 0)
	conn, err := amqp091.DialConfig(target.URL, amqp091.Config{Properties: amqp091.Table{
		topology.PropertyInOutageSinceBefore: amqp091.Table{"billing": at.UTC().Format(time.RFC3339), "other": "now"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	brokertest.PublishConfirmed(t, target.Confirming(t), "", "shop.standard.retry.outage",
		amqp091.Publishing{}, amqp091.Publishing{})
	for tag, want := range map[string][]string{
		"monitoring": {
			"problem outage: billing: in outage since at least ",
			", 2 messages wait in shop.standard.retry.outage, none is lost\n  fix: repair what the consumers call",
		},
		"management": {"note outage: 2 messages wait in shop.standard.retry.outage for the end of an outage of billing; " +
			"none of them is lost", "with the tag monitoring"},
	} {
		user, out := target.User(t, tag, "^$", "^$", "^$"), ""
		brokertest.Eventually(t, "an outage", func() bool {
			_, out = dlxctl(user, "status", "-f", file, "--exit-code")
			return !slices.ContainsFunc(want, func(s string) bool { return !strings.Contains(out, s) })
		}, &out)
	}
}
