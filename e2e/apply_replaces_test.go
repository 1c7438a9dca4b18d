package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// orderSources are what the tests of this file publish, and the queues to which that leads.
func orderSources() []source {
	return []source{
		{"events", "order.placed", []string{"billing", "mail"}},
		{"events", "order.paid", []string{"billing"}},
	}
}

// ordersFile returns the path of a file that has both queues as queues of a type, with a binding
// that they do not have yet, and another queue.
func ordersFile(t *testing.T, queueType, more string) string {
	t.Helper()
	return writeTopology(t, fmt.Sprintf(`
version: 1
name: shop
defaults: {backoff: standard, type: classic}
backoff: {standard: {tiers: [10s]}}
exchanges: [{name: events}]
queues:
  - name: billing
    type: %[1]s
    replace: true
    bindings: [{exchange: events, key: order.placed}, {exchange: events, key: order.paid}%[2]s]
  - {name: mail, type: %[1]s, replace: true, bindings: [{exchange: events, key: order.placed}]}
  - {name: rest, bindings: [{exchange: events, key: order.canceled}]}
`, queueType, more))
}

// newOrders declares the classic queues billing and mail.
func newOrders(t *testing.T) *traveler {
	t.Helper()
	target := brokertest.VHost(t)
	putExchange(t, target, "events")
	ch := target.Channel(t)
	for queue, keys := range map[string][]string{"billing": {"order.placed", "order.paid"}, "mail": {"order.placed"}} {
		brokertest.Declare(t, ch, queue, nil)
		for _, key := range keys {
			brokertest.Bind(t, ch, queue, key, "events", nil)
		}
	}
	return &traveler{
		reader: reader{t, target.Tool(t, "policymaker"), t.TempDir()},
		wanted: map[string]map[string]bool{}, seen: map[string]map[string]int{},
	}
}

// traffic publishes and consumes until stop, which returns how many messages were published, lost
// and doubled.
func (v *traveler) traffic() (stop func() (published, lost, doubled int)) {
	v.Helper()
	publishing := v.publish(v.target, orderSources())
	stops := []func(){v.subscribe(v.target, "billing"), v.subscribe(v.target, "mail")}
	return func() (published, lost, doubled int) {
		published = publishing()
		var left []string
		brokertest.Eventually(v.T, "each message consumed", func() bool {
			left = v.missing()
			return len(left) == 0
		}, &left)
		for _, stop := range stops {
			stop()
		}
		for queue, ids := range v.wanted {
			for id := range ids {
				switch times := v.seen[queue][id]; {
				case times == 0:
					lost++
				case times > 1:
					doubled++
				}
			}
		}
		return published, lost, doubled
	}
}

// apply replaces queues under their names while services publish and consume, and makes its other
// changes: no message is lost, and none doubled.
func TestApplyReplacesUnderLoad(t *testing.T) {
	t.Parallel()
	v := newOrders(t)
	file := ordersFile(t, "quorum", ", {exchange: events, key: order.sent}")
	stop := v.traffic()
	out := succeeds(t, v.target, "apply", "--yes", "--parallel", "2", "-f", file)
	for _, want := range []string{"billing  same name  done", "mail     same name  done", "2 queues in", ": 2 done"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
	succeeds(t, v.target, "plan", "--detailed-exitcode", "-f", file)
	published, lost, doubled := stop()
	if lost > 0 || doubled > 0 {
		t.Errorf("%d of %d messages were lost, %d doubled", lost, published, doubled)
	}
	t.Logf("%d published, %d lost, %d doubled", published, lost, doubled)
}

// An apply that is killed while it replaces a queue goes on when it is run again, whatever ran
// meanwhile: a plan, and an apply of a file that does not have the queue, which is refused. No
// message is lost, and a kill doubles no more than are in flight.
func TestApplyKilledWhileItReplaces(t *testing.T) {
	t.Parallel()
	v := newOrders(t)
	files := []string{ordersFile(t, "quorum", ""), ordersFile(t, "classic", "")}
	other := writeTopology(t, "version: 1\nname: shop\ndefaults: {backoff: none}\nqueues: [{name: other}]\n")
	steps := []string{
		"deleted billing", "moving what waits in the hold to billing", "switch from billing to its hold",
		"declared billing anew", "proving that billing is empty", "bind billing", "bind the switch exchange of billing",
	}
	steps = steps[:brokertest.Rounds(3, len(steps))]
	stop := v.traffic()
	for i, step := range steps {
		apply := []string{"apply", "--yes", "--parallel", "2", "--lock-timeout", lockFreed, "-f", files[i%2]}
		p := start(t, v.target, apply...)
		brokertest.EventuallyEvery(t, 5*time.Millisecond, "the step "+step, func() bool {
			select {
			case <-p.ended:
				t.Fatalf("apply has ended before the step %s\n%s%s", step, &p.stdout, &p.stderr)
			default:
			}
			return strings.Contains(p.stdout.String(), "replace: "+step)
		}, &p.stdout, &p.stderr)
		if !p.kill() {
			t.Fatalf("apply has ended\n%s%s", &p.stdout, &p.stderr)
		}
		if out := succeeds(t, v.target, "plan", "-f", files[i%2]); !strings.Contains(out, "being replaced under its name") {
			t.Errorf("killed at %q, the plan shows no replacement:\n%s", step, out)
		}
		start(t, v.target, "apply", "--yes", "--allow", "drops-routing,stops-consumers,loses-messages",
			"--lock-timeout", lockFreed, "-f", other).exits(t, 3)
		start(t, v.target, apply...).exits(t, 0)
		succeeds(t, v.target, "plan", "--detailed-exitcode", "-f", files[i%2])
	}
	published, lost, doubled := stop()
	if lost > 0 || doubled > 200*2*len(steps) { // of each queue
		t.Errorf("%d of %d messages were lost, %d doubled", lost, published, doubled)
	}
	t.Logf("%d published, %d kills, %d lost, %d doubled", published, len(steps), lost, doubled)
}

// While the consumers of a replaced queue are missing, apply exits with 2, as often as it is run:
// its other changes are written, and it says what to do. It ends when they are back.
func TestApplyWaitsForConsumers(t *testing.T) {
	t.Parallel()
	v := newOrders(t)
	ch := v.target.Channel(t)
	consume := func() {
		t.Helper()
		brokertest.Consume(t, ch, "billing", 0)
	}
	consume() // and nothing more after the cancel
	apply := []string{"apply", "--yes", "--wait=1s", "--settle", "10ms", "-f", ordersFile(t, "quorum", "")}
	for range 2 {
		code, out := dlxctl(v.target, apply...)
		if code != 2 {
			t.Fatalf("apply exits with %d, not 2\n%s", code, out)
		}
		for _, want := range []string{
			"billing is replaced and gets its messages, but it has 0 consumers, and had 1 before",
			"restart the services that did not subscribe again, then run the command again",
			"--allow stops-consumers=billing", "billing  same name  waiting",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("the output does not contain %q:\n%s", want, out)
			}
		}
		if queue := v.target.Queue(t, "rest"); queue["type"] != "classic" {
			t.Errorf("the queue rest is not created: %v", queue)
		}
	}
	brokertest.PublishConfirmed(t, v.target.Confirming(t), "events", "order.paid", amqp091.Publishing{MessageId: "m"})
	awaitReady(t, v.target, "billing") // it gets its messages meanwhile
	consume()
	succeeds(t, v.target, apply...)
	succeeds(t, v.target, "plan", "--detailed-exitcode", "-f", apply[len(apply)-1])
}
