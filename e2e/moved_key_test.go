package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// A key moves from one queue to another under load, in an apply that also waits for the steps of a
// reroute. Without consent to the copies nothing is written. With it nothing is lost, and only what
// is published between the two steps goes to both queues, not what is published during the waits.
func TestMovedKeyIsCopiedBetweenTwoSteps(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	target := brokertest.VHost(t)
	file := func(a, z, backoff string) string {
		return writeTopology(t, fmt.Sprintf(`
version: 1
name: shop
backoff: {s: {tiers: [1m]}, t: {tiers: [2m]}}
defaults: {backoff: s}
exchanges: [{name: events, type: topic}]
queues:
  - {name: a, bindings: [{exchange: events, keys: [a, %s]}]}
  - {name: z, bindings: [{exchange: events, keys: [z, %s]}]}
  - {name: o, backoff: %s, bindings: [{exchange: events, key: o}]}
  - {name: p, backoff: t, bindings: [{exchange: events, key: p}]}
`, a, z, backoff))
	}
	start(t, target, "apply", "--yes", "-f", file("order.x", "zz", "s")).exits(t, 0)
	before := strings.Join(target.Definitions(t), "\n")
	moved := file("aa", "order.#", "t")
	stop := brokertest.PublishEvery(t, target.Confirming(t), "events", "order.x", 5*time.Millisecond)

	refused := start(t, target, "apply", "--yes", "--allow", "drops-routing=a", "--allow", "drops-routing=z", "-f", moved)
	refused.exits(t, 3)
	const consent = "copies-messages (1 change); nothing was written. To consent: --allow copies-messages=a\n"
	if got := refused.stderr.String(); !strings.HasSuffix(got, consent) {
		t.Errorf("without consent it ends with %q", got)
	}
	const copied = "copied between two steps: from the creation of those bindings until this deletion, they go to a and z\n"
	if got := refused.stdout.String(); !strings.Contains(got, copied) {
		t.Errorf("the plan does not say what is copied, and when:\n%s", got)
	}
	if strings.Join(target.Definitions(t), "\n") != before {
		t.Error("without consent something was written")
	}

	allowed := start(t, target, "apply", "--yes", "--allow", "drops-routing", "--allow", "copies-messages=a", "-f", moved)
	allowed.exits(t, 0)
	published := stop()
	ch := target.Channel(t)
	a, z := brokertest.Drain(t, ch, "a"), brokertest.Drain(t, ch, "z")
	both := 0
	for n := range published {
		id := fmt.Sprint(n)
		switch {
		case a[id]+z[id] == 0:
			t.Errorf("message %d is lost", n)
		case a[id] == 1 && z[id] == 1:
			both++
		case a[id]+z[id] != 1:
			t.Errorf("message %d is %d times in a and %d times in z", n, a[id], z[id])
		}
	}
	t.Logf("of %d messages, %d are in both queues, and %d in z alone", published, both, len(z)-both)
	if len(z)-both < both {
		t.Errorf("%d messages are in both queues, and %d in z alone: they were copied during the waits", both, len(z)-both)
	}
	start(t, target, "plan", "--detailed-exitcode", "-f", moved).exits(t, 0)
}
