package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/broker/brokertest"
)

// manyQueues writes a topology file with the queues q<from> to q<to-1>.
func manyQueues(t *testing.T, name string, from, to int) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: %s\ndefaults: {type: classic, backoff: quick}\nbackoff: {quick: {tiers: [1s, 1m]}}\n", name)
	fmt.Fprintf(&b, "exchanges: [{name: %[1]s.events, type: direct}]\nqueues:\n", name)
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "  - {name: %[1]s.q%[2]d, dead: shared, bindings: [{exchange: %[1]s.events, key: k%[2]d}]}\n", name, i)
	}
	return file(t, b.String())
}

// file writes a topology file.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// process is a dlxctl that runs in a process of its own.
type process struct {
	*exec.Cmd
	stdout, stderr output
	ended          chan struct{} // closed when it has ended
}

// output is what a process has written. It can be read while that goes on.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts dlxctl, which TestMain has put into PATH.
func start(t *testing.T, target brokertest.Target, args ...string) *process {
	t.Helper()
	return startIn(t, "", target, args...)
}

// startIn starts it in a folder.
func startIn(t *testing.T, dir string, target brokertest.Target, args ...string) *process {
	t.Helper()
	p := command(t, target, args...)
	p.Dir = dir
	p.begin(t)
	return p
}

// command gives a dlxctl that has not begun yet.
func command(t *testing.T, target brokertest.Target, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), "dlxctl", args...), ended: make(chan struct{})}
	p.Env = append(os.Environ(), "RABBITMQ_URL="+target.URL, "RABBITMQ_API_URL="+target.API)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

func (p *process) begin(t *testing.T) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait() // ProcessState says how it ended
		close(p.ended)
	}()
}

// exits waits until p has ended and checks its exit code.
func (p *process) exits(t *testing.T, code int) {
	t.Helper()
	<-p.ended
	if got := p.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code of %q is %d, not %d\n%s%s", p.Args, got, code, &p.stdout, &p.stderr)
	}
}

// address gives where a processor listens, once its log says so.
func (p *process) address(t *testing.T) string {
	t.Helper()
	var address string
	eventually(t, fmt.Sprintf("the address of %q", p.Args), func() bool {
		if found := regexp.MustCompile(`\baddress=(\S+)`).FindStringSubmatch(p.stderr.String()); found != nil {
			address = found[1]
		}
		return address != ""
	})
	return address
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("%s to %q: %v", s, p.Args, err)
	}
}

// eventually polls until ok, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s for %s", what)
		}
	}
}
