package e2e_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/topology"
)

// Two applies of one topology start at the same time: with --lock-timeout both succeed, one after
// the other.
func TestApplyWaitsForTheLock(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 100)
	args := []string{"apply", "--yes", "--lock-timeout", "30s", "-f", path}
	a, b := start(t, target, args...), start(t, target, args...)
	a.exits(t, 0)
	b.exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
	// One of them made all changes, and the other found none left.
	if text := a.stdout.String() + b.stdout.String(); strings.Count(text, "done: ") != 1 {
		t.Errorf("both applies made changes, or none did:\n%s", text)
	}
}

// Without --lock-timeout the second apply fails and prints who holds the lock. The first is not
// affected.
func TestApplyPrintsWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
	target := brokertest.VHost(t)
	path := manyQueues(t, "shop", 0, 300)
	first := start(t, target, "apply", "--yes", "-f", path)
	brokertest.EventuallyEvery(t, 5*time.Millisecond, "the first apply to write", func() bool {
		return strings.Contains(strings.Join(target.Definitions(t), "\n"), `"x-managed-by"`)
	})
	first.signal(t, syscall.SIGSTOP) // or it would end before the broker lists the holder of the lock

	second := start(t, target, "apply", "--yes", "-f", path)
	second.exits(t, 1)
	const want = `dlxctl: another dlxctl holds the lock of the topology "shop": dlxctl apply shop (`
	if got := second.stderr.String(); !strings.HasPrefix(got, want) || second.stdout.String() != "" {
		t.Errorf("the second apply does not print who holds the lock:\n%s%s", second.stdout.String(), got)
	}

	first.signal(t, syscall.SIGCONT)
	first.exits(t, 0)
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// The holder of the lock may release it before the second apply has asked the broker for the
// holder. Then the second apply takes the lock and continues.
func TestApplyTakesALockThatWasJustReleased(t *testing.T) {
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
	// When the second apply asks who holds the lock, the broker has refused it already.
	asked := sync.OnceFunc(func() { _ = first.Close() })
	target.API = apiProxy(t, target.API, func(_ http.ResponseWriter, r *http.Request) (answered bool) {
		if strings.HasSuffix(r.URL.Path, "/shop.lock") {
			asked()
		}
		return false
	})
	start(t, target, "apply", "--yes", "-f", path).exits(t, 0)
	if !first.IsClosed() {
		t.Error("apply did not ask who holds the lock: the lock was free from the start")
	}
	start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
}

// A broker can answer 541 while the holder of a lock is disconnecting (seen on 4.0.5). Apply then
// asks again on another connection: at once, and after any wait.
func TestApplyAsksAgainWhileALockEnds(t *testing.T) {
	t.Parallel()
	brokertest.OnNewestLine(t)
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
			var failed atomic.Int32
			ends := time.Now().Add(held)
			troubled := brokertest.NewFilter(t, target, func(client, server net.Conn) {
				brokertest.Forward(client, server, func(piece []byte) bool {
					if !bytes.Contains(piece, []byte(lock)) || !time.Now().After(ends) || !failed.CompareAndSwap(0, 1) {
						return true
					}
					_ = first.Close()
					_, _ = client.Write(connectionClose(541, "INTERNAL_ERROR"))
					_, _ = client.Read(piece) // close-ok
					return false
				})
			})
			start(t, troubled, "apply", "--yes", "--lock-timeout", "1m", "-f", path).exits(t, 0)
			if failed.Load() == 0 {
				t.Error("the broker never answered 541, so the test shows nothing")
			}
			start(t, target, "plan", "--detailed-exitcode", "-f", path).exits(t, 0)
		})
	}
}

// connectionClose returns the frame of connection.close that answers a queue.declare.
func connectionClose(code uint16, reason string) []byte {
	method := []byte{0, 10, 0, 50}
	method = binary.BigEndian.AppendUint16(method, code)
	method = append(append(method, byte(len(reason))), reason...)
	method = append(method, 0, 50, 0, 10)
	frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(method))) //nolint:gosec // some bytes
	return append(append(frame, method...), 0xCE)
}

// Two topologies in one virtual host have a lock each: their applies do not wait for each other.
func TestApplyTwoTopologiesAtOnce(t *testing.T) {
	brokertest.OnNewestLine(t)
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
