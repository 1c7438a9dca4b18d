package e2e_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

const nativeFile = `
version: 1
name: shop
backoff: {steady: {engine: native, linear: {first: 30s, attempts: 3}}}
queues: [{name: billing, backoff: steady}]
`

// onNative returns a virtual host with nativeFile, and the file.
func onNative(t *testing.T) (brokertest.Target, string) {
	t.Helper()
	needsLine(t, "4.3")
	target, file := brokertest.VHost(t), writeTopology(t, nativeFile)
	succeeds(t, target, "apply", "--yes", "--allow", "uncounted-nack=billing", "-f", file)
	return target, file
}

// Where RabbitMQ does all retries, verify works with the rights that 'dlxctl rights' prints for it,
// and needs each.
func TestEachRightOfNativeVerifyIsNeeded(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := onNative(t)
	before := target.Definitions(t)
	full := grant(t, nativeFile, "verify")
	succeeds(t, as(t, target, full), "verify", "--max-wait", "1s", "-f", file)
	unchanged(t, target, before, "verify")
	for _, missing := range rightsOf(full) {
		code, out := dlxctl(as(t, target, without(full, missing)), "verify", "--max-wait", "1s", "-f", file)
		says := missing.permission + " on the "
		if code != 1 || !strings.Contains(out, says) || !strings.Contains(out, missing.object()) {
			t.Errorf("verify without %s exits with %d:\n%s", missing, code, out)
		}
		unchanged(t, target, before, "verify without "+missing.String())
	}
}

// A verify that ends while canaries wait in its queue, interrupted or killed, leaves no canary in a
// queue of the team: its queues expire with them. No plan takes these for drift.
func TestNativeVerifyThatEnds(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target, file := onNative(t)
	for i, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := start(t, target, "verify", "-f", file)
		brokertest.Eventually(t, "canaries to wait", func() bool { return len(waiting(t, target)) == i+1 })
		if signal == syscall.SIGKILL {
			p.kill()
		} else {
			p.signal(t, signal)
			p.exits(t, 130)
			if !strings.Contains(p.stderr.String(), "go away by themselves within 10m") {
				t.Errorf("verify prints\n%s", &p.stderr)
			}
		}
		for _, q := range waiting(t, target) {
			if q.Arguments["x-expires"] != float64(300_000) {
				t.Errorf("the queue of verify has the arguments %v", q.Arguments)
			}
		}
		succeeds(t, target, "plan", "--detailed-exitcode", "-f", file)
		succeeds(t, target, "apply", "--yes", "--prune", "-f", file)
	}
	holdsNoCanary(t, target, "billing", "billing.dead", "shop.unroutable")
}

// A broker that raises an alarm when the first canary comes reads no other: verify ends, says which
// canaries did not come, and leaves none in a queue of the team.
func TestNativeVerifyEndsDuringAnAlarm(t *testing.T) {
	brokertest.OnNewestLine(t)
	needsLine(t, "4.3")
	t.Parallel()
	node := brokertest.Node(t)
	target, file := node.VHost(t), writeTopology(t, strings.Replace(nativeFile, "30s", "1s", 1))
	succeeds(t, target, "apply", "--yes", "--allow", "uncounted-nack=billing", "-f", file)
	var first sync.Once
	through := onMethod(t, target, []byte{0, 60, 0, 40}, func(net.Conn) { // basic.publish
		first.Do(func() {
			node.Alarm(t, true)
			node.Eval(t, "rabbit_alarm:get_alarms().") // once this answers, connections were told
		})
	})
	p := start(t, through, "verify", "--patience", "5s", "-f", file)
	p.exits(t, 2)
	for _, want := range []string{"0 tiers of 3 verified", "the broker may still take a canary: the queue shop.verify."} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("verify does not print %q:\n%s", want, &p.stdout)
		}
	}
	node.Alarm(t, false)
	// The broker reads the canary now, unless a heartbeat has told it before that verify has gone.
	brokertest.Eventually(t, "the connections of verify to end", func() bool {
		return string(target.Call(t, "GET", "vhosts/"+target.VHost+"/connections", nil)) == "[]"
	})
	holdsNoCanary(t, target, "billing", "billing.dead", "shop.unroutable")
}

// waiting returns the queues of verify in which three canaries are delayed. The fourth dies.
func waiting(t *testing.T, target brokertest.Target) []madeQueue {
	t.Helper()
	return slices.DeleteFunc(verifyQueues(t, target), func(q madeQueue) bool { return q.Messages != 3 })
}
