package e2e_test

import (
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const floatFile = `
version: 1
name: shop
defaults: {backoff: a, type: classic}
backoff: {a: {tiers: [1h]}}
exchanges: [{name: h, type: headers}]
queues: [{name: q, bindings: [{exchange: h, headers: {n: 2}}]}]
`

// A float in a binding's arguments differs from the integer: on 4.x neither matches the other. The
// plan shows it, with dlxctl's owner mark or without, and apply corrects it, also on lines on which
// both match.
func TestApplyReplacesAFloatByTheInteger(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		exchange, queue, header string
		value                   int64
		args                    amqp091.Table // in addition to the header
		deletes                 string        // the line of the plan
		flags                   []string
	}{
		"binding of a tier": {
			exchange: "shop.a.dlx", queue: "shop.a.retry.1h", header: "count", value: 1,
			args:    amqp091.Table{"x-match": "all"},
			deletes: "delete binding shop.a.dlx -> shop.a.retry.1h (count=1.0)",
		},
		"binding of a work queue": {
			exchange: "h", queue: "q", header: "n", value: 2,
			args:    amqp091.Table{"x-match": "all"},
			deletes: "delete binding h -> q (n=2.0) [drops-routing]", flags: []string{"--allow", "drops-routing"},
		},
	} {
		for _, marked := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", marked", false: ", of a service"}[marked], func(t *testing.T) {
				t.Parallel()
				admin := brokertest.VHost(t)
				target, ch := admin.Tool(t), admin.Channel(t)
				file := writeTopology(t, floatFile)
				succeeds(t, target, "apply", "--yes", "-f", file)
				mark := amqp091.Table{tc.header: tc.value, "x-managed-by": "dlxctl/shop"}
				float := amqp091.Table{tc.header: float64(tc.value)}
				for k, v := range tc.args {
					mark[k], float[k] = v, v
				}
				brokertest.Unbind(t, ch, tc.queue, "", tc.exchange, mark)
				if marked {
					float["x-managed-by"] = "dlxctl/shop"
				}
				brokertest.Bind(t, ch, tc.queue, "", tc.exchange, float)

				plan := planned(t, target, append([]string{"-f", file}, tc.flags...))
				creates := "create binding " + tc.exchange + " -> " + tc.queue
				other := strings.Replace(strings.TrimSuffix(tc.deletes, " [drops-routing]"), "delete", "drift", 1)
				if marked {
					other = tc.deletes
				}
				if !strings.Contains(plan, creates) || !strings.Contains(plan, other+"\n") {
					t.Errorf("the plan is\n%swithout\n%s\nor\n%s", plan, creates, other)
				}
				start(t, target, append([]string{"plan", "--detailed-exitcode", "-f", file}, tc.flags...)...).exits(t, 2)
				succeeds(t, target, "apply", "--yes", "--prune", "--allow", "drops-routing", "-f", file)
				succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)

				integer := amqp091.Table{tc.header: tc.value}
				brokertest.PublishConfirmed(t, ch, tc.exchange, "", amqp091.Publishing{MessageId: "m", Headers: integer})
				if _, ok, err := ch.Get(tc.queue, true); err != nil || !ok {
					t.Errorf("a message with the integer is not routed to %s: %v", tc.queue, err)
				}
				if _, ok, err := ch.Get(tc.queue, true); err != nil || ok {
					t.Errorf("the message was routed twice: %v", err)
				}
			})
		}
	}
}
