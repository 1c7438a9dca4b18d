package main

import (
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

const floatFile = `
version: 1
name: shop
defaults: {backoff: a, type: classic}
backoff: {a: {tiers: [1h]}}
exchanges: [{name: h, type: headers}]
queues: [{name: q, bindings: [{exchange: h, headers: {n: 2}}]}]
`

// A float in a binding's arguments is not the integer: 4.x lets neither match the
// other. The plan shows it, with our mark or without, and apply makes it right, on
// lines on which both match too.
func TestAFloatIsNotTheInteger(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		exchange, queue, header string
		value                   int64
		args                    amqp.Table // beside the header
		deletes                 string     // the line of the plan
		flags                   []string
	}{
		"binding of a tier":       {"shop.a.dlx", "shop.a.retry.1h", "count", 1, amqp.Table{"x-match": "all"}, "delete binding shop.a.dlx -> shop.a.retry.1h (count=1.0)", nil},
		"binding of a work queue": {"h", "q", "n", 2, amqp.Table{"x-match": "all"}, "delete binding h -> q (n=2.0) [drops-routing]", []string{"--allow", "drops-routing"}},
	} {
		for _, marked := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", marked", false: ", of a service"}[marked], func(t *testing.T) {
				t.Parallel()
				admin := brokertest.VHost(t)
				target, ch := admin.Tool(t), admin.Channel(t)
				file := filepath.Join(t.TempDir(), "topology.yaml")
				writeTo(t, file, floatFile)
				must := func(want int, args ...string) string {
					t.Helper()
					code, out := dlxctl(target, append(args, "-f", file)...)
					if code != want {
						t.Fatalf("dlxctl %s exits with %d:\n%s", strings.Join(args, " "), code, out)
					}
					return out
				}
				must(0, "apply", "--yes")
				mark := amqp.Table{tc.header: tc.value, "x-managed-by": "dlxctl/shop"}
				float := amqp.Table{tc.header: float64(tc.value)}
				for k, v := range tc.args {
					mark[k], float[k] = v, v
				}
				if err := ch.QueueUnbind(tc.queue, "", tc.exchange, mark); err != nil {
					t.Fatal(err)
				}
				if marked {
					float["x-managed-by"] = "dlxctl/shop"
				}
				if err := ch.QueueBind(tc.queue, "", tc.exchange, false, float); err != nil {
					t.Fatal(err)
				}

				plan := planned(t, target, append([]string{"-f", file}, tc.flags...))
				creates := "create binding " + tc.exchange + " -> " + tc.queue
				other := strings.Replace(strings.TrimSuffix(tc.deletes, " [drops-routing]"), "delete", "drift", 1)
				if marked {
					other = tc.deletes
				}
				if !strings.Contains(plan, creates) || !strings.Contains(plan, other+"\n") {
					t.Errorf("the plan is\n%swithout\n%s", plan, other)
				}
				must(2, append([]string{"plan", "--detailed-exitcode"}, tc.flags...)...)
				must(0, append([]string{"apply", "--yes", "--prune", "--allow", "drops-routing"}, tc.flags...)...)
				must(0, "plan", "--detailed-exitcode")

				if err := ch.Confirm(false); err != nil {
					t.Fatal(err)
				}
				confirm, err := ch.PublishWithDeferredConfirm(tc.exchange, "", true, false, amqp.Publishing{MessageId: "m", Headers: amqp.Table{tc.header: tc.value}})
				if err != nil || !confirm.Wait() {
					t.Fatalf("publish: %v", err)
				}
				if _, ok, err := ch.Get(tc.queue, true); err != nil || !ok {
					t.Errorf("a message with the integer does not come to %s: %v", tc.queue, err)
				}
				if _, ok, err := ch.Get(tc.queue, true); err != nil || ok {
					t.Errorf("it came twice: %v", err)
				}
			})
		}
	}
}
