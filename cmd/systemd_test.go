package cmd

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// systemd hears that a service is ready, that it is alive for as long as it is, and that it stops.
func TestSystemdHears(t *testing.T) {
	t.Parallel()
	address := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	// until reads up to a datagram, and reports whether others came before it.
	until := func(want string) (others bool) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for buffer := make([]byte, 100); ; others = true {
			switch n, err := socket.Read(buffer); {
			case err != nil:
				t.Fatalf("%v, waiting for %s", err, want)
			case string(buffer[:n]) == want:
				return others
			}
		}
	}
	env := map[string]string{"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	var ready, stuck atomic.Bool
	asked := make(chan struct{}) // while it is stuck
	ctx, cancel := context.WithCancel(t.Context())
	alive := func() bool {
		if stuck.Load() {
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
			}
			return false
		}
		return true
	}
	s := dialSystemd(ctx, lookup, slog.New(slog.DiscardHandler))
	stop := s.run(ctx, ready.Load, alive)
	until("WATCHDOG=1")
	until("WATCHDOG=1")
	ready.Store(true)
	until("READY=1")
	stuck.Store(true)
	<-asked
	s.say("stuck")
	<-asked
	<-asked
	cancel()
	until("stuck")
	if until("STOPPING=1") {
		t.Error("it is alive, though it is stuck")
	}
	stop()

	for name, value := range map[string]string{"WATCHDOG_PID": "1", "WATCHDOG_USEC": ""} { // not for this process
		env["WATCHDOG_USEC"], env[name] = "20000", value
		if s := dialSystemd(t.Context(), lookup, slog.New(slog.DiscardHandler)); s.every != 0 {
			t.Errorf("with %s=%s it is alive every %s", name, value, s.every)
		}
		delete(env, name)
	}
	delete(env, "NOTIFY_SOCKET")
	if s := dialSystemd(t.Context(), lookup, slog.New(slog.DiscardHandler)); s != nil {
		t.Error("it talks to systemd, which does not listen")
	}
}
