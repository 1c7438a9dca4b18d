package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// Two applies of one topology, started in the same moment: with patience both
// end well, one after the other.
func TestApplyTwiceAtOnce(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 100)
	args := []string{"apply", "--yes", "--lock-timeout", "30s", "-f", path}
	a, b := start(t, target, args...), start(t, target, args...)
	a.exits(t, 0)
	b.exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
	// One of them did it all, and the other found nothing left to do.
	if text := a.stdout.String() + b.stdout.String(); strings.Count(text, "done: ") != 1 {
		t.Errorf("both wrote:\n%s", text)
	}
}

// Without patience, who comes second fails and learns who is first; who is first
// does not notice.
func TestApplyWhileAnotherDoes(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 300)
	first := start(t, target, "apply", "--yes", "-f", path)
	eventually(t, "the first to write", func() bool {
		return strings.Contains(strings.Join(target.Definitions(t), "\n"), `"x-managed-by"`)
	})
	first.signal(t, syscall.SIGSTOP) // or it would be done before the broker tells who it is

	second := start(t, target, "apply", "--yes", "-f", path)
	second.exits(t, 1)
	const want = `dlxctl: another dlxctl works on the topology "shop": dlxctl apply shop (`
	if got := second.stderr.String(); !strings.HasPrefix(got, want) || second.stdout.String() != "" {
		t.Errorf("the second does not say who is first:\n%s%s", second.stdout.String(), got)
	}

	first.signal(t, syscall.SIGCONT)
	first.exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// Who is first may be done before the broker tells who it is. Then nobody is in
// the way any more, and who came second goes on.
func TestApplyAfterAnotherIsDone(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 1)
	first := target.Dial(t)
	ch, err := first.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(topology.LockName("shop"), false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	// When the second asks who holds the lock, it has been refused.
	asked := sync.OnceFunc(func() { _ = first.Close() })
	target.API = watched(t, target.API, func(path string) {
		if strings.HasSuffix(path, "/shop.lock") {
			asked()
		}
	})
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	if !first.IsClosed() {
		t.Error("the lock was free from the beginning")
	}
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// A broker that stumbles over a lock whose holder is just ending (541, seen on 4.0.5)
// is asked again, on another connection: at once, and after any wait.
func TestApplyWhileALockEnds(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]time.Duration{"at once": 0, "after a wait": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			path := manyQueues(t, "shop", 0, 1)
			lock := topology.LockName("shop")
			first := target.Dial(t)
			if held > 0 {
				ch, err := first.Channel()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := ch.QueueDeclare(lock, false, false, true, false, nil); err != nil {
					t.Fatal(err)
				}
			}
			var stumbled atomic.Int32
			ends := time.Now().Add(held)
			troubled := target
			troubled.URL = through(t, target.URL, func(client, server net.Conn) {
				buffer := make([]byte, 1<<16)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					if bytes.Contains(buffer[:n], []byte(lock)) && time.Now().After(ends) && stumbled.CompareAndSwap(0, 1) {
						_ = first.Close()
						_, _ = client.Write(connectionClose(541, "INTERNAL_ERROR"))
						_, _ = client.Read(buffer) // close-ok
						return
					}
					if _, err := server.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
			start(t, troubled, "apply", "--yes", "--lock-timeout", "1m", "-f", path).exits(t, 0)
			if stumbled.Load() == 0 {
				t.Error("the broker never stumbled: this proves nothing")
			}
			start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
		})
	}
}

// connectionClose gives the frame of connection.close, for a queue.declare.
func connectionClose(code uint16, reason string) []byte {
	method := []byte{0, 10, 0, 50}
	method = binary.BigEndian.AppendUint16(method, code)
	method = append(append(method, byte(len(reason))), reason...)
	method = append(method, 0, 50, 0, 10)
	frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(method))) //nolint:gosec // some bytes
	return append(append(frame, method...), 0xCE)
}

// watched gives the URL of a proxy that tells the path of each request before it
// passes it on.
func watched(t *testing.T, api string, tell func(path string)) string {
	t.Helper()
	u, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tell(r.URL.Path)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Two topologies in one virtual host have a lock each, and leave each other be.
func TestApplyTwoTopologiesAtOnce(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	paths := []string{manyQueues(t, "shop", 0, 100), manyQueues(t, "store", 0, 100)}
	for _, command := range [][]string{{"apply", "--yes"}, {"plan", "--detailed-exitcode"}} {
		var all []*process
		for _, path := range paths {
			all = append(all, start(t, target, append(command, "-f", path)...))
		}
		for _, p := range all {
			p.exits(t, 0)
		}
	}
}
