package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// everything consents to every hazard.
var everything = []string{ //nolint:gochecknoglobals // a constant list
	"--allow", "loses-messages", "--allow", "stops-consumers", "--allow", "drops-routing",
}

// declareDesk declares what a run in progress and parked messages have on the broker, with n
// messages in the hold and in the parked queue. The exclusive queues go with the connection.
func declareDesk(t *testing.T, target brokertest.Target, n int) *amqp091.Connection {
	t.Helper()
	conn := target.Dial(t)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	mark := amqp091.Table{
		"x-queue-type": "quorum", "x-managed-by": topology.DeskMark("shop"), "x-delivery-limit": topology.Unlimited,
	}
	for _, name := range []string{topology.HoldName("shop", "r1"), topology.ParkedName("shop")} {
		brokertest.Declare(t, ch, name, mark)
		for i := range n {
			brokertest.PublishConfirmed(t, ch, "", name, amqp091.Publishing{MessageId: fmt.Sprint("m", i)})
		}
	}
	worker := topology.DeskWorkerName("shop", "r1")
	for _, name := range []string{worker, topology.DeskLockName("shop", "billing.dead")} {
		if _, err := ch.QueueDeclare(name, false, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	own := amqp091.Table{"x-managed-by": topology.DeskMark("shop")}
	sends := topology.HoldName("shop", "r1") + ".to.0"
	brokertest.DeclareExchange(t, ch, sends, "fanout", own)
	for _, b := range []struct{ exchange, key, queue string }{
		{"shop.failed", "@billing", worker}, {sends, "", "billing"},
	} {
		brokertest.Bind(t, ch, b.queue, b.key, b.exchange, own)
	}
	return conn
}

// keepsDesk checks that the hold and the parked queue still have their n messages.
func keepsDesk(t *testing.T, target brokertest.Target, n int) {
	t.Helper()
	for _, name := range []string{topology.HoldName("shop", "r1"), topology.ParkedName("shop")} {
		if has := brokertest.Ready(t, target.Channel(t), name); has != n {
			t.Errorf("%s holds %d messages, not %d", name, has, n)
		}
	}
}

// sendsTo returns the queues to which the exchange of a run routes.
func sendsTo(t *testing.T, target brokertest.Target) []string {
	t.Helper()
	var bindings []struct{ Destination string }
	path := "exchanges/" + target.VHost + "/" + topology.HoldName("shop", "r1") + ".to.0/bindings/source"
	if err := json.Unmarshal(target.Call(t, http.MethodGet, path, nil), &bindings); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range bindings {
		out = append(out, b.Destination)
	}
	slices.Sort(out)
	return out
}

// deskFiles are a topology with a queue of each kind, without a queue and with another backoff, and
// without any queue.
func deskFiles(t *testing.T) (all, fewer, none string) {
	t.Helper()
	const head = "version: 1\nname: shop\ndefaults: {backoff: a, type: classic}\nexchanges: [{name: e}]\n"
	all = writeTopology(t, head+`
backoff: {a: {tiers: [1s, 1m]}}
queues:
  - {name: billing, bindings: [{exchange: e, key: billing}]}
  - {name: mail, dead: shared, bindings: [{exchange: e, key: mail}]}
`)
	fewer = writeTopology(t, head+`
backoff: {a: {tiers: [2m]}}
queues:
  - {name: mail, dead: shared, bindings: [{exchange: e, key: mail}]}
removed: [billing]
`)
	none = writeTopology(t, "version: 1\nname: shop\n")
	return all, fewer, none
}

// No apply deletes or changes a queue of the desk, whatever file it gets and whatever it is
// allowed: its messages stay. The plan, status and migrate say that they are there.
func TestApplyKeepsTheQueuesOfTheDesk(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 3
	all, fewer, none := deskFiles(t)
	target := brokertest.VHost(t)
	succeeds(t, target, "apply", "--yes", "-f", all)
	conn := declareDesk(t, target, n)
	if out := succeeds(t, target, "plan", "--detailed-exitcode", "-f", all); strings.Contains(out, "desk") {
		t.Errorf("the plan takes the queues of the desk for drift:\n%s", out)
	}
	status(t, target, all, "note desk-run: the run r1 of the desk is in progress",
		"note desk-parked: shop.parked has 3 messages")
	succeeds(t, target, "apply", "--yes", "--prune", "-f", all)
	if to := sendsTo(t, target); !slices.Equal(to, []string{"billing"}) {
		t.Errorf("the run sends to %v", to)
	}
	for _, file := range []string{fewer, all, none} {
		if file == none { // the run would hear no failures
			code, out := dlxctl(target, append([]string{"apply", "--yes", "-f", file}, everything...)...)
			if code != 3 || !strings.Contains(out, "a run of the desk is in progress and listens here") {
				t.Errorf("apply exits with %d:\n%s", code, out)
			}
			if err := conn.Close(); err != nil { // its process is gone
				t.Fatal(err)
			}
		}
		args := append([]string{"apply", "--yes", "--prune", "-f", file}, everything...)
		out := succeeds(t, target, args...)
		if warned := strings.Contains(out, "warning desk-run: shop.desk.r1 keeps the messages"); warned != (file != all) {
			t.Errorf("apply of %s warns: %t\n%s", readFile(t, file), warned, out)
		}
		keepsDesk(t, target, n)
	}
}

// status waits until status prints some texts: the broker's counts are up to 5 seconds old.
func status(t *testing.T, target brokertest.Target, file string, texts ...string) {
	t.Helper()
	var out string
	brokertest.Eventually(t, fmt.Sprintf("status to print %q", texts), func() bool {
		out = succeeds(t, target, "status", "-f", file)
		for _, s := range texts {
			if !strings.Contains(out, s) {
				return false
			}
		}
		return true
	}, &out)
}

// A migration keeps the holds, and the legacy queue while a run sends to it. It says before and
// after the deletion of that queue that messages of a run may have to go elsewhere.
func TestMigrateKeepsTheQueuesOfTheDesk(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	const n = 3
	target := brokertest.VHost(t)
	file := writeTopology(t, `
version: 1
name: shop
defaults: {backoff: a, type: classic}
backoff: {a: {tiers: [1s, 1m]}}
exchanges: [{name: e}]
queues:
  - {name: billing, bindings: [{exchange: e, key: billing}]}
  - {name: invoices.v2, replaces: invoices, bindings: [{exchange: e, key: invoice}]}
`)
	putQueue(t, target, "invoices", map[string]any{"x-queue-type": "classic"})
	succeeds(t, target, "apply", "--yes", "-f", file)
	declareDesk(t, target, n)
	sends, mark := topology.HoldName("shop", "r1")+".to.0", amqp091.Table{"x-managed-by": topology.DeskMark("shop")}
	brokertest.Bind(t, target.Channel(t), "invoices", "", sends, mark)
	if _, out := dlxctl(target, "migrate", "--dry-run", "-f", file); !strings.Contains(out,
		"shop.desk.r1 keeps the messages of a run of the desk; if they go to invoices, end the run") {
		t.Errorf("the dry run is silent about the hold:\n%s", out)
	}
	migrate := []string{"migrate", "--yes", "--idle", "1s", "--settle", "100ms", "--wait", "3s", "-f", file}
	code, out := dlxctl(target, migrate...)
	if code != 2 || strings.Count(out, "the queue invoices stays for now: the run r1") != 1 ||
		strings.Count(out, "drain: moving what is left") != 1 {
		t.Errorf("migrate exits with %d:\n%s", code, out)
	}
	if to := sendsTo(t, target); !slices.Equal(to, []string{"billing", "invoices"}) {
		t.Errorf("the run sends to %v", to)
	}
	brokertest.Unbind(t, target.Channel(t), "invoices", "", sends, mark) // as at its end
	out = succeeds(t, target, migrate...)
	if !strings.Contains(out, "retire: shop.desk.r1 keeps the messages of a run of the desk") {
		t.Errorf("migrate is silent about the hold:\n%s", out)
	}
	if to := sendsTo(t, target); !slices.Equal(to, []string{"billing"}) {
		t.Errorf("the run sends to %v", to)
	}
	keepsDesk(t, target, n)
	succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
}
