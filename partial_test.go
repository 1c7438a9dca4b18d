package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// An apply that fails in the middle says what is done, what failed and what was
// not tried, exits with 4, and the next one continues.
func TestApplyFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		trouble http.HandlerFunc
		said    string
	}{
		"a connection that breaks": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			`\w+ \w+ .*: .* does not speak http: .*\((\d+) done, (\d+) failed, (\d+) not tried; fix the cause and run it again\)`,
		},
		"an error of the broker": {
			func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"error":"internal"}`, http.StatusInternalServerError)
			},
			`\w+ \w+ .*: .* answers 500 Internal Server Error \((\d+) done, (\d+) failed, (\d+) not tried; fix the cause and run it again\)`,
		},
		"an object that is refused": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error":"bad_request","reason":"not today"}`))
			},
			`\w+ \w+ .*: the broker refuses it: not today \((\d+) done, (\d+) failed, (\d+) not tried; fix the cause and run it again\)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			path := manyQueues(t, "shop", 0, 50)
			troubled := target
			troubled.API = afterWrites(t, target.API, 20, tc.trouble)
			p := start(t, troubled, "apply", "--yes", "-f", path)
			p.exits(t, 4)
			if said := p.stderr.String(); !regexp.MustCompile(`(?m)^dlxctl: ` + tc.said + `$`).MatchString(said) {
				t.Errorf("it says:\n%s", said)
			}
			start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
			start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
		})
	}
}

// So does one whose AMQP connection breaks, over which it binds and deletes, and
// which holds its lock.
func TestApplyLosesItsConnection(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 50)
	troubled := target
	var cut func()
	troubled.URL, cut = throughCut(t, target.URL)
	troubled.API = afterWrites(t, target.API, 40, func(w http.ResponseWriter, _ *http.Request) {
		cut()
		w.WriteHeader(http.StatusCreated)
	})
	p := start(t, troubled, "apply", "--yes", "-f", path)
	p.exits(t, 4)
	if said := p.stderr.String(); !regexp.MustCompile(`(?m)^dlxctl: create \w+ .*: the AMQP connection to amqp://\S+ ended: .* \(\d+ done, \d+ failed, \d+ not tried; fix the cause and run it again\)$`).MatchString(said) {
		t.Errorf("it says:\n%s", said)
	}
	start(t, target, "apply", "--yes", "--lock-timeout", lockFreed, "-f", path).exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// throughCut gives the URL of a proxy for AMQP, and what cuts the connections that
// run through it.
func throughCut(t *testing.T, broker string) (address string, cut func()) {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	return through(t, broker, func(client, server net.Conn) {
		context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
		_, _ = io.Copy(server, client) // until it is cut
	}), cut
}

// through gives the URL of a proxy for AMQP. It passes on what the server says, and
// leaves to pass what the client says, until that returns.
func through(t *testing.T, broker string, pass func(client, server net.Conn)) string {
	t.Helper()
	u, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	backend := u.Host
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			server, err := new(net.Dialer).DialContext(t.Context(), "tcp", backend)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, server) }()
			go func() {
				pass(client, server)
				_, _ = client.Close(), server.Close()
			}()
		}
	}()
	u.Host = l.Addr().String()
	return u.String()
}

// A signal in the middle does the same; one before the first write leaves the
// broker as it was.
func TestApplyInterrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			target := brokertest.VHost(t)
			path := manyQueues(t, "shop", 0, 50)
			for _, writes := range []int64{0, 20} {
				wait, reached := make(chan struct{}), make(chan struct{})
				slow := target
				slow.API = afterWrites(t, target.API, writes, func(http.ResponseWriter, *http.Request) {
					select {
					case reached <- struct{}{}:
					case <-wait:
					}
					<-wait
					panic(http.ErrAbortHandler)
				})
				release := sync.OnceFunc(func() { close(wait) })
				t.Cleanup(release)
				p := start(t, slow, "apply", "--yes", "-f", path)
				<-reached
				p.signal(t, signal)
				eventually(t, "the signal to be noticed", func() bool { return strings.Contains(p.stderr.String(), "stopping when ") })
				release()
				code := map[bool]int{true: 130, false: 4}[writes == 0]
				p.exits(t, code)
				if said := p.stderr.String(); !regexp.MustCompile(`dlxctl: interrupted(; nothing was written| \(\d+ done, \d+ not tried; run it again to continue\))`).MatchString(said) {
					t.Errorf("it says:\n%s", said)
				}
			}
			start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
		})
	}
}

// afterWrites gives the URL of a proxy that answers by trouble once so many
// writes have gone through.
func afterWrites(t *testing.T, api string, writes int64, trouble http.HandlerFunc) string {
	t.Helper()
	u, err := url.Parse(api)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && count.Add(1) > writes {
			trouble(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
