package cmd

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// systemd is what a service says to systemd, over the socket that systemd names in NOTIFY_SOCKET.
type systemd struct {
	conn net.Conn
	// every is how often to say that the service is alive: twice in the time after which systemd
	// restarts it (WatchdogSec). Zero: systemd does not ask.
	every time.Duration
}

// dialSystemd connects to systemd. It returns nil if systemd did not start this process, or cannot
// be reached.
func dialSystemd(ctx context.Context, env func(string) (string, bool), log *slog.Logger) *systemd {
	address, _ := env("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", address)
	if err != nil {
		log.WarnContext(ctx, "cannot notify systemd; the unit needs RestrictAddressFamilies=AF_UNIX", "error", err)
		return nil
	}
	s := &systemd{conn: conn}
	text, _ := env("WATCHDOG_USEC")
	pid, limited := env("WATCHDOG_PID") // the process that the watchdog is for
	if us, err := strconv.ParseInt(text, 10, 64); err == nil && us > 0 && (!limited || pid == strconv.Itoa(os.Getpid())) {
		s.every = time.Duration(us) * time.Microsecond / 2
	}
	return s
}

// run says that the service is ready, once it is for the first time, and that it is alive, as long
// as it is. When ctx ends, it says that the service is stopping, and goes on until stop is called.
// A nil systemd does nothing.
func (s *systemd) run(ctx context.Context, ready, alive func() bool) (stop func()) {
	if s == nil {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	forget := context.AfterFunc(ctx, func() { s.say("STOPPING=1") })
	go func() {
		defer close(ended)
		wait := time.Second
		if s.every > 0 {
			wait = min(wait, s.every)
		}
		tick := time.NewTicker(wait)
		defer tick.Stop()
		var said time.Time
		for isReady := false; ; {
			if !isReady && ready() {
				isReady = true
				s.say("READY=1")
			}
			if s.every > 0 && time.Since(said) >= s.every-wait && alive() {
				said = time.Now()
				s.say("WATCHDOG=1")
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	}()
	return func() {
		forget()
		close(over)
		<-ended
		_ = s.conn.Close() // each datagram was sent whole, or not
	}
}

// say sends one datagram. If that fails, systemd restarts the service after WatchdogSec.
func (s *systemd) say(what string) { _, _ = s.conn.Write([]byte(what)) }
