package e2e_test

import (
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// An apply that fails midway prints how many changes are done, failed and were not tried, and exits
// with 4. The next apply continues.
func TestApplyFailsMidway(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		trouble http.HandlerFunc
		said    string
	}{
		"a connection that breaks": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			`\w+ \w+ .*: .* does not speak HTTP; .*\((\d+) done, (\d+) failed, (\d+) not tried; fix the cause and run it again\)`,
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
				t.Errorf("apply prints:\n%s", said)
			}
			start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
			start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
		})
	}
}

// So does an apply that loses its AMQP connection, over which it binds and deletes, and which holds
// its lock.
func TestApplyLosesItsConnection(t *testing.T) {
	t.Parallel()
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 50)
	troubled, proxy := brokertest.NewProxy(t, target)
	troubled.API = afterWrites(t, target.API, 40, func(w http.ResponseWriter, _ *http.Request) {
		proxy.Shut()
		w.WriteHeader(http.StatusCreated)
	})
	p := start(t, troubled, "apply", "--yes", "-f", path)
	p.exits(t, 4)
	if said := p.stderr.String(); !regexp.MustCompile(`(?m)^dlxctl: create \w+ .*: the AMQP connection to amqp://\S+ ended: .* \(\d+ done, \d+ failed, \d+ not tried; fix the cause and run it again\)$`).MatchString(said) {
		t.Errorf("apply prints:\n%s", said)
	}
	start(t, target, "apply", "--yes", "--lock-timeout", lockFreed, "-f", path).exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// A signal midway does the same. A signal before the first write leaves the broker as it was.
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
				p.logs(t, "stopping after ")
				release()
				code := map[bool]int{true: 130, false: 4}[writes == 0]
				p.exits(t, code)
				if said := p.stderr.String(); !regexp.MustCompile(`dlxctl: interrupted(; nothing was written| \(\d+ done, (\d+ begun and perhaps not finished, )?\d+ not tried; run it again to continue\))`).MatchString(said) {
					t.Errorf("apply prints:\n%s", said)
				}
			}
			start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
		})
	}
}

// afterWrites returns the URL of a proxy that answers by trouble after a number of writes.
func afterWrites(t *testing.T, api string, writes int64, trouble http.HandlerFunc) string {
	t.Helper()
	var count atomic.Int64
	return apiProxy(t, api, func(w http.ResponseWriter, r *http.Request) (answered bool) {
		if r.Method == http.MethodGet || count.Add(1) <= writes {
			return false
		}
		trouble(w, r)
		return true
	})
}
