package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/dlxctl/dlxctl/processor"
)

// listen serves what a monitor shows on an address, until stop is called. An
// empty address is none. From the end of ctx on it says that the process is not
// ready, and goes on serving.
func (a *app) listen(ctx context.Context, address string, m *processor.Monitor) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, explainListen(address, err)
	}
	log := a.log()
	server := &http.Server{
		Handler: m.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.ErrorContext(ctx, "metrics and health are no longer served", "error", err)
		}
	}()
	forget := context.AfterFunc(ctx, m.Stopping)
	log.InfoContext(ctx, "serving metrics and health", "address", listener.Addr().String())
	return func() {
		forget()
		_ = server.Close() // a scrape that is cut off is made again
		<-ended
	}, nil
}

// explainListen says what to do about an address that cannot be listened on.
func explainListen(address string, err error) error {
	var wrong *net.AddrError
	var unknown *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--listen %s: another process listens there, perhaps a second 'dlxctl process'; give it another port", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("--listen %s: this user may not listen there; take a port above 1023", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("--listen %s: this machine has no such address; :PORT is all of its addresses", address)
	case errors.As(err, &wrong), errors.As(err, &unknown):
		return usageError{fmt.Errorf("--listen %q is no address; write HOST:PORT or :PORT, like :9419", address)}
	default:
		return fmt.Errorf("--listen %s: %w", address, err)
	}
}
