package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/dlxctl/dlxctl/internal/processor/monitor"
)

// listen serves the metrics and health of a monitor on an address, until stop is called.
// With an empty address it does nothing. Once ctx ends, /readyz reports that the process
// is not ready; listen continues to serve.
func listen(ctx context.Context, log *slog.Logger, address string, m *monitor.Monitor) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, explainListen(address, err)
	}
	server := &http.Server{
		Handler: m.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.ErrorContext(ctx, "stopped serving metrics and health", "error", err)
		}
	}()
	forget := context.AfterFunc(ctx, m.Stopping)
	log.InfoContext(ctx, "serving metrics and health", "address", listener.Addr().String())
	return func() {
		forget()
		_ = server.Close() // Prometheus repeats a scrape that is interrupted
		<-ended
	}, nil
}

// explainListen adds a fix to the error of an address that cannot be listened on.
func explainListen(address string, err error) error {
	_, wrong := errors.AsType[*net.AddrError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--listen %s: the port is in use, perhaps by another dlxctl; choose another port",
			address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("--listen %s: permission denied; choose a port above 1023", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("--listen %s: this machine does not have that address; write :PORT to listen on all addresses",
			address)
	case wrong, unknown:
		return usageError{fmt.Errorf("--listen %q is not an address; write HOST:PORT or :PORT, such as :9419", address)}
	default:
		return fmt.Errorf("--listen %s: %w", address, err)
	}
}
