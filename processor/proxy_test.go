package processor_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// proxy stands between a processor and the broker. It can cut what runs through
// it, or let it vanish.
type proxy struct {
	mu       sync.Mutex
	backends []string
	conns    []net.Conn
	silent   *atomic.Bool // of the connections that there are
	accepted atomic.Int64 // how many connections there were
}

// throughProxy gives the target as seen through a new proxy.
// With more than one target, those after the first are other nodes of the
// cluster: each connection goes to the first node that takes it.
func throughProxy(t *testing.T, target brokertest.Target, others ...brokertest.Target) (brokertest.Target, *proxy) {
	t.Helper()
	p := &proxy{silent: new(atomic.Bool)}
	for _, x := range append(others, target) {
		u, err := url.Parse(x.URL)
		if err != nil {
			t.Fatal(err)
		}
		p.backends = append(p.backends, u.Host)
	}
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
			p.accepted.Add(1)
			wg.Go(func() { p.forward(t.Context(), in) })
		}
	})
	u.Host = l.Addr().String()
	target.URL = u.String()
	return target, p
}

// forward copies both ways until one side ends.
func (p *proxy) forward(ctx context.Context, in net.Conn) {
	out := p.dial(ctx)
	if out == nil {
		_ = in.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, in, out)
	silent := p.silent
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.Copy(hush{way[0], silent}, way[1]) // an end is an end, whatever its reason
			_, _ = in.Close(), out.Close()
		})
	}
	wg.Wait()
}

// dial connects to the first node that answers, or gives nil.
func (p *proxy) dial(ctx context.Context) net.Conn {
	var dialer net.Dialer
	for _, backend := range p.backends {
		if out, err := dialer.DialContext(ctx, "tcp", backend); err == nil {
			return out
		}
	}
	return nil
}

// hush writes, until it is told to be silent and to swallow all.
type hush struct {
	net.Conn

	silent *atomic.Bool
}

func (h hush) Write(b []byte) (int, error) {
	if h.silent.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

// hold lets nothing more through the connections that there are, and does not
// end them: as when a cable is pulled. New ones work.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent.Store(true)
	p.silent = new(atomic.Bool)
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
