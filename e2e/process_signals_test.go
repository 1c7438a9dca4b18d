package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// After the first signal the processor finishes its work in flight, here a notice that hangs. The
// second signal ends it at once.
func TestProcessEndsAtTheSecondSignal(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			asked, over := make(chan struct{}, 10), make(chan struct{})
			web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-over }))
			defer web.Close()
			defer close(over)
			target := brokertest.VHost(t)
			path := writeTopology(t, backoffFile("1h"))
			start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
			p := start(t, target, "process", "-f", path, "--listen", "127.0.0.1:0", "--notify", web.URL)
			if err := target.Channel(t).Publish("", "shop.quick.failed", true, false, amqp091.Publishing{}); err != nil {
				t.Fatal(err)
			}
			<-asked
			address := p.address(t)

			p.signal(t, signal)
			page := ""
			brokertest.Eventually(t, "the processor to be stopping", func() bool {
				page = get(t, address, "/readyz")
				return strings.Contains(page, "stopping")
			}, &page)
			again, late := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
			defer again.Stop()
			for killed := false; !killed; { // a second signal at the same moment counts as the first
				select {
				case <-p.ended:
					killed = true
				case <-again.C:
					_ = p.Process.Signal(signal) // it may have ended
				case <-late:
					t.Fatalf("the processor runs on after the second signal:\n%s", &p.stderr)
				}
			}
			// A processor that ignores the second signal waits 3 s for its notices, and exits.
			if status, _ := p.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != signal {
				t.Errorf("the processor ended with %s, not by %s", p.ProcessState, signal)
			}
		})
	}
}
