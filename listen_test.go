package main

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// Several topologies share one listener; a port that is taken is an error at
// once.
func TestProcessListens(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	shop := file(t, "version: 1\nname: shop\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\nqueues: [{name: billing}]\n")
	mail := file(t, "version: 1\nname: mail\nbackoff: {b: {tiers: [1s]}}\ndefaults: {backoff: b}\nqueues: [{name: letters}]\n")
	start(t, target, "apply", "--yes", "-f", shop).exits(t, 0)
	start(t, target, "apply", "--yes", "-f", mail).exits(t, 0)

	p := start(t, target, "process", "-f", shop, "-f", mail, "--listen", "127.0.0.1:0")
	address := p.address(t)
	eventually(t, "it to be ready", func() bool { return strings.HasPrefix(get(t, address, "/readyz"), "200 ok") })
	for _, want := range []string{
		`dlxctl_consumer_up{backoff="b",queue="shop.b.failed",topology="shop"} 1`,
		`dlxctl_consumer_up{backoff="b",queue="mail.b.failed",topology="mail"} 1`,
		`dlxctl_messages_retried_total{backoff="b",queue="letters",tier="1s",topology="mail"} 0`,
	} {
		if text := get(t, address, "/metrics"); !strings.Contains(text, want) {
			t.Errorf("/metrics does not say %s:\n%s", want, text)
		}
	}

	second := start(t, target, "process", "-f", shop, "--listen", address)
	second.exits(t, 1)
	if !strings.Contains(second.stderr.String(), "another process listens there") {
		t.Errorf("a port that is taken is answered with %q", &second.stderr)
	}
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// get gives status and body of a page.
func get(t *testing.T, address, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + path) //nolint:noctx // the process ends with the test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status[:4] + string(body)
}
