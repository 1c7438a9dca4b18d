package e2e_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// Several topologies share one listener. A port that is in use is an error at once.
func TestProcessListens(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	shop := writeTopology(t,
		"version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\nqueues: [{name: billing}]\n")
	mail := writeTopology(t,
		"version: 1\nname: mail\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\nqueues: [{name: newsletter}]\n")
	start(t, target, "apply", "--yes", "-f", shop).exits(t, 0)
	start(t, target, "apply", "--yes", "-f", mail).exits(t, 0)

	p := start(t, target, "process", "-f", shop, "-f", mail, "--listen", "127.0.0.1:0")
	p.answers(t, "/readyz")
	address := p.address(t)
	for _, want := range []string{
		`dlxctl_consumer_up{backoff="b",queue="shop.b.failed",topology="shop"} 1`,
		`dlxctl_consumer_up{backoff="b",queue="mail.b.failed",topology="mail"} 1`,
		`dlxctl_messages_retried_total{backoff="b",queue="newsletter",tier="1s",topology="mail"} 0`,
	} {
		if text := get(t, address, "/metrics"); !strings.Contains(text, want) {
			t.Errorf("/metrics does not contain %s:\n%s", want, text)
		}
	}

	second := start(t, target, "process", "-f", shop, "--listen", address)
	second.exits(t, 1)
	if !strings.Contains(second.stderr.String(), "the port is in use") {
		t.Errorf("a port that is in use is answered with %q", &second.stderr)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}
