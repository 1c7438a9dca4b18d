package processor_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// proxy stands between a processor and the broker and can cut what runs through
// it.
type proxy struct {
	mu    sync.Mutex
	conns []net.Conn
}

// throughProxy gives the target as seen through a new proxy.
func throughProxy(t *testing.T, target brokertest.Target) (brokertest.Target, *proxy) {
	t.Helper()
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	backend := u.Host
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			wg.Go(func() { p.forward(t.Context(), in, backend) })
		}
	})
	u.Host = l.Addr().String()
	target.URL = u.String()
	return target, p
}

// forward copies both ways until one side ends.
func (p *proxy) forward(ctx context.Context, in net.Conn, backend string) {
	var dialer net.Dialer
	out, err := dialer.DialContext(ctx, "tcp", backend)
	if err != nil {
		_ = in.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, in, out)
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // an end is an end, whatever its reason
			_, _ = in.Close(), out.Close()
		})
	}
	wg.Wait()
}

// cut ends all connections, in the middle of whatever they carry.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
