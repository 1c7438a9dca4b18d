package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// The first signal lets the processor finish, here a notice that hangs; the second
// ends it as that signal does.
func TestTheSecondSignalKills(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			asked, over := make(chan struct{}, 10), make(chan struct{})
			web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-over }))
			defer web.Close()
			defer close(over)
			target := brokertest.VHost(t)
			path := file(t, ladderFile("1h"))
			start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
			p := start(t, target, "process", "-f", path, "--listen", "127.0.0.1:0", "--notify", web.URL)
			if err := target.Channel(t).Publish("", "shop.quick.failed", true, false, amqp.Publishing{}); err != nil {
				t.Fatal(err)
			}
			<-asked
			address := p.address(t)

			p.signal(t, signal)
			eventually(t, "it to stop", func() bool { return strings.Contains(get(t, address, "/readyz"), "stopping") })
			again, late := time.NewTicker(50*time.Millisecond), time.After(2*time.Second) // notices have 3 s
			defer again.Stop()
			for killed := false; !killed; { // what comes in the same moment counts as one with the first
				select {
				case <-p.ended:
					killed = true
				case <-again.C:
					_ = p.Process.Signal(signal) // it may have ended
				case <-late:
					t.Fatal("it goes on")
				}
			}
			if status, _ := p.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != signal {
				t.Errorf("it ended with %s", p.ProcessState)
			}
		})
	}
}
