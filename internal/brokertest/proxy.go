package brokertest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards AMQP connections between dlxctl and a broker. It can interrupt them.
type Proxy struct {
	backends []string // host and port
	filter   func(client, server net.Conn)

	mu       sync.Mutex
	conns    []net.Conn
	silent   *atomic.Bool // of the connections that are open
	shut     bool
	accepted int
}

// NewProxy returns the target as reached through a new proxy. The others are further nodes of its
// cluster: each connection goes to the first of them that accepts it, or else to the target.
func NewProxy(tb testing.TB, target Target, others ...Target) (Target, *Proxy) {
	tb.Helper()
	return newProxy(tb, &Proxy{}, target, others...)
}

// NewFilter returns the target as reached through a proxy that forwards what the server sends
// and leaves to filter what the client sends. The connection ends when filter returns.
func NewFilter(tb testing.TB, target Target, filter func(client, server net.Conn)) Target {
	tb.Helper()
	target, _ = newProxy(tb, &Proxy{filter: filter}, target)
	return target
}

// Forward sends to the server what the client sends, until pass returns false for a piece of it or
// a connection ends. Most filters of [NewFilter] are one with a pass of their own.
func Forward(client, server net.Conn, pass func(piece []byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil || !pass(buffer[:n]) {
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func newProxy(tb testing.TB, p *Proxy, target Target, others ...Target) (Target, *Proxy) {
	tb.Helper()
	p.silent = new(atomic.Bool)
	var u *url.URL
	for _, x := range append(others, target) {
		var err error
		if u, err = url.Parse(x.URL); err != nil {
			tb.Fatal(err)
		}
		p.backends = append(p.backends, u.Host)
	}
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	tb.Cleanup(func() {
		_ = listener.Close()
		p.Shut()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			wg.Go(func() { p.forward(tb.Context(), client) })
		}
	})
	u.Host = listener.Addr().String()
	target.URL = u.String()
	return target, p
}

// forward copies in both directions until one side ends.
func (p *Proxy) forward(ctx context.Context, client net.Conn) {
	server := p.dial(ctx)
	if server == nil {
		_ = client.Close()
		return
	}
	end := func() { _, _ = client.Close(), server.Close() }
	p.mu.Lock()
	if p.shut {
		end()
	}
	p.conns = append(p.conns, client, server)
	p.accepted++
	silent := p.silent
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer end()
		_, _ = io.Copy(muted{client, silent}, server) // how the connection ends does not matter
	})
	wg.Go(func() {
		defer end()
		if p.filter != nil {
			p.filter(client, server)
		} else {
			_, _ = io.Copy(muted{server, silent}, client)
		}
	})
	wg.Wait()
}

// dial connects to the first node that answers, or returns nil.
func (p *Proxy) dial(ctx context.Context) net.Conn {
	var dialer net.Dialer
	for _, backend := range p.backends {
		if server, err := dialer.DialContext(ctx, "tcp", backend); err == nil {
			return server
		}
	}
	return nil
}

// muted discards what is written to it once silent is set.
type muted struct {
	net.Conn

	silent *atomic.Bool
}

func (m muted) Write(b []byte) (int, error) {
	if m.silent.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// Hold forwards nothing more on the open connections and leaves them open, as when a cable is
// pulled. New connections work.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent.Store(true)
	p.silent = new(atomic.Bool)
}

// Cut closes the open connections in the middle of what they carry. New connections work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// Shut closes the open connections and each new one at once.
func (p *Proxy) Shut() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.Cut()
}

// Connections returns how many connections there were.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}
